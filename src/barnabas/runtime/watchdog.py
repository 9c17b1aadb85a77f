"""Logs turns of an event loop that take too long, with the stack in which the time was spent.

A thread looks from time to time at what the loop's thread is doing. If it is waiting, as most of the time, nothing more is
done; otherwise the thread asks the loop for an answer. If the loop's thread used much CPU time until then, one line with
the duration and the observed stack is logged. This costs an idle broker a few looks per second, and a busy one a few
answers more.

What counts is the CPU time of the loop's thread: on a busy machine, a turn takes long because other processes run, and no
stack would explain that. Only a turn of a second and more (`HELD_UP_FACTOR`) is logged without CPU time: the loop waited,
for a disk perhaps, or for the processor.
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
HELD_UP_FACTOR: Final = 20
"""A turn that takes this many times as long as a slow one is logged even if the loop's thread used no CPU time."""
QUIET_S: Final = 60.0
"""For how long the same place of the code is not logged again."""
LINES_MAX: Final = 20
"""How many lines are logged in `QUIET_S` at most, whatever the places are."""
FRAMES_MAX: Final = 12
WAITING: Final = ("asyncio/runners.py", "asyncio/base_events.py", "selectors.py")
"""The innermost Python frame while a loop waits: uvloop's own frames are not Python."""


class LogLimit:
    """Which slow turns are logged: each place once in `QUIET_S`, `LINES_MAX` lines altogether. The others are counted."""

    def __init__(self) -> None:
        self._logged_s: dict[str, float] = {}
        self._unlogged = 0
        self._unlogged_ms_max = 0

    def take(self, place: str, took_ms: int, now_s: float) -> dict[str, int] | None:
        """What to add to the line about a turn: how many were not logged since the last line. None: do not log it."""
        self._logged_s = {name: s for name, s in self._logged_s.items() if now_s - s < QUIET_S}
        if place in self._logged_s or len(self._logged_s) >= LINES_MAX:
            self._unlogged += 1
            self._unlogged_ms_max = max(self._unlogged_ms_max, took_ms)
            return None
        self._logged_s[place] = now_s
        more = {}
        if self._unlogged:
            more = {"not_logged": self._unlogged, "longest_not_logged_ms": self._unlogged_ms_max}
        self._unlogged = self._unlogged_ms_max = 0
        return more


class Watchdog:
    """Watches one loop. A turn that uses at least `slow_ms` of CPU time is noticed; turns of two thirds of that may be."""

    def __init__(self, loop: asyncio.AbstractEventLoop, slow_ms: float = SLOW_TURN_MS) -> None:
        self._loop = loop
        # The beginning of a turn is not known, only when it was first seen: at most a third of `slow_ms` later.
        self._look_s = slow_ms / 3000
        self._noted_from_s = 2 * self._look_s
        self._held_up_from_s = HELD_UP_FACTOR * slow_ms / 1000
        self._limit = LogLimit()
        self.answered = threading.Event()
        self._answered_s = self._answered_cpu_s = 0.0
        self._cpu_clock = 0
        self._watched = 0
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start watching; must be called in the loop's own thread."""
        self._watched = threading.get_ident()
        self._cpu_clock = time.pthread_getcpuclockid(self._watched)
        self.thread.start()

    def stop(self) -> None:
        """End the thread."""
        self.ends.set()
        self.answered.set()
        self.thread.join()

    def _watch(self) -> None:
        cpu_clock = self._cpu_clock
        while not self.ends.wait(self._look_s):
            frame = sys._current_frames().get(self._watched)
            if frame is None or frame.f_code.co_filename.endswith(WAITING):
                continue
            stack = stack_of(frame)
            del frame  # it would keep the function's objects alive
            seen_s, seen_cpu_s = time.monotonic(), time.clock_gettime(cpu_clock)
            self.answered.clear()
            # `stop` sets `_ends` first and then `_answered`. If `_ends` is set here, `stop` was called before the line above
            # cleared `_answered`, and the loop, which waits for this thread, would never answer.
            if self.ends.is_set():
                return
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop has ended
                return
            self.answered.wait()
            if not self.ends.is_set():
                self._judge(self._answered_s - seen_s, self._answered_cpu_s - seen_cpu_s, stack)

    def _judge(self, took_s: float, cpu_s: float, stack: str) -> None:
        """Log a turn if it was slow, and not logged just before."""
        took_ms, cpu_ms = round(took_s * 1000), round(cpu_s * 1000)
        if cpu_s >= self._noted_from_s:
            text, ms = "a turn of the loop took long; nobody was served meanwhile", cpu_ms
        elif took_s >= self._held_up_from_s:
            text, ms = "a turn of the loop was held up; nobody was served meanwhile", took_ms
        else:
            return
        more = self._limit.take(place_of(stack), ms, time.monotonic())
        if more is not None:
            log.warning(text, extra={"took_ms": took_ms, "cpu_ms": cpu_ms, "stack": stack, **more})

    def _answer(self) -> None:
        self._answered_s = time.monotonic()
        self._answered_cpu_s = time.clock_gettime(self._cpu_clock)
        self.answered.set()


def place_of(stack: str) -> str:
    """The names of the innermost functions of a stack: two turns with the same names count as the same."""
    return " < ".join(frame.partition(":")[0] for frame in stack.split(" < ")[:3])


def stack_of(frame: FrameType | None) -> str:
    """The innermost frames of a stack on one line, innermost first."""
    places: list[str] = []
    while frame is not None and len(places) < FRAMES_MAX:
        code = frame.f_code
        places.append(f"{code.co_name} ({PurePath(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(places)
