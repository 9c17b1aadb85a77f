"""uvicorn's HTTP connection, with limits on what a peer can occupy before it has sent a request.

uvicorn closes a connection that is idle between two requests. But a peer that sends half a request line, or endless
headers, or does not read its answer, would keep a connection and its memory for ever. This class closes it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from barnabas.http.accepting import Place

HEADER_BYTES_MAX: Final = 64 << 10
HEADER_TIMEOUT_S: Final = 20.0
ABORT: Final = "barnabas.abort"
"""Key in the scope's extensions: a function that closes the connection at once and discards unwritten data."""
KEEP: Final = "barnabas.keep"
"""Key in the scope's extensions: a function by which the connection keeps its place, once its request is served."""


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's connection. The timer `_awaited` limits how long the headers of a request may take."""

    _awaited: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def __init__(self, *of_uvicorn: Any, place: Place | None = None, **more: Any) -> None:
        """place: the connection's place among those of the service."""
        super().__init__(*of_uvicorn, **more)
        self._place = place

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
        idle = self._is_idle()
        if idle:
            self._header_bytes += len(data)
        super().data_received(data)
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
