"""A peer whose answers a test decides, in front of a real broker or alone."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.wire.header import decode_request_header, encode_response
from barnabas.wire.messages import request_class
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.schema import Message

API_VERSIONS: Final = 18

Versions = Mapping[int, tuple[int, int]]
Answer = Callable[[Any], Message | None]
"""The answer to a decoded request; None closes the connection."""


class _Server:
    """Accepts connections and serves each in a thread, until `close`."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for sock in [self._listening, *self._open]:
            _shut(sock)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(sock)
            threading.Thread(target=self._guarded, args=(sock,), daemon=True).start()

    def _guarded(self, sock: socket.socket) -> None:
        try:
            self.serve(sock)
        except OSError:
            pass
        finally:
            _shut(sock)

    def serve(self, sock: socket.socket) -> None:
        raise NotImplementedError


class ScriptedPeer(_Server):
    """Answers requests with what `answers` returns by API key, and notes each request in `asked`."""

    def __init__(self, answers: Mapping[int, Answer], versions: Versions) -> None:
        self.answers = answers
        self.versions = versions
        self.asked: list[Message] = []
        super().__init__()

    def serve(self, sock: socket.socket) -> None:
        while True:
            header, body = _read(sock)
            if header.request_api_key == API_VERSIONS:
                answer: Message | None = _served(self.versions)
            else:
                request = request_class(header.request_api_key).decode(body, header.request_api_version)
                self.asked.append(request)
                answer = self.answers[header.request_api_key](request)
            if answer is None:
                return
            parts = encode_response(answer, header.request_api_version, header.correlation_id)
            sock.sendall(b"".join(parts))


class OldBroker(_Server):
    """A relay to a real broker that announces only these versions, as an older one does, and takes no others.

    The broker has to advertise the relay's address.
    """

    def __init__(self, versions: Versions) -> None:
        self.versions = versions
        self.behind: tuple[str, int] | None = None
        self.refused: list[tuple[int, int]] = []
        super().__init__()

    def serve(self, sock: socket.socket) -> None:
        assert self.behind is not None
        with socket.create_connection(self.behind) as broker:
            while True:
                frame = _frame(sock)
                header, _ = decode_request_header(frame)
                low, high = self.versions.get(header.request_api_key, (0, -1))
                if header.request_api_key == API_VERSIONS:
                    version = header.request_api_version if header.request_api_version <= high else 0
                    code = 35 if header.request_api_version > high else 0
                    answer = _served(self.versions, code)
                    sock.sendall(b"".join(encode_response(answer, version, header.correlation_id)))
                    continue
                if not low <= header.request_api_version <= high:
                    self.refused.append((header.request_api_key, header.request_api_version))
                    return
                broker.sendall(struct.pack(">i", len(frame)) + frame)
                answered = _frame(broker)
                sock.sendall(struct.pack(">i", len(answered)) + answered)


def _served(versions: Versions, code: int = 0) -> ApiVersionsResponse:
    rows = [
        ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items()
    ]
    return ApiVersionsResponse(error_code=code, api_keys=rows)


def _read(sock: socket.socket) -> tuple[Any, bytes]:
    frame = _frame(sock)
    header, position = decode_request_header(frame)
    return header, frame[position:]


def _frame(sock: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(sock, 4))
    return _exactly(sock, size)


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise ConnectionError("closed")
        data += more
    return data


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()
