"""Keyed timers on the event loop: setting a key again moves its timer, and a cancelled key never fires."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Hashable
from typing import Final

from barnabas.runtime.clock import Clock

log = logging.getLogger("barnabas.timers")

LATE_MS: Final = 250
CATCH_UP_MS_MAX: Final = 2_000
CATCH_UPS_MAX: Final = 5


class KeyedTimers:
    """One heap and one loop handle for any number of timers.

    Time is measured by the monotonic clock. A wall-clock deadline is converted to a delay once, when it is set: if the wall
    clock is set back an hour afterwards, no timer waits an hour longer, and if it is set forward, no session ends. So the
    owner of the deadline must trust the timer, and not compare the deadline with the wall clock again.

    A key is set, moved and cancelled in O(log n); entries that were moved or cancelled stay in the heap until they reach its
    top, where they are recognized by their serial number and dropped.

    After the loop has not run for a while (a stopped or starved process), it would run its timers before the requests that
    have arrived meanwhile: all sessions of all groups would end at once, although the heartbeats that keep them alive are
    waiting. So a timer that wakes up late lets the loop run for a while first, and then fires what is still due.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, fire: Callable[[Hashable], None]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._fire = fire
        self._current: dict[Hashable, int] = {}
        """The serial number of each key's latest setting."""
        self._heap: list[tuple[float, int, Hashable]] = []
        self._serial = 0
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for_ms = 0.0
        self._catch_ups = 0

    def set(self, key: Hashable, deadline_ms: int) -> None:
        """Fire `key` once, after the time from now to the wall-clock `deadline_ms`; replaces an earlier setting."""
        self.set_after(key, deadline_ms - self._clock.now_ms())

    def set_after(self, key: Hashable, delay_ms: float) -> None:
        """Fire `key` once after `delay_ms`; replaces an earlier setting."""
        due_ms = self._clock.monotonic_ms() + max(delay_ms, 0)
        self._serial += 1
        self._current[key] = self._serial
        heapq.heappush(self._heap, (due_ms, self._serial, key))
        if self._handle is None or due_ms < self._armed_for_ms:
            self._arm()

    def cancel(self, key: Hashable) -> None:
        """Make sure that `key` does not fire any more."""
        self._current.pop(key, None)

    def close(self) -> None:
        """Stop all timers."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._current.clear()
        self._heap.clear()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._heap and self._current.get(self._heap[0][2]) != self._heap[0][1]:
            heapq.heappop(self._heap)
        if self._heap:
            self._armed_for_ms = self._heap[0][0]
            delay_s = max(0.0, self._armed_for_ms - self._clock.monotonic_ms()) / 1000
            self._handle = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        late_ms = self._clock.monotonic_ms() - self._armed_for_ms
        if late_ms <= LATE_MS or self._catch_ups >= CATCH_UPS_MAX:
            self._catch_ups = 0
            self.poll()
            return
        self._catch_ups += 1
        wait_ms = min(late_ms, CATCH_UP_MS_MAX)
        self._armed_for_ms = self._clock.monotonic_ms() + wait_ms
        self._handle = self._loop.call_later(wait_ms / 1000, self._wake)

    def poll(self) -> None:
        """Fire everything that is due; tests call it after they have moved the clock.

        An exception in a callback is logged and does not affect other timers.
        """
        now_ms = self._clock.monotonic_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            _, serial, key = heapq.heappop(self._heap)
            if self._current.get(key) != serial:
                continue
            del self._current[key]
            try:
                self._fire(key)
            except Exception:
                log.exception("a timer met a bug; the others go on", extra={"timer": str(key)})
        self._arm()
