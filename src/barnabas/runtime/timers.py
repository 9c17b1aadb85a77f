"""Keyed timers on the event loop: setting a key again moves it, and a cancelled key never fires."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable
from typing import Final

from barnabas.runtime.clock import Clock

LATE_MS: Final = 250
CATCH_UP_MS_MAX: Final = 2_000
CATCH_UPS_MAX: Final = 5


class KeyedTimers:
    """One heap and one loop handle for any number of timers.

    A key is set, moved and cancelled in O(log n); entries that were moved or cancelled stay in the heap
    until they surface, where they are recognised by their deadline and dropped.

    A loop that did not run for a while (a stopped or starved process, a laptop that slept) comes to its timers
    before the requests that arrived meanwhile are carried out: every session of every group would end at once,
    although the heartbeats that say otherwise are there. So whoever wakes up late lets the loop run for a while
    first, and fires what is still due then.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, fire: Callable[[Hashable], None]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._fire = fire
        self._deadline_ms: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._serial = 0
        self._handle: asyncio.TimerHandle | None = None
        self._armed_for_ms = 0
        self._catch_ups = 0

    def set(self, key: Hashable, deadline_ms: int) -> None:
        """Fire `key` once at wall-clock `deadline_ms`; replaces an earlier deadline of the same key."""
        self._deadline_ms[key] = deadline_ms
        self._serial += 1
        heapq.heappush(self._heap, (deadline_ms, self._serial, key))
        if self._handle is None or deadline_ms < self._armed_for_ms:
            self._arm()

    def cancel(self, key: Hashable) -> None:
        self._deadline_ms.pop(key, None)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._deadline_ms.clear()
        self._heap.clear()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._heap and self._deadline_ms.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap:
            self._armed_for_ms = self._heap[0][0]
            delay_s = max(0, self._armed_for_ms - self._clock.now_ms()) / 1000
            self._handle = self._loop.call_later(delay_s, self._wake)

    def _wake(self) -> None:
        late_ms = self._clock.now_ms() - self._armed_for_ms
        if late_ms <= LATE_MS or self._catch_ups >= CATCH_UPS_MAX:
            self._catch_ups = 0
            self.poll()
            return
        self._catch_ups += 1
        wait_ms = min(late_ms, CATCH_UP_MS_MAX)
        self._armed_for_ms = self._clock.now_ms() + wait_ms
        self._handle = self._loop.call_later(wait_ms / 1000, self._wake)

    def poll(self) -> None:
        """Fire everything that is due; tests call it after they moved the clock."""
        now_ms = self._clock.now_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            deadline_ms, _, key = heapq.heappop(self._heap)
            if self._deadline_ms.get(key) == deadline_ms:
                del self._deadline_ms[key]
                self._fire(key)
        self._arm()
