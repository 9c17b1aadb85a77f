"""Runs long work on the event loop in pieces, with requests in between, so that no turn of the loop takes long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

from barnabas.runtime.clock import Clock

T = TypeVar("T")
R = TypeVar("R")

TURN_MS_MAX: Final = 5.0
"""How long the pieces of one turn may take together; only the last one may exceed it."""
ROWS_PER_LOOK: Final = 200
"""After how many rows of a long list the clock is looked at; each may take some ten microseconds."""


class Pace:
    """Makes room for other work between the steps of a long coroutine:

    pace = Pace(clock)
    for group in groups:
        await pace.rest()
        ...
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turn_ends_ms = clock.monotonic_ms() + TURN_MS_MAX

    async def rest(self) -> None:
        """Continue in a later turn of the loop if this one has been long."""
        if self._clock.monotonic_ms() >= self._turn_ends_ms:
            await asyncio.sleep(0)
            self._turn_ends_ms = self._clock.monotonic_ms() + TURN_MS_MAX

    async def pieces(self, rows: Iterable[T], count: int = ROWS_PER_LOOK) -> AsyncIterator[tuple[T, ...]]:
        """The rows, `count` at a time, with a rest after each piece."""
        left = iter(rows)
        while piece := tuple(islice(left, count)):
            yield piece
            await self.rest()

    async def map(self, make: Callable[[T], R], rows: Iterable[T]) -> list[R]:
        """What `make` makes of each row, with rests in between."""
        made_rows: list[R] = []
        async for piece in self.pieces(rows):
            made_rows += map(make, piece)
        return made_rows


def in_pieces(
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    pieces: Iterator[object],
    turn_ms_max: float | None = None,
) -> asyncio.Future[None]:
    """Run a generator to its end: as much as one turn allows now, the rest in later turns. The future gets its exception.

    Work that fits into one turn is done when this returns. turn_ms_max: default TURN_MS_MAX.
    """
    longest_ms = TURN_MS_MAX if turn_ms_max is None else turn_ms_max
    done: asyncio.Future[None] = loop.create_future()

    def go_on() -> None:
        if done.done():  # cancelled
            return
        begun_ms = clock.monotonic_ms()
        try:
            for _ in pieces:
                if clock.monotonic_ms() - begun_ms >= longest_ms:
                    loop.call_soon(go_on)
                    return
        except Exception as error:
            done.set_exception(error)
            return
        done.set_result(None)

    go_on()
    return done
