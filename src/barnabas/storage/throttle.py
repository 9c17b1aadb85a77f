"""Limits background work to a number of bytes per second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Throttle:
    """Threads report the bytes that they have read and written; the call waits if they are above the rate."""

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
        """Count `count` bytes, and wait while the total is above the rate."""
        self.note(count)
        wait_s = self.ahead_s()
        if wait_s > 0.001:
            self._sleep(wait_s)

    def note(self, count: int) -> None:
        """Count `count` bytes without waiting, for callers that wait in another way."""
        with self._lock:
            self._free_at = max(self._free_at, self._monotonic()) + count / self.bytes_per_second

    def ahead_s(self) -> float:
        """Seconds until the counted bytes are within the rate; 0 or less if they are."""
        with self._lock:
            return self._free_at - self._monotonic()

    def set_rate(self, bytes_per_second: float) -> None:
        """Set a new rate, which also applies to bytes counted before."""
        with self._lock:
            now = self._monotonic()
            ahead = max(self._free_at - now, 0.0)
            self._free_at = now + ahead * self.bytes_per_second / bytes_per_second
            self.bytes_per_second = bytes_per_second
