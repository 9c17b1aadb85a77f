"""Connections to the other brokers of the cluster, as a client of theirs.

A PeerConnection sends requests and matches the answers, which arrive in the order of the requests (Kafka's rule). `Peers`
keeps one connection per broker for occasional requests; a follower's fetches have their own, since they wait. Brokers of
one cluster know each other's versions: each request is sent in a fixed version.

If the listener for brokers uses TLS or a login, `security/between.py` provides them. A broker that refuses this one's
certificate or login, or whose own certificate is not trusted here, is logged once and retried every REFUSED_REST_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from barnabas.config.option import ConfigError
from barnabas.runtime.machine import Connect, Streams
from barnabas.security.purposes import NO_CLIENT_AUTH, NO_SERVER_AUTH, why_ended, why_not_trusted
from barnabas.security.sasl.client import ClientLogin, LoginRefused
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.header import decode_response_header, encode_request_parts
from barnabas.wire.messages import response_class
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.primitives import WireError
from barnabas.wire.schema import Message

Address = tuple[str, int]
Note = Callable[[str | None], None]
"""Called with the reason when a broker refuses this one or is not trusted; with None when it answers again."""
T = TypeVar("T")

log = logging.getLogger("barnabas.peers")

CONNECT_TIMEOUT_S: Final = 5.0
LOGIN_TIMEOUT_S: Final = 10.0
REFUSED_REST_S: Final = 2.0
RESPONSE_BYTES_MAX: Final = 1 << 30
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
RENEWED_AT: Final = 0.8
"""The fraction of a login's lifetime after which it is renewed."""
APPEND_VERSION: Final = 9
"""The version of Produce: not one of the newest, which identify topics by id; this one uses names."""
APPEND_TIMEOUT_S: Final = 10.0

LOGIN_APIS: Final = frozenset((SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY))


class PeerLost(Exception):
    """A broker cannot be reached, or the connection to it broke: whether the request was carried out is unknown."""


class PeerRefused(PeerLost):
    """A broker and this one do not trust each other: a certificate or password is wrong."""


class Security(Protocol):
    """How to connect to another broker (security/between.py)."""

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context for connections to brokers; None when these are not encrypted."""

    def login(self, host: str) -> ClientLogin | None:
        """A new login to the broker at `host`; None when none is needed."""


class _Pending(NamedTuple):
    correlation_id: int
    response: type[Message]
    version: int
    answer: asyncio.Future[Any]


class PeerConnection:
    """See the module. Call `open`, then `call` any number of times, then `close`."""

    def __init__(
        self, streams: Streams, client_id: str, new_login: Callable[[], ClientLogin | None], note: Note
    ) -> None:
        self._reader, self._writer = streams
        self._client_id = client_id
        self._new_login = new_login
        self._note = note
        self._pending: deque[_Pending] = deque()
        self._next_id = 0
        self._renew_s: float | None = None
        """When the login has to be renewed, in the loop's time; None for never."""
        self._renewing = asyncio.Lock()
        self._has_answered = False
        self.closed = False
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def open(
        cls, connect: Connect, address: Address, client_id: str, security: Security, note: Note
    ) -> PeerConnection:
        """Connect and log in. Raises PeerLost."""
        where = f"{address[0]}:{address[1]}"
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                streams = await connect(*address, security.tls())
        except ssl.SSLCertVerificationError as error:
            reason = why_not_trusted(error, NO_SERVER_AUTH)
            note(why := f"the certificate of the broker at {where} is not trusted: {reason}")
            raise PeerRefused(why) from error
        except ssl.SSLError as error:
            note(why := f"no TLS with the broker at {where}: {why_ended(error, NO_CLIENT_AUTH)}")
            raise PeerRefused(why) from error
        except (OSError, TimeoutError) as error:
            raise PeerLost(f"no broker answers at {where}: {error or 'it takes too long'}") from error
        connection = cls(streams, client_id, partial(security.login, address[0]), note)
        try:
            await connection._log_in()
        except BaseException:
            connection.close()
            raise
        return connection

    async def call(self, request: Message, version: int, timeout_s: float) -> Any:
        """The answer. Raises PeerLost, also when no answer arrives in time; the connection is unusable then."""
        if self._must_renew():
            async with self._renewing:
                if self._must_renew():
                    await self._log_in()
        return await self._ask(request, version, timeout_s)

    async def _ask(self, request: Message, version: int, timeout_s: float) -> Any:
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

    # --- the login -------------------------------------------------------------------------------------

    def _must_renew(self) -> bool:
        return self._renew_s is not None and asyncio.get_running_loop().time() >= self._renew_s

    async def _log_in(self) -> None:
        """Log in, or renew the login (KIP-368). Raises PeerLost; the connection is unusable then."""
        try:
            login = self._new_login()
            if login is not None:
                lifetime_ms = await self._exchange(login)
                self._renew_s = None
                if lifetime_ms > 0:
                    left_s = lifetime_ms * RENEWED_AT / 1000
                    self._renew_s = asyncio.get_running_loop().time() + left_s
        except (ConfigError, LoginRefused) as error:
            self.close(str(error))
            self._note(str(error))
            raise PeerRefused(str(error)) from None

    async def _exchange(self, login: ClientLogin) -> int:
        """The lifetime of the login in ms, 0 for unlimited. Raises LoginRefused, PeerLost."""
        handshake = SaslHandshakeRequest(mechanism=login.mechanism)
        offer = await self._ask(handshake, HANDSHAKE_VERSION, LOGIN_TIMEOUT_S)
        if offer.error_code:
            offered = ", ".join(offer.mechanisms or ()) or "none"
            raise LoginRefused(f"a broker does not accept logins by {login.mechanism}, only by {offered}")
        token: bytes | None = await self._computed_token(login.first())
        lifetime_ms = 0
        while token is not None:
            request = SaslAuthenticateRequest(auth_bytes=token)
            answer = await self._ask(request, AUTHENTICATE_VERSION, LOGIN_TIMEOUT_S)
            if answer.error_code:
                why = answer.error_message or ErrorCode(answer.error_code).name
                raise LoginRefused(
                    f"a broker refuses the login of {login.user!r} by {login.mechanism}: {why}"
                )
            lifetime_ms = answer.session_lifetime_ms
            token = await self._computed_token(login.answer(bytes(answer.auth_bytes)))
        return lifetime_ms

    async def _computed_token(self, token: Awaitable[T]) -> T:
        """A token computed by this side. Raises LoginRefused, PeerLost."""
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT_S):
                return await token
        except TimeoutError:
            self.close(
                why := f"the credentials for the login were not available within {LOGIN_TIMEOUT_S:g} s"
            )
            raise PeerLost(why) from None

    # --- answers ---------------------------------------------------------------------------------------

    def close(self, why: str = "closed") -> None:
        """End the connection; waiting callers get PeerLost."""
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
                waiting.answer.exception()  # marks it as retrieved: the caller may have given up

    async def _read(self) -> None:
        why = "the broker closed the connection"
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big", signed=True)
                if not 4 <= size <= RESPONSE_BYTES_MAX:
                    raise WireError(f"the peer announced {size} bytes")
                self._answer(await self._reader.readexactly(size))
        except ssl.SSLError as error:  # TLS 1.3: a refused certificate is reported only now
            why = f"a broker ended the TLS connection: {why_ended(error, NO_CLIENT_AUTH)}"
            if not self._has_answered:
                self._note(why)
        except (OSError, asyncio.IncompleteReadError, WireError) as error:
            why = str(error) or why
        finally:
            self.close(why)

    def _answer(self, frame: bytes) -> None:
        if not self._pending:
            raise WireError("the peer sent an answer without a request")
        pending = self._pending.popleft()
        view = memoryview(frame)
        answered, position = decode_response_header(view, pending.response.API_KEY, pending.version)
        if answered != pending.correlation_id:
            raise WireError(f"the peer answered request {answered} instead of {pending.correlation_id}")
        answer = pending.response.decode(view, pending.version, position)
        if not self._has_answered and pending.response.API_KEY not in LOGIN_APIS:
            self._has_answered = True
            self._note(None)
        if not pending.answer.done():
            pending.answer.set_result(answer)


class Peers:
    """One connection to each other broker, opened when needed and reopened after it broke."""

    def __init__(
        self,
        node_id: int,
        address_of: Callable[[int], Address | None],
        connect: Connect,
        security: Security,
    ) -> None:
        """address_of: the address where a live broker accepts brokers; None for one that is not alive."""
        self._client_id = f"broker-{node_id}"
        self._address_of = address_of
        self._connect = connect
        self._security = security
        self._refusals: dict[int, tuple[str, float]] = {}
        """Broker -> (reason, when to try again), where trust is missing on either side."""
        self._connections: dict[int, tuple[Address, PeerConnection]] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def open(self, broker: int, client_id: str | None = None) -> PeerConnection:
        """A connection for the caller alone. Raises PeerLost."""
        address = self._address_of(broker)
        if address is None:
            raise PeerLost(f"broker {broker} is not alive")
        why, until_s = self._refusals.get(broker, ("", 0.0))
        if asyncio.get_running_loop().time() < until_s:
            raise PeerRefused(why)
        return await PeerConnection.open(
            self._connect,
            address,
            client_id or self._client_id,
            self._security,
            partial(self._note, broker),
        )

    def _note(self, broker: int, why: str | None) -> None:
        """Log that a broker and this one do not trust each other, or do so again; one line for each change."""
        before = self._refusals.pop(broker, ("", 0.0))[0]
        if why is None:
            if before:
                log.info("the connection to a broker is trusted again", extra={"broker": broker})
            return
        self._refusals[broker] = why, asyncio.get_running_loop().time() + REFUSED_REST_S
        if why != before:
            log.error(
                "no connection to another broker; it is tried again",
                extra={"broker": broker, "reason": why},
            )

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

    async def append(self, broker: int, topic: str, index: int, batch: bytes, acks: int) -> None:
        """Append a batch to a partition led by another broker. Raises ApiError with that broker's answer, or PeerLost."""
        rows = [PartitionProduceData(index=index, records=memoryview(batch))]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=int(APPEND_TIMEOUT_S * 1000),
            topic_data=[TopicProduceData(name=topic, partition_data=rows)],
        )
        answer: ProduceResponse = await self.call(broker, request, APPEND_VERSION, APPEND_TIMEOUT_S)
        for row in (row for topic_row in answer.responses for row in topic_row.partition_responses):
            if row.error_code:
                code = ErrorCode(row.error_code)
                raise ApiError(code, f"broker {broker} refuses it: {row.error_message or code.name}")

    def close(self) -> None:
        """Close all connections."""
        for _, connection in self._connections.values():
            connection.close()
        self._connections.clear()
