"""A simulated socket, used through the interface of asyncio's streams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.sim.loop import SimLoop
    from barnabas.sim.network import SimNetwork, SimSocket


class SimStream:
    """Reader and writer in one: the part of both that connections to brokers use."""

    def __init__(self, loop: SimLoop, sock: SimSocket) -> None:
        self._loop = loop
        self._sock = sock
        self._inbox = bytearray()
        self._unsent = bytearray()
        self._error: OSError | None = None
        self._ended = False
        self._waiting: asyncio.Future[None] | None = None
        loop.add_reader(sock.fd, self._on_readable)

    async def readexactly(self, count: int) -> bytes:
        while len(self._inbox) < count:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise asyncio.IncompleteReadError(bytes(self._inbox), count)
            self._waiting = self._loop.create_future()
            await self._waiting
        data = bytes(self._inbox[:count])
        del self._inbox[:count]
        return data

    def writelines(self, parts: Iterable[Any]) -> None:
        for part in parts:
            self._unsent += part
        self._write()

    async def drain(self) -> None:
        if self._error is not None:
            raise self._error

    @property
    def transport(self) -> SimStream:
        """What ends the connection at once."""
        return self

    def abort(self) -> None:
        self.close()

    async def wait_closed(self) -> None:
        pass

    def close(self) -> None:
        if not self._ended:
            self._loop.remove_reader(self._sock.fd)
            self._loop.remove_writer(self._sock.fd)
            self._ended = True
            self._sock.close()
            self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _fail(self, error: OSError) -> None:
        self._error = error
        self._loop.remove_reader(self._sock.fd)
        self._loop.remove_writer(self._sock.fd)
        self._wake()

    def _on_readable(self) -> None:
        try:
            data = self._sock.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        if not data:
            self._loop.remove_reader(self._sock.fd)
            self._ended = True
        self._inbox += data
        self._wake()

    def _write(self) -> None:
        try:
            while self._unsent:
                sent = self._sock.send(bytes(self._unsent))
                del self._unsent[:sent]
        except BlockingIOError:
            self._loop.add_writer(self._sock.fd, self._write)
            return
        except OSError as error:
            self._fail(error)
            return
        self._loop.remove_writer(self._sock.fd)


async def connect(loop: SimLoop, network: SimNetwork, host: str, to: str, port: int) -> tuple[Any, Any]:
    """A connection from `host`, in place of asyncio.open_connection. Raises ConnectionRefusedError."""
    stream = SimStream(loop, network.connect(host, (to, port)))
    return stream, stream
