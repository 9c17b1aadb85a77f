"""An answer that is written while the request is still being read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class DuplexResponse(Response):
    """Sends pieces as they are made. Starlette's StreamingResponse reads the request itself, to notice a disconnect."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], media_type: str, read_s: float) -> None:
        """read_s: how long a peer may take to read a piece before its connection is closed."""
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._pieces = pieces
        self._read_s = read_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for piece in self._pieces:
                async with asyncio.timeout(self._read_s):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self._pieces.aclose()
