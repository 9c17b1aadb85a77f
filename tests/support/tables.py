"""A table of names and numbers over a compacted topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

DEADLINE_S = 60.0


async def eventually(is_so: Callable[[], bool]) -> None:
    """Wait until something is so. Raises TimeoutError."""
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():  # noqa: ASYNC110 (nobody tells us)
            await asyncio.sleep(0.02)


class Numbers:
    """Names and numbers as texts; see Codec."""

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[str, int | None]:
        return (key or b"").decode(), None if value is None else int(value)

    def encode(self, key: str, value: int | None) -> tuple[bytes, bytes | None]:
        return key.encode(), None if value is None else str(value).encode()
