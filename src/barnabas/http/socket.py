"""uvicorn's WebSocket, which holds its connection's place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

if TYPE_CHECKING:
    from barnabas.http.accepting import Place


class LimitedSocket(WSProtocol):
    """A connection that HTTP/1.1's upgrade has made a WebSocket's."""

    _place: Place | None = None

    def hold(self, place: Place | None) -> None:
        """Keep the place until the connection ends."""
        self._place = place
        if place is not None:
            place.keep()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        if self._place is not None:
            self._place.release()
        super().connection_lost(exc)
