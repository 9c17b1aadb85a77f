"""How long the turns of an event loop are, and how much of its time it uses the processor: a sample, which costs nothing.

Ten times a second, two callbacks are scheduled one after the other; the loop runs the second one a turn after the first.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final

from barnabas.runtime.timing import Histogram, now_us

LOOK_S: Final = 0.1
WINDOW_S_MIN: Final = 1.0


class Turns:
    """Watches one loop between `start` and `stop`. lengths: of turns, in µs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.lengths = Histogram()
        self.started_ms = int(time.time() * 1000)
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._begun_us = 0
        self._cpu_clock = 0
        self._window = self._before = (0.0, 0.0)

    def start(self) -> None:
        """Start watching; must be called in the loop's own thread."""
        self._cpu_clock = time.pthread_getcpuclockid(threading.get_ident())
        self._window = self._before = self._now()
        self._look()

    def stop(self) -> None:
        """End watching."""
        if self._timer is not None:
            self._timer.cancel()

    def idle_share(self) -> float:
        """The share of time, from 0 to 1, in which the loop's thread used no processor, of the last second or longer."""
        now = self._now()
        if now[0] - self._window[0] >= WINDOW_S_MIN:
            self._before, self._window = self._window, now
        took_s, used_s = now[0] - self._before[0], now[1] - self._before[1]
        return 1.0 if took_s <= 0 else min(max(1 - used_s / took_s, 0.0), 1.0)

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), time.clock_gettime(self._cpu_clock)

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._begun_us = now_us()
        self._loop.call_soon(self._end)

    def _end(self) -> None:
        self.lengths.add(now_us() - self._begun_us)
