"""Keeps what is slow to read for some seconds, and reads it again while the old value is still served."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")
log = logging.getLogger("barnabas.console")


class Kept(Generic[T]):
    """A value that is read when it is asked for.

    Younger than fresh_s, it is served as it is. Until stale_s it is served too, while it is read again in the background.
    Older ones are waited for. Callers who wait share one reading. failure: of the last reading, None if it went well.
    """

    def __init__(self, read: Callable[[], Awaitable[T]], fresh_s: float, stale_s: float) -> None:
        self._read = read
        self._fresh_s = fresh_s
        self._stale_s = stale_s
        self._value: T | None = None
        self._read_at_s: float | None = None
        self._reading: asyncio.Task[T] | None = None
        self.failure: Exception | None = None

    @property
    def age_s(self) -> float:
        """Seconds since the value was read; 0 if there is none."""
        return 0.0 if self._read_at_s is None else time.monotonic() - self._read_at_s

    async def get(self) -> T:
        """The value. Raises what reading raises."""
        if self._read_at_s is not None and self.age_s < self._stale_s:
            value: T = self._value  # type: ignore[assignment]
            if self.age_s >= self._fresh_s:
                self._begin()
            return value
        return await asyncio.shield(self._begin())

    def drop(self) -> None:
        """Something was changed: the next caller waits for a new value."""
        self._read_at_s = None
        self._reading = None

    def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()

    def _begin(self) -> asyncio.Task[T]:
        if self._reading is None:
            self._reading = asyncio.create_task(self._renew())
            self._reading.add_done_callback(_note_failure)
        return self._reading

    async def _renew(self) -> T:
        task = asyncio.current_task()
        try:
            value = await self._read()
            # After `drop` another reading may have begun; what this one has read is too old then.
            if self._reading is task:
                self._value, self._read_at_s, self.failure = value, time.monotonic(), None
            return value
        except Exception as error:
            self.failure = error
            raise
        finally:
            if self._reading is task:
                self._reading = None


def _note_failure(task: asyncio.Task[T]) -> None:
    """Whoever waits gets the error; if nobody does, it is only worth a line for debugging."""
    if not task.cancelled() and task.exception() is not None:
        log.debug("reading failed", extra={"reason": str(task.exception())})
