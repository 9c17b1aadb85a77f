"""Logging in on a SASL listener: which requests are let through, and tokens with and without a request around them.

Frames of a SASL listener go to its `LoginGate` until the connection has logged in; then they go straight to the
dispatcher, so that later requests pay nothing for the login. When a session has to be renewed (KIP-368), its frames
go to the gate again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.config import broker_network
from barnabas.config.option import ConfigError
from barnabas.security.sasl import Exchange, Outcome, SaslError
from barnabas.security.sasl.gssapi import GSSAPI
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.net.connection import Connection, FrameHandler
    from barnabas.runtime.clock import Clock
    from barnabas.security.sasl.listener import SaslListener

log = logging.getLogger("barnabas.login")

KEY: Final = struct.Struct(">h")
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
BEFORE_LOGIN: Final = frozenset({SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE})
SIZE: Final = struct.Struct(">i")
USER_PREFIX: Final = "User:"
TICKET: Final = 0x60
"""The first bytes of every initial GSSAPI token (RFC 2743). No request begins this way: there is no API 0x6000."""


class LoginGate:
    """The frame handler of one SASL listener."""

    def __init__(self, listener: SaslListener, dispatcher: Callable[[], FrameHandler], clock: Clock) -> None:
        self.listener = listener
        self.dispatcher = dispatcher
        self.clock = clock
        self.logins = self.failed_logins = 0
        """Since the start; renewals are logins, too."""

    def welcome(self, connection: Connection) -> None:
        """Called before the first frame of a connection is read. Until the login, only small frames are accepted."""
        connection.sasl = Login(self, connection)

    def awaits(self, connection: Connection) -> bool:
        """See Gate."""
        login: Login = connection.sasl
        return login.user is None

    def on_frames(self, connection: Connection, buffer: memoryview, end: int) -> int:
        """See FrameHandler."""
        return 0

    def may_overlap(self, frame: memoryview) -> bool:
        """See FrameHandler."""
        return False

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """See FrameHandler."""
        login: Login = connection.sasl
        if login.is_open:  # frames that were read together with the end of the login
            self.dispatcher().on_frame(connection, frame)
        elif login.has_failed:
            return
        elif len(frame) > login.frame_bytes_max:
            connection.close(
                f"a request of {len(frame)} bytes before the login; sasl.server.max.receive.size allows "
                f"{login.frame_bytes_max}"
            )
        elif login.takes_raw_tokens or login.begins_raw(frame):
            login.take_raw(bytes(frame))
        elif len(frame) >= KEY.size and KEY.unpack_from(frame)[0] in BEFORE_LOGIN:
            self.dispatcher().on_frame(connection, frame)
        else:
            key = KEY.unpack_from(frame)[0] if len(frame) >= KEY.size else -1
            connection.close(
                f"API {key} was requested "
                + (
                    "after the login had expired"
                    if login.user
                    else "before a login (the client's security.protocol)"
                )
            )


class Login:
    """The login state of one connection. Made by the gate; the handlers of SaslHandshake and SaslAuthenticate use it."""

    __slots__ = (
        "_connection", "_exchange", "_expiry", "_frame_bytes_after", "_gate", "_mechanism", "by_token", "frame_bytes_max",
        "has_failed", "is_open", "takes_raw_tokens", "user",
    )  # fmt: skip

    def __init__(self, gate: LoginGate, connection: Connection) -> None:
        self._gate = gate
        self._connection = connection
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._expiry: asyncio.TimerHandle | None = None
        self._frame_bytes_after = connection.frame_bytes_max
        self.frame_bytes_max = connection.frame_bytes_max = min(
            gate.listener.frame_bytes_max, connection.frame_bytes_max
        )
        self.user: str | None = None
        """The user that has logged in; kept while the login is renewed."""
        self.by_token = False
        """Whether the user logged in with a delegation token."""
        self.is_open = False
        """Whether requests go straight to the dispatcher."""
        self.has_failed = False
        self.takes_raw_tokens = False

    # --- the handshake ---------------------------------------------------------------------------------

    def handshake(self, mechanism: str, version: int) -> tuple[ErrorCode, list[str]]:
        """Choose a mechanism; returns (error, the available mechanisms)."""
        try:
            offered = list(self._gate.listener.mechanisms)
            if self.user is not None and (version == 0 or mechanism != self._mechanism):
                self._end("the login is renewed by another mechanism or by an old handshake")
                return ErrorCode.ILLEGAL_SASL_STATE, offered
            if mechanism not in offered:
                self._end(f"the client wants mechanism {mechanism[:64]!r}; {', '.join(offered)} are enabled")
                return ErrorCode.UNSUPPORTED_SASL_MECHANISM, offered
            self._exchange = self._gate.listener.begin(mechanism)
        except ConfigError as error:
            log.error("logins are not possible", extra={"mechanism": mechanism, "reason": str(error)})
            self._end("the options of its mechanism are wrong")
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, []
        self._mechanism = mechanism
        self.takes_raw_tokens = version == 0
        return ErrorCode.NONE, offered

    def begins_raw(self, frame: memoryview) -> bool:
        """Whether a 0.9 client, which knows no handshake, begins with a Kerberos token."""
        if self._exchange is not None or self.user is not None or not frame or frame[0] != TICKET:
            return False
        try:
            if GSSAPI not in self._gate.listener.mechanisms:
                return False
        except ConfigError:
            return False
        return self.handshake(GSSAPI, 0)[0] is ErrorCode.NONE

    # --- tokens ----------------------------------------------------------------------------------------

    async def authenticate(self, token: bytes) -> tuple[ErrorCode, str | None, bytes, int]:
        """Take one token; returns (error, its text, the token to answer with, the session's lifetime in ms or 0)."""
        if self._exchange is None:
            self._end("SaslAuthenticate came without a preceding SaslHandshake")
            text = "SaslAuthenticate request received without a SaslHandshake request before it"
            return ErrorCode.ILLEGAL_SASL_STATE, text, b"", 0
        try:
            outcome = await self.stepped(token)
            lifetime_ms = self._take(outcome) if outcome.user is not None else 0
        except SaslError as error:
            await self._fail(str(error))
            return ErrorCode.SASL_AUTHENTICATION_FAILED, str(error), b"", 0
        return ErrorCode.NONE, None, outcome.reply, lifetime_ms

    async def stepped(self, token: bytes) -> Outcome:
        assert self._exchange is not None
        outcome: Outcome | Awaitable[Outcome] = self._exchange.step(token)
        if inspect.isawaitable(outcome):
            return await outcome
        assert isinstance(outcome, Outcome)
        return outcome

    def take_raw(self, token: bytes) -> None:
        """Take a token without a request around it, as sent after version 0 of the handshake."""
        self._connection.wait()
        task = asyncio.ensure_future(self._taken_raw(token))
        # The connection holds the task, since the loop holds tasks only weakly.
        self._connection.call_when_closed(self, partial(_cancel, task))
        task.add_done_callback(self._raw_done)

    async def _taken_raw(self, token: bytes) -> Outcome | None:
        try:
            outcome = await self.stepped(token)
            if outcome.user is not None:
                self._take(outcome)
        except SaslError as error:
            await self._fail(str(error))
            return None
        return outcome

    def _raw_done(self, task: asyncio.Future[Outcome | None]) -> None:
        connection = self._connection
        connection.call_off(self)
        if task.cancelled() or connection.closed:
            return
        error = task.exception()
        if error is not None:
            connection.fail(error)
            return
        outcome = task.result()
        if outcome is None:
            connection.close(None)
            return
        if outcome.user is None or outcome.is_last_word:
            connection.respond([SIZE.pack(len(outcome.reply)) + outcome.reply])
        connection.resume()

    # --- the end of a login ----------------------------------------------------------------------------

    def _take(self, outcome: Outcome) -> int:
        """Accept a login or its renewal; returns the session's lifetime in ms, 0 for unlimited.

        Raises SaslError when the user differs from the previous login, and for credentials that have already expired.
        """
        assert outcome.user is not None
        if self.user is not None and outcome.user != self.user:
            raise SaslError(
                f"Cannot change principals during re-authentication from {self.user} to {outcome.user}"
            )
        lifetime_ms = self._gate.listener.reauthentication_ms(self._mechanism)
        if outcome.expires_ms is not None:
            left_ms = outcome.expires_ms - self._gate.clock.now_ms()
            lifetime_ms = min(lifetime_ms, left_ms) if lifetime_ms > 0 else max(left_ms, 1)
        connection = self._connection
        if self.user is None:
            log.debug("logged in", extra={"peer": connection.peer, "user": outcome.user})
        self.user = outcome.user
        self.by_token = outcome.by_token
        self._exchange = None
        self.takes_raw_tokens = False
        self.is_open = True
        connection.principal = USER_PREFIX + outcome.user
        self._gate.logins += 1
        connection.frame_bytes_max = self._frame_bytes_after
        connection.handler = self._gate.dispatcher()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if lifetime_ms > 0:
            self._expiry = asyncio.get_running_loop().call_later(lifetime_ms / 1000, self._expire)
            connection.call_when_closed(f"expiry of {id(self)}", self._expiry.cancel)
        return max(lifetime_ms, 0)

    def _expire(self) -> None:
        """From now on only a renewal is accepted."""
        self.is_open = False
        self._connection.handler = self._gate

    async def _fail(self, why: str) -> None:
        """Wait, to slow down guessing, then close after the answer."""
        exchange, self.has_failed, self.is_open = self._exchange, True, False
        self._gate.failed_logins += 1
        claimed = "" if exchange is None else exchange.claimed
        self._exchange = None
        self._connection.handler = self._gate
        delay_ms = self._gate.listener.options.get(broker_network.CONNECTION_FAILED_AUTHENTICATION_DELAY_MS)
        await asyncio.sleep(delay_ms / 1000)
        log.warning(
            "login refused",
            extra={
                "peer": self._connection.peer, "listener": self._connection.listener, "mechanism": self._mechanism,
                "user": claimed[:128], "reason": why,
            },
        )  # fmt: skip
        self._connection.close_after_answer(None)

    def _end(self, reason: str) -> None:
        """Close after the answer has been sent."""
        self.has_failed, self.is_open = True, False
        self._connection.close_after_answer(f"login refused: {reason}")


def _cancel(task: asyncio.Future[Outcome | None]) -> None:
    task.cancel()
