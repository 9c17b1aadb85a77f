"""The middleware around every request: its id, access log, limits, users, errors in the format of the service's API.

A request gets one of the service's slots when it is whole, so that peers who send half a body occupy none; one address alone
gets at most half of them, and /health and /ready need none. Until then, a request is a connection of those that
`accepting.py` counts, and the part of the body that has arrived is counted in bytes.

The access log has one line for each request, in `barnabas.http.access`: constant text plus fields.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from barnabas.http.errors import ErrorShape, HttpError
from barnabas.http.extensions import ABORT, BODY, KEEP
from barnabas.http.measuring import Measures
from barnabas.http.shares import Shares, address_of
from barnabas.http.visitors import Visitors, refuse_form

log = logging.getLogger("barnabas.http")
access = logging.getLogger("barnabas.http.access")

REQUEST_ID: Final = b"x-request-id"
_SANE_ID: Final = re.compile(r"[\w.:=+/@-]{1,128}", re.ASCII)

DISCARDED_BYTES_MAX: Final = 64 << 20
DISCARD_S: Final = 2.0
HEADERS_MAX: Final = 500
"""Frameworks look through all of them for each one that they need."""
OPEN_PATHS: Final = frozenset({"/health", "/ready"})
"""Load balancers request these without a login, and get an answer however busy the service is."""

Authenticate = Callable[[Scope], Awaitable[str | None]]
"""Returns a request's user, None if it needs no login. Raises HttpError 401, 403. Called before the body is read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """body_bytes: of one request. request_s: from its headers to the end of its answer. requests: concurrent ones.

    bodies_bytes: of all requests that are arriving or in progress; at least four times body_bytes.
    """

    body_bytes: int = 16 << 20
    request_s: float = 60.0
    requests: int = 1_000
    bodies_bytes: int = 256 << 20

    def slots(self) -> Shares:
        """The places of concurrent requests."""
        return Shares(self.requests, max(self.requests // 20, 1))

    def bodies(self) -> Shares:
        """The bytes of bodies in memory."""
        total = max(self.bodies_bytes, 4 * self.body_bytes)
        return Shares(total, max(total // 8, self.body_bytes))


class Guard:
    """ASGI middleware, the outermost one. slots: the requests in progress. bodies: the bytes of their bodies.

    is_streaming: whether a body may be endless; the handler then limits each piece and the time between two pieces.
    takes_forms: whether a request may have a body of a type that web pages can send; its handler verifies the sender.
    media_type: what to send instead, for the message. is_socket: whether a path is a WebSocket's.
    """

    def __init__(
        self,
        app: ASGIApp,
        shape: ErrorShape,
        *,
        limits: Limits,
        service: str,
        visitors: Visitors | None = None,
        media_type: str = "application/json",
        takes_forms: Callable[[Scope], bool] = lambda scope: False,
        authenticate: Authenticate | None = None,
        is_streaming: Callable[[Scope], bool] = lambda scope: False,
        is_socket: Callable[[Scope], bool] = lambda scope: False,
    ) -> None:
        self.app = app
        self.shape = shape
        self.limits = limits
        self.service = service
        self.visitors = visitors or Visitors()
        self.media_type = media_type
        self.takes_forms = takes_forms
        self.authenticate = authenticate
        self.is_streaming = is_streaming
        self.is_socket = is_socket
        self.slots = limits.slots()
        self.bodies = limits.bodies()
        self._measures = Measures(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await self._socket(scope, receive, send)
            return
        _drop_slash(scope)
        streaming = self.is_streaming(scope)
        exchange = Exchange(scope, receive, send, None if streaming else self.limits.body_bytes)
        try:
            async with asyncio.timeout(None if streaming else self.limits.request_s):
                await self._run(exchange, streaming)
        except TimeoutError:
            await self._late(exchange)
        finally:
            exchange.forget_body(self.bodies)
            self._note(exchange)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one WebSocket, if the service has one here, until it is closed."""
        scope["method"] = "GET"
        exchange = Exchange(scope, receive, send, None)
        try:
            if not self.is_socket(scope):
                raise HttpError(404, "there is no WebSocket here")
            self.visitors.check(scope)
            if self.authenticate is not None:
                with self._slot(exchange):
                    exchange.user = await self.authenticate(scope)
                scope["state"]["user"] = exchange.user
            with self._slot(exchange):
                exchange.status = 101
                await self.app(scope, receive, send)
        except HttpError as error:
            exchange.status = error.status
            body, media_type = self.shape(error, exchange.id)
            headers = {"content-type": media_type, "content-length": str(len(body)), **error.headers}
            raw = [
                (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
            ]
            await send({"type": "websocket.http.response.start", "status": error.status, "headers": raw})
            await send({"type": "websocket.http.response.body", "body": body})
        finally:
            self._note(exchange)

    async def _admit(self, exchange: Exchange, streaming: bool) -> None:
        """Check the request, and wait until it is whole. Raises HttpError; TimeoutError if it is not whole in time."""
        if len(exchange.scope["headers"]) > HEADERS_MAX:
            raise HttpError(431, f"the request has more than {HEADERS_MAX} headers")
        self.visitors.check(exchange.scope)
        if not self.takes_forms(exchange.scope):
            refuse_form(exchange.scope, self.media_type)
        exchange.check_announced()
        if self.authenticate is not None:
            with self._slot(exchange):
                exchange.user = await self.authenticate(exchange.scope)
            exchange.scope["state"]["user"] = exchange.user
        if streaming:
            async with asyncio.timeout(self.limits.request_s):
                await exchange.await_first_piece()
        else:
            await exchange.gather(self.bodies)

    @contextlib.contextmanager
    def _slot(self, exchange: Exchange) -> Iterator[None]:
        """A place among the requests in progress. Raises HttpError 503 if all are taken, or all of the client's address."""
        if not self.slots.take(exchange.address):
            raise _busy(f"{self.slots.used} requests are already in progress")
        self._measures.in_progress.inc()
        try:
            yield
        finally:
            self.slots.give_back(exchange.address)
            self._measures.in_progress.dec()

    async def _run(self, exchange: Exchange, streaming: bool) -> None:
        try:
            if exchange.scope["path"] in OPEN_PATHS:
                if exchange.body_read:
                    exchange.keep_connection()
                await self.app(exchange.scope, exchange.receive, exchange.send)
                return
            await self._admit(exchange, streaming)
            with self._slot(exchange):
                exchange.keep_connection()
                await self.app(exchange.scope, exchange.receive, exchange.send)
        except HttpError as error:
            await self._refuse(exchange, error)
        except HTTPException as error:  # Starlette's own: no such path, method not allowed
            headers = dict(error.headers or {})
            await self._refuse(exchange, HttpError(error.status_code, error.detail, headers=headers))
        except (TimeoutError, asyncio.CancelledError):
            raise
        except Exception:
            fields = {"service": self.service, "path": exchange.scope["path"], "request_id": exchange.id}
            log.exception("request failed", extra=fields)
            error_text = f"an internal error; the log reports it with request id {exchange.id}"
            await self._refuse(exchange, HttpError(500, error_text))

    async def _refuse(self, exchange: Exchange, error: HttpError, *, discard: bool = True) -> None:
        if exchange.status:  # the answer has begun, and cannot be replaced
            exchange.abort()
            return
        if discard:
            await exchange.discard()
        body, media_type = self.shape(error, exchange.id)
        headers = {"content-type": media_type, "content-length": str(len(body)), **error.headers}
        if not exchange.body_read:
            headers["connection"] = "close"  # the rest of the body is not read
        raw = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await exchange.send({"type": "http.response.start", "status": error.status, "headers": raw})
        await exchange.send({"type": "http.response.body", "body": body})

    async def _late(self, exchange: Exchange) -> None:
        """Refuse a request that took too long; close the connection if an answer has begun or nobody reads it."""
        what = "the body did not arrive" if not exchange.body_read else "there was no answer"
        status = 503 if exchange.body_read else 408
        try:
            async with asyncio.timeout(1):
                refusal = HttpError(status, f"{what} within {self.limits.request_s:g} s")
                await self._refuse(exchange, refusal, discard=False)
        except TimeoutError:
            exchange.abort()

    def _note(self, exchange: Exchange) -> None:
        took_s = time.monotonic() - exchange.begun
        self._measures.note(exchange.scope, exchange.status, took_s, exchange.bytes_in, exchange.bytes_out)
        if not access.isEnabledFor(logging.INFO):
            return
        client = exchange.scope.get("client")
        access.info(
            "request",
            extra={
                "service": self.service,
                "client": f"{client[0]}:{client[1]}" if client else "-",
                "user": exchange.user or "-",
                "method": exchange.scope["method"],
                "path": exchange.scope["path"],
                "query": exchange.scope["query_string"].decode("latin-1"),
                "status": exchange.status,
                "bytes_in": exchange.bytes_in,
                "bytes_out": exchange.bytes_out,
                "took_ms": round(took_s * 1000, 1),
                "request_id": exchange.id,
            },
        )


def _drop_slash(scope: Scope) -> None:
    """Remove the slash at the end of a path: `/topics/` means `/topics`. A slash inside a name is encoded, and stays."""
    raw = scope.get("raw_path") or scope["path"].encode()
    if len(raw) > 1 and raw.endswith(b"/"):
        scope["raw_path"], scope["path"] = raw[:-1], scope["path"].removesuffix("/")


def _busy(what: str) -> HttpError:
    return HttpError(503, f"{what}; try again", headers={"retry-after": "1"})


class Exchange:
    """One request and its answer. address: what counts as one client. status: of the answer, 0 until it begins.

    body_bytes_max: None for no limit.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, body_bytes_max: int | None) -> None:
        self.scope = scope
        self.status = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.body_read = False
        self.user: str | None = None
        self.begun = time.monotonic()
        self._receive = receive
        self._send = send
        self._body_bytes_max = body_bytes_max
        self._arrived: deque[Message] = deque()
        self._counted_bytes = 0
        self.address = address_of((scope.get("client") or ("",))[0])
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = headers.get(REQUEST_ID, b"").decode("latin-1")
        self.id = request_id if _SANE_ID.fullmatch(request_id) else uuid.uuid4().hex
        length = headers.get(b"content-length", b"")
        self._announced = int(length) if length.isdigit() and len(length) < 19 else 0
        has_body = scope.get("extensions", {}).get(BODY, b"transfer-encoding" in headers)
        if not self._announced and not has_body:
            self.body_read = True
        self._expects_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        scope.setdefault("state", {})["request_id"] = self.id

    def check_announced(self) -> None:
        """Raises HttpError 413 if content-length exceeds the limit."""
        if self._body_bytes_max is not None and self._announced > self._body_bytes_max:
            self._too_large(self._announced)

    def _too_large(self, size: int) -> None:
        at_least = "at least " if size != self._announced else ""
        limit = self._body_bytes_max
        raise HttpError(413, f"the body has {at_least}{size} bytes; the limit is {limit}")

    async def receive(self) -> Message:
        """The next piece of the body. Raises HttpError 413 if the body exceeds the limit."""
        return self._arrived.popleft() if self._arrived else await self._next()

    async def gather(self, bodies: Shares) -> None:
        """Wait for the whole body. Raises HttpError 400 if it breaks off, 413, 503 if there is no memory for it."""
        pieces = []
        while not self.body_read:
            message = await self._next()
            if message["type"] != "http.request":
                raise HttpError(400, "the client closed the connection before its body was complete")
            piece = message.get("body", b"")
            if not bodies.take(self.address, len(piece)):
                raise _busy(f"{bodies.used} bytes of requests are already being processed")
            self._counted_bytes += len(piece)
            pieces.append(piece)
        if pieces:
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._arrived.append({"type": "http.request", "body": body, "more_body": False})

    async def await_first_piece(self) -> None:
        """Wait until the body begins."""
        if not self.body_read:
            self._arrived.append(await self._next())

    def forget_body(self, bodies: Shares) -> None:
        """The request has ended: its body is not in memory any more."""
        if self._counted_bytes:
            bodies.give_back(self.address, self._counted_bytes)
            self._counted_bytes = 0

    def keep_connection(self) -> None:
        """The connection has sent a request: its place is not given to others."""
        keep: Any = self.scope.get("extensions", {}).get(KEEP)
        if keep is not None:
            keep()

    async def _next(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self.bytes_in += len(message.get("body", b""))
            self.body_read = not message.get("more_body", False)
            if self._body_bytes_max is not None and self.bytes_in > self._body_bytes_max:
                self._too_large(self.bytes_in)
        return message

    async def discard(self) -> None:
        """Read and discard the rest of the body, up to DISCARDED_BYTES_MAX and for at most DISCARD_S.

        A connection that is closed while the peer is sending is reset, and the peer would not see the answer.
        """
        if self._expects_continue:
            return  # the peer waits for "100 Continue" before it sends
        left = DISCARDED_BYTES_MAX
        try:
            async with asyncio.timeout(DISCARD_S):
                while not self.body_read and left > 0:
                    message = await self._receive()
                    if message["type"] != "http.request":
                        return
                    left -= len(message.get("body", b""))
                    self.body_read = not message.get("more_body", False)
        except TimeoutError:
            return

    async def send(self, message: Message) -> None:
        """Send a piece of the answer, with the request id in its headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (REQUEST_ID, self.id.encode())]
        elif message["type"] == "http.response.body":
            self.bytes_out += len(message.get("body", b""))
        await self._send(message)

    def abort(self) -> None:
        """Close the connection at once, and discard unwritten data."""
        drop: Any = self.scope.get("extensions", {}).get(ABORT)
        if drop is not None:
            drop()
