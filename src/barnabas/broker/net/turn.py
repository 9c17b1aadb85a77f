"""The end of a turn of the loop: first the fetches that wait for records are woken, then every connection writes once.

Readable connections are handled one after the other. Their appends are written at once, but their answers are only
queued. Afterwards waiting fetches look again, and then each connection with queued answers writes them in one piece. This
order makes sure that an acknowledgement is sent after the write that it confirms.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

log = logging.getLogger("barnabas.turn")

BUG: Final = "the end of a turn met a bug; everything else of the turn goes on"


class Wakeable(Protocol):
    """A partition, which fetches wait for."""

    def wake_waiters(self) -> None:
        """Make everything that waits look again."""


class Flushable(Protocol):
    """A connection, which queues answers during a turn."""

    def flush(self) -> None:
        """Write what is queued."""


class Turn:
    """One event loop, and what has to be done at the end of its current turn."""

    __slots__ = ("_ends", "_to_flush", "_to_wake", "large_bytes", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._to_flush: list[Flushable] = []
        self._to_wake: dict[Wakeable, None] = {}
        self._ends = False
        self.large_bytes = 0
        """How much of large slices of the log the loop has sent since the last turn began to end."""

    def to_flush(self, connection: Flushable) -> None:
        """Call `connection.flush()` at the end of this turn."""
        self._to_flush.append(connection)
        if not self._ends:
            self._end_soon()

    def to_wake(self, partition: Wakeable) -> None:
        """Call `partition.wake_waiters()` at the end of this turn, for the fetches that wait on it."""
        self._to_wake[partition] = None
        if not self._ends:
            self._end_soon()

    def _end_soon(self) -> None:
        self._ends = True
        self.loop.call_soon(self._end)

    def _end(self) -> None:
        """Wake and flush; an exception in one partition or connection affects no other."""
        self.large_bytes = 0
        if self._to_wake:
            woken, self._to_wake = self._to_wake, {}
            for partition in woken:
                try:
                    partition.wake_waiters()
                except Exception:
                    log.exception(BUG, extra={"waking": str(partition)})
        flushed, self._to_flush = self._to_flush, []
        self._ends = False
        if self._to_wake:  # a woken waiter may have appended, and so woken others
            self._end_soon()
        for connection in flushed:
            try:
                connection.flush()
            except Exception:
                log.exception(BUG, extra={"flushing": str(connection)})
