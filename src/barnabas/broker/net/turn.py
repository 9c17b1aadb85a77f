"""The end of a turn of the loop: first whoever waits for records is woken, then every connection writes once.

Connections that became readable are handled one after another and their appends are written; what they answer
is only queued. When all of them had their turn, waiting fetches look again, and then each connection that has
something to say writes it in one piece. That order is what makes an acknowledgement follow the write it confirms.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

log = logging.getLogger("barnabas.turn")

BUG: Final = "the end of a turn met a bug; everything else of the turn goes on"


class Wakeable(Protocol):
    """What others wait for: a partition."""

    def wake_waiters(self) -> None:
        """Have everybody who waits look again."""


class Flushable(Protocol):
    """What collects answers during a turn: a connection."""

    def flush(self) -> None:
        """Write what is queued."""


class Turn:
    """One event loop, and what is to be done when its present turn ends."""

    __slots__ = ("_ends", "_to_flush", "_to_wake", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._to_flush: list[Flushable] = []
        self._to_wake: dict[Wakeable, None] = {}
        self._ends = False

    def to_flush(self, connection: Flushable) -> None:
        """`connection` has queued something to write."""
        self._to_flush.append(connection)
        if not self._ends:
            self._end_soon()

    def to_wake(self, partition: Wakeable) -> None:
        """`partition` has something new for the fetches that wait on it."""
        self._to_wake[partition] = None
        if not self._ends:
            self._end_soon()

    def _end_soon(self) -> None:
        self._ends = True
        self.loop.call_soon(self._end)

    def _end(self) -> None:
        """Wake and flush; what one partition or connection raises costs nobody else anything."""
        if self._to_wake:
            woken, self._to_wake = self._to_wake, {}
            for partition in woken:
                try:
                    partition.wake_waiters()
                except Exception:
                    log.exception(BUG, extra={"waking": str(partition)})
        flushed, self._to_flush = self._to_flush, []
        self._ends = False
        if self._to_wake:  # a waiter that took what it found may have written, and so woken others
            self._end_soon()
        for connection in flushed:
            try:
                connection.flush()
            except Exception:
                log.exception(BUG, extra={"flushing": str(connection)})
