"""Pacing of background work by bytes per second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Throttle:
    """Threads say what they have read and written; those that are ahead of the rate wait in the call."""

    def __init__(
        self,
        bytes_per_second: float,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = monotonic()

    def spend(self, count: int) -> None:
        """Accounts for `count` bytes; waits as long as they are ahead of the rate."""
        self.note(count)
        wait_s = self.ahead_s()
        if wait_s > 0.001:
            self._sleep(wait_s)

    def note(self, count: int) -> None:
        """Accounts for `count` bytes, for callers that wait in another way."""
        with self._lock:
            self._free_at = max(self._free_at, self._monotonic()) + count / self.bytes_per_second

    def ahead_s(self) -> float:
        """Seconds until what was accounted for is within the rate; 0 or less when it is."""
        with self._lock:
            return self._free_at - self._monotonic()

    def set_rate(self, bytes_per_second: float) -> None:
        """A new rate, also for what is ahead of the old one already."""
        with self._lock:
            now = self._monotonic()
            ahead = max(self._free_at - now, 0.0)
            self._free_at = now + ahead * self.bytes_per_second / bytes_per_second
            self.bytes_per_second = bytes_per_second
