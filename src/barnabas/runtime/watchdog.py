"""Notes turns of an event loop that take too long, with the stack in which the time went.

A thread looks now and then what the loop's thread is doing. Most of the time that is waiting, and nothing more is done;
else the thread asks the loop for a sign of life. When that comes late, one line goes to the log with the duration and the
stack that was seen. An idle broker pays a few looks a second for it, a busy one a few signs more.
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
"""Where the innermost Python frame lies while a loop waits: uvloop's own is not Python."""


class Watchdog:
    """Watches one loop. Every turn from `slow_ms` on is noted once; shorter ones from two thirds of it on may be."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slow_ms: float = SLOW_TURN_MS) -> None:
        self._loop = loop
        # When a turn began is not known, only when it was seen first: within a third of `slow_ms`.
        self._look_s = slow_ms / 3000
        self._noted_from_s = 2 * self._look_s
        self._answered = threading.Event()
        self._answered_s = 0.0
        self._watched = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to watch; call it in the loop's own thread."""
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
            del frame  # it keeps everything alive that the function works on
            seen_s, seen_cpu_s = time.monotonic(), time.clock_gettime(cpu_clock)
            self._answered.clear()
            # `stop` sets `_ends` first and `_answered` then: seen here, it was called before the line above undid
            # the latter, and the loop, which waits for this thread, would never answer.
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
    """The innermost frames of a stack on one line, where the time goes first."""
    places: list[str] = []
    while frame is not None and len(places) < FRAMES_MAX:
        code = frame.f_code
        places.append(f"{code.co_name} ({PurePath(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places)
