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
        with self._lock:
            now = self._monotonic()
            self._free_at = max(self._free_at, now) + count / self.bytes_per_second
            wait = self._free_at - now
        if wait > 0.001:
            self._sleep(wait)
