"""uvicorn's HTTP connection, with limits on what a peer can occupy before it has sent a request.

uvicorn closes a connection that is idle between two requests. But a peer that sends half a request line, or endless
headers, or does not read its answer, would keep a connection and its memory for ever. This class closes it.

A connection may become one of HTTP/2, or of a WebSocket, if the service has these: another protocol takes its transport.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from httptools import parse_url
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from barnabas.http.extensions import ABORT, KEEP

if TYPE_CHECKING:
    from barnabas.http.accepting import Place
    from barnabas.http.http2 import Upgrade

HEADER_BYTES_MAX: Final = 64 << 10
HEADER_TIMEOUT_S: Final = 20.0
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""The first bytes of a connection of HTTP/2, with and without TLS."""
UPGRADE_BODY_BYTES_MAX: Final = 1 << 20
"""Of a request of HTTP/1.1 that asks for HTTP/2."""
UPGRADE_HEADERS: Final = frozenset({b"connection", b"upgrade", b"http2-settings", b"expect"})


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's connection. The timer `_awaited` limits how long the headers of a request may take."""

    _awaited: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def __init__(
        self, *of_uvicorn: Any, place: Place | None = None, http2: bool = False, **more: Any
    ) -> None:
        """place: the connection's place among those of the service. http2: whether it may become one of HTTP/2."""
        super().__init__(*of_uvicorn, **more)
        self._place = place
        self._first: bytes | None = b"" if http2 else None
        """What has arrived of the first request's headers, which may ask for HTTP/2; None if it may not, or does not."""
        self._is_handed_on = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection is established."""
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        if self._place is not None:
            self._place.release()
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process bytes from the peer. Limits the size and time of headers; the guard limits bodies."""
        if self._first is not None:
            before, self._first = self._first, self._first + data
            if len(self._first) < len(PREFACE) and PREFACE.startswith(self._first):
                return
            if self._first.startswith(PREFACE):
                self._become_http2(self._first)
                return
            if PREFACE.startswith(before):
                data = self._first
        idle = self._is_idle()
        if idle:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._is_handed_on:
            return
        if not self._is_idle():
            self._stop_waiting()
            self._header_bytes = 0
        elif self.transport.is_closing():
            self._stop_waiting()
        elif self._header_bytes > HEADER_BYTES_MAX:
            self._stop_waiting()
            self.send_400_response(f"The headers are over {HEADER_BYTES_MAX} bytes.")
        elif self._awaited is None and idle:
            self._await_headers()

    def on_headers_complete(self) -> None:
        """The headers of a request have ended. If they ask for HTTP/2, the request is not run here."""
        if self._asks_for_http2():
            return
        self._first = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request has ended."""
        if not self._asks_for_http2():
            super().on_message_complete()

    def _asks_for_http2(self) -> bool:
        """Whether the first request does. With a body, only if that is small: it is received before the answer."""
        if self._first is None or self.scheme != "http" or not self.parser.should_upgrade():
            return False
        if self._get_upgrade() != b"h2c":
            return False
        headers = dict(self.headers)
        length = headers.get(b"content-length", b"0")
        is_small = length.isdigit() and len(length) < 9 and int(length) <= UPGRADE_BODY_BYTES_MAX
        return b"http2-settings" in headers and b"transfer-encoding" not in headers and is_small

    def _should_upgrade(self) -> bool:
        return self._asks_for_http2() or super()._should_upgrade()

    def _upgrade_to_http2(self) -> None:
        """The request's headers have been read; what follows them is its body."""
        from barnabas.http.http2 import Upgrade

        assert self._first is not None
        headers = dict(self.headers)
        rest = self._first.partition(b"\r\n\r\n")[2]
        where = parse_url(self.url)
        path = where.path if where.query is None else where.path + b"?" + where.query
        head = [(b":method", self.parser.get_method()), (b":path", path), (b":scheme", b"http")]
        kept = [pair for pair in self.headers if pair[0] not in UPGRADE_HEADERS]
        settings, left = headers[b"http2-settings"], int(headers.get(b"content-length", b"0"))
        self._become_http2(rest, Upgrade(settings, [*head, *kept], left))

    def _become_http2(self, data: bytes, upgrade: Upgrade | None = None) -> None:
        from barnabas.http.http2 import Http2Connection

        protocol = Http2Connection(self.config, self.server_state, self.app_state, self._place, upgrade)
        self._hand_on()
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        protocol.data_received(data)

    def handle_websocket_upgrade(self) -> None:
        """The connection becomes a WebSocket's, or HTTP/2's, which keeps the place."""
        if self._asks_for_http2():
            self._upgrade_to_http2()
            return
        from barnabas.http.socket import LimitedSocket

        place = self._place
        self._hand_on()
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, LimitedSocket):
            protocol.hold(place)

    def _hand_on(self) -> None:
        """Another protocol takes the transport, and the place."""
        self._is_handed_on = True
        self._place = None
        self._stop_waiting()
        self._unset_keepalive_if_required()
        self.connections.discard(self)

    def on_message_begin(self) -> None:
        """A request begins: give its handler functions that close the connection, and keep its place."""
        super().on_message_begin()
        scope = cast("dict[str, Any]", self.scope)
        scope["extensions"] = {ABORT: self.transport.abort}
        if self._place is not None:
            scope["extensions"][KEEP] = self._place.keep

    def timeout_keep_alive_handler(self) -> None:
        """Abort a connection that was idle for too long; closing would wait for a peer that does not read."""
        if not self.transport.is_closing():
            self.transport.abort()

    def _is_idle(self) -> bool:
        cycle = self.cycle
        return cycle is None or cycle.response_complete

    def _await_headers(self) -> None:
        self._awaited = self.loop.call_later(HEADER_TIMEOUT_S, self._headers_late)

    def _stop_waiting(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None

    def _headers_late(self) -> None:
        self._awaited = None
        if self._is_idle() and not self.transport.is_closing():
            self.transport.abort()
