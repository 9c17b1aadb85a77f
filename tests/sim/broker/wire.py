"""One simulated client's connection: real protocol bytes over a simulated socket."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages import response_class
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.schema import Message

if TYPE_CHECKING:
    from tests.sim.broker.world import World

REQUEST_TIMEOUT_S = 8.0
RETRY_S = 0.3


class Lost(Exception):
    """The connection is gone, and with it whether the request was carried out."""


class Wire:
    """A connection with any number of requests under way. Raises Lost when it ends."""

    def __init__(self, world: World, host: str) -> None:
        """Raises ConnectionRefusedError."""
        self.world = world
        self.host = host
        self.sock = world.network.connect(host, world.address)
        self.closed = False
        self.unread = False
        self._pending: deque[tuple[int, type[Message], int, asyncio.Future[Any]]] = deque()
        self._correlation_id = 0
        self._buffer = bytearray()
        self._unsent = bytearray()
        world.loop.add_reader(self.sock.fd, self._on_readable)

    async def call(self, request: Message, version: int, *, wait_s: float = 0.0) -> Any:
        """The answer; `wait_s` is what the broker may wait with it. Raises Lost."""
        future = self.send(request, version)
        timer = self.time_out_after(REQUEST_TIMEOUT_S + wait_s, type(request).__name__)
        try:
            return await future
        finally:
            timer.cancel()

    def time_out_after(self, seconds: float, what: str) -> asyncio.TimerHandle:
        """Close the connection when a request that was sent just now is not answered in time."""
        return self.world.loop.call_later(seconds, self._time_out, what, self.world.is_calm)

    def send(self, request: Message, version: int) -> asyncio.Future[Any]:
        """The future answer. Raises Lost when the connection is gone already."""
        if self.closed:
            raise Lost("closed")
        self._correlation_id += 1
        future = self.world.loop.create_future()
        self._pending.append((self._correlation_id, response_class(request.API_KEY), version, future))
        self.send_bytes(encode_request(request, version, self._correlation_id, self.host))
        return future

    def send_bytes(self, data: bytes) -> None:
        """Send these very bytes."""
        self._unsent += data
        self._write()

    def _write(self) -> None:
        try:
            while self._unsent:
                sent = self.sock.send(bytes(self._unsent))
                del self._unsent[:sent]
        except BlockingIOError:
            self.world.loop.add_writer(self.sock.fd, self._write)
            return
        except OSError as error:
            self._end(str(error))
            return
        self.world.loop.remove_writer(self.sock.fd)

    def _on_readable(self) -> None:
        if self.unread:
            self.world.loop.remove_reader(self.sock.fd)
            return
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(str(error))
            return
        if not data:
            self._end("ended by the broker")
            return
        self._buffer += data
        while len(self._buffer) >= 4 and not self.closed:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                break
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        if not self._pending:
            self.world.fail("failed", f"{self.host} got an answer that it did not ask for")
            return
        correlation_id, response, version, future = self._pending.popleft()
        answered, position = decode_response_header(frame, response.API_KEY, version)
        if answered != correlation_id:
            self.world.fail(
                "failed", f"{self.host} got the answer {answered} where {correlation_id} was next"
            )
        if not future.done():
            future.set_result(response.decode(memoryview(frame), version, position))

    def _time_out(self, what: str, was_calm: bool) -> None:
        if self.closed:
            return
        if was_calm:
            self.world.fail(
                "stuck", f"{self.host} got no answer to {what} although nothing disturbs the broker"
            )
        self.close()

    def _end(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self.sock.close()
        for *_, future in self._pending:
            if not future.done():
                future.set_exception(Lost(reason))
                future.exception()  # looked at: it may be that nobody waits
        self._pending.clear()

    def close(self) -> None:
        self._end("closed")

    def shut(self) -> None:
        """Nothing more will be sent; answers may still come."""
        self.sock.shutdown(socket.SHUT_WR)


class Client:
    """A client with at most one connection, made again when it is lost."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.chance: random.Random = world.stream(name)
        self._wire: Wire | None = None
        self._versions: dict[int, int] = {}

    async def wire(self) -> Wire:
        """A connection that is open; waits until the broker is there."""
        while self._wire is None or self._wire.closed:
            try:
                wire = Wire(self.world, self.name)
                answer = await wire.call(ApiVersionsRequest(), 0)
            except (Lost, OSError):
                await self.rest()
                continue
            self._served = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
            self._wire = wire
        return self._wire

    async def call(self, request: Message, *, wait_s: float = 0.0, low: int = 0, high: int = 99) -> Any:
        """One attempt at one request. Raises Lost."""
        wire = await self.wire()
        return await wire.call(request, self.version(request, low, high), wait_s=wait_s)

    def version(self, request: Message, low: int = 0, high: int = 99) -> int:
        """The version that this client uses of an API, within what the broker serves and `low` to `high`."""
        key = request.API_KEY
        if key not in self._versions:
            served = self._served[key]
            newest = min(served[1], high, request.VERSIONS[-1])
            oldest = max(served[0], low, request.VERSIONS[0])
            self._versions[key] = self.chance.choice([newest, newest, self.chance.randint(oldest, newest)])
        return self._versions[key]

    async def rest(self, seconds: float = RETRY_S) -> None:
        await asyncio.sleep(seconds * (0.5 + self.chance.random()))

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
