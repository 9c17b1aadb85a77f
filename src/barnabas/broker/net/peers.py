"""Connections to the other brokers of the cluster, as a client of theirs.

A PeerConnection sends requests and gives each its answer, in the order in which they were sent (Kafka's rule). `Peers` keeps
one per broker for what is asked now and then; a follower's fetches have a connection of their own, since they wait.
Brokers of one cluster know each other's versions: each request names the version that it is sent in.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.wire.header import decode_response_header, encode_request_parts
from barnabas.wire.messages import response_class
from barnabas.wire.primitives import WireError
from barnabas.wire.schema import Message

Address = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[str, int], Awaitable[Streams]]
T = TypeVar("T")

CONNECT_TIMEOUT_S: Final = 5.0
RESPONSE_BYTES_MAX: Final = 1 << 30


class PeerLost(Exception):
    """A broker cannot be reached, or the connection to it broke: what was asked may have been done or not."""


class _Pending(NamedTuple):
    correlation_id: int
    response: type[Message]
    version: int
    answer: asyncio.Future[Any]


class PeerConnection:
    """See the module. `open`, then `call` as often as wanted, `close`."""

    def __init__(self, streams: Streams, client_id: str) -> None:
        self._reader, self._writer = streams
        self._client_id = client_id
        self._pending: deque[_Pending] = deque()
        self._next_id = 0
        self.closed = False
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, connect: Connect, address: Address, client_id: str) -> PeerConnection:
        """Raises PeerLost."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return cls(await connect(*address), client_id)
        except (OSError, TimeoutError) as error:
            raise PeerLost(
                f"no broker answers at {address[0]}:{address[1]}: {error or 'it takes too long'}"
            ) from error

    async def call(self, request: Message, version: int, timeout_s: float) -> Any:
        """The answer. Raises PeerLost, also where none comes in time; the connection is of no more use then."""
        if self.closed:
            raise PeerLost("the connection is closed")
        correlation_id = self._next_id
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        parts = encode_request_parts(request, version, correlation_id, self._client_id)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.append(_Pending(correlation_id, response_class(request.API_KEY), version, answer))
        try:
            self._writer.writelines(parts)
            async with asyncio.timeout(timeout_s):
                await self._writer.drain()
                return await answer
        except (OSError, TimeoutError) as error:
            self.close(f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error))
            raise PeerLost(str(error) or f"no answer within {timeout_s:g} s") from error
        except asyncio.CancelledError:
            self.close("the caller has gone")
            raise

    def close(self, why: str = "closed") -> None:
        """End it; whoever still waits gets PeerLost."""
        if self.closed:
            return
        self.closed = True
        self._reading.cancel()
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()
        pending, self._pending = self._pending, deque()
        for waiting in pending:
            if not waiting.answer.done():
                waiting.answer.set_exception(PeerLost(why))
                waiting.answer.exception()  # seen: whoever waited may have gone

    async def _read(self) -> None:
        why = "the broker closed the connection"
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
                if not 4 <= size <= RESPONSE_BYTES_MAX:
                    raise WireError(f"the peer announced {size} bytes")
                self._answer(await self._reader.readexactly(size))
        except (OSError, asyncio.IncompleteReadError, WireError) as error:
            why = str(error) or why
        finally:
            self.close(why)

    def _answer(self, frame: bytes) -> None:
        if not self._pending:
            raise WireError("the peer answered what nobody asked")
        pending = self._pending.popleft()
        view = memoryview(frame)
        answered, position = decode_response_header(view, pending.response.API_KEY, pending.version)
        if answered != pending.correlation_id:
            raise WireError(f"the peer answered request {answered} instead of {pending.correlation_id}")
        found = pending.response.decode(view, pending.version, position)
        if not pending.answer.done():
            pending.answer.set_result(found)


class Peers:
    """One connection to each other broker, opened when it is needed and again after it broke."""

    def __init__(
        self,
        node_id: int,
        address_of: Callable[[int], Address | None],
        connect: Connect,
    ) -> None:
        """address_of: where a live broker listens for brokers; None for one that is not alive."""
        self._client_id = f"broker-{node_id}"
        self._address_of = address_of
        self._connect = connect
        self._connections: dict[int, tuple[Address, PeerConnection]] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def open(self, broker: int, client_id: str | None = None) -> PeerConnection:
        """A connection of the caller's own. Raises PeerLost."""
        address = self._address_of(broker)
        if address is None:
            raise PeerLost(f"broker {broker} is not alive")
        return await PeerConnection.open(self._connect, address, client_id or self._client_id)

    async def call(self, broker: int, request: Message, version: int, timeout_s: float = 30.0) -> Any:
        """A broker's answer. Raises PeerLost."""
        async with self._opening.setdefault(broker, asyncio.Lock()):
            address = self._address_of(broker)
            kept = self._connections.get(broker)
            if kept is None or kept[1].closed or kept[0] != address:
                if kept is not None:
                    kept[1].close()
                connection = await self.open(broker)
                assert address is not None
                self._connections[broker] = address, connection
            else:
                connection = kept[1]
        return await connection.call(request, version, timeout_s)

    def close(self) -> None:
        """Close all connections."""
        for _, connection in self._connections.values():
            connection.close()
        self._connections.clear()
