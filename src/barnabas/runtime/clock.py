"""The clock, passed as an object: production reads the machine's clock, tests set their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch: used in records and znodes."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds of a clock that never goes back: used for time-outs."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000


class ManualClock:
    """A clock that moves only when it is moved."""

    def __init__(self, now_ms: int = 1_600_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._elapsed_ms

    def advance(self, by_ms: int) -> None:
        """Let time pass."""
        assert by_ms >= 0
        self._now_ms += by_ms
        self._elapsed_ms += by_ms

    def step(self, by_ms: int) -> None:
        """Set the wall clock forward or (below 0) back, as an administrator or NTP does; no time passes."""
        self._now_ms += by_ms
