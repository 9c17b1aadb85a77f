"""A client of raw bytes."""

from __future__ import annotations

import socket
import struct

from tests.security.test_tls import PATIENCE_S


class Peer:
    """A client that sends what it likes."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self.sock = socket.create_connection((host, int(port)), PATIENCE_S)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def frame(self, data: bytes) -> bytes:
        """Send a frame; the answer, or b"" when the connection ends instead."""
        try:
            self.send(data)
            return self.read()
        except (ConnectionResetError, BrokenPipeError):
            return b""

    def send(self, data: bytes) -> None:
        """Send a frame, and await nothing."""
        self.sock.sendall(struct.pack(">i", len(data)) + data)

    def read(self) -> bytes:
        head = self._exactly(4)
        return self._exactly(struct.unpack(">i", head)[0]) if head else b""

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                more = self.sock.recv(count - len(data))
            except ConnectionResetError:
                return b""
            if not more:
                return b""
            data += more
        return data

    def request(self, key: int, version: int, body: bytes) -> bytes:
        return self.frame(struct.pack(">hhih", key, version, 7, -1) + body)[4:]

    def handshake(self, mechanism: str, version: int = 1) -> int:
        name = mechanism.encode()
        answer = self.request(17, version, struct.pack(">h", len(name)) + name)
        return int(struct.unpack(">h", answer[:2])[0]) if answer else -1

    def token(self, token: bytes, version: int = 0) -> tuple[int, bytes]:
        """(error, the answering token); -1 when the connection ends."""
        answer = self.request(36, version, struct.pack(">i", len(token)) + token)
        if not answer:
            return -1, b""
        error, length = struct.unpack(">hh", answer[:4])
        at = 4 + max(length, 0)
        (size,) = struct.unpack(">i", answer[at : at + 4])
        return error, answer[at + 4 : at + 4 + size]

    def works(self) -> bool:
        """Whether Metadata is answered."""
        return bool(self.request(3, 1, struct.pack(">i", 0)))
