"""Logs turns of an event loop that take too long, with the stack in which the time was spent.

A thread looks from time to time at what the loop's thread is doing. If it is waiting, as most of the time, nothing more is
done; otherwise the thread asks the loop for an answer. If that comes late, one line with the duration and the observed stack
is logged. This costs an idle broker a few looks per second, and a busy one a few answers more.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from pathlib import PurePath
from types import FrameType
from typing import Final

log = logging.getLogger("barnabas.watchdog")

SLOW_TURN_MS: Final = 100
FRAMES_MAX: Final = 12
WAITING: Final = ("asyncio/runners.py", "asyncio/base_events.py", "selectors.py")
"""The innermost Python frame while a loop waits: uvloop's own frames are not Python."""


class Watchdog:
    """Watches one loop. Every turn of at least `slow_ms` is logged once; turns of two thirds of that may be."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slow_ms: float = SLOW_TURN_MS) -> None:
        self._loop = loop
        # The beginning of a turn is not known, only when it was first seen: at most a third of `slow_ms` later.
        self._look_s = slow_ms / 3000
        self._noted_from_s = 2 * self._look_s
        self._answered = threading.Event()
        self._answered_s = 0.0
        self._watched = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start watching; must be called in the loop's own thread."""
        self._watched = threading.get_ident()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._ends.set()
        self._answered.set()
        self._thread.join()

    def _watch(self) -> None:
        cpu_clock = time.pthread_getcpuclockid(self._watched)
        while not self._ends.wait(self._look_s):
            frame = sys._current_frames().get(self._watched)
            if frame is None or frame.f_code.co_filename.endswith(WAITING):
                continue
            stack = stack_of(frame)
            del frame  # it would keep the function's objects alive
            seen_s, seen_cpu_s = time.monotonic(), time.clock_gettime(cpu_clock)
            self._answered.clear()
            # `stop` sets `_ends` first and then `_answered`. If `_ends` is set here, `stop` was called before the line above
            # cleared `_answered`, and the loop, which waits for this thread, would never answer.
            if self._ends.is_set():
                return
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop has ended
                return
            self._answered.wait()
            took_s = self._answered_s - seen_s
            if took_s >= self._noted_from_s and not self._ends.is_set():
                cpu_s = time.clock_gettime(cpu_clock) - seen_cpu_s
                extra = {"took_ms": round(took_s * 1000), "cpu_ms": round(cpu_s * 1000), "stack": stack}
                log.warning("a turn of the loop took long; nobody was served meanwhile", extra=extra)

    def _answer(self) -> None:
        self._answered_s = time.monotonic()
        self._answered.set()


def stack_of(frame: FrameType | None) -> str:
    """The innermost frames of a stack on one line, innermost first."""
    places: list[str] = []
    while frame is not None and len(places) < FRAMES_MAX:
        code = frame.f_code
        places.append(f"{code.co_name} ({PurePath(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places)
