"""Keyed timers on a clock that the test moves."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Hashable

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from barnabas.runtime.clock import ManualClock, SystemClock
from barnabas.runtime.timers import LATE_MS, KeyedTimers

HOUR_MS = 3_600_000


def fired_by(steps: list[tuple[str, int, int]]) -> tuple[list[Hashable], list[Hashable]]:
    """(what fired, what a dictionary of deadlines says should have) after (action, key, ms) steps."""
    loop = asyncio.new_event_loop()
    clock = ManualClock(now_ms=0)
    fired: list[Hashable] = []
    timers = KeyedTimers(loop, clock, fired.append)
    expected: list[Hashable] = []
    deadlines: dict[int, tuple[int, int]] = {}
    for serial, (action, key, ms) in enumerate(steps):
        if action == "set":
            timers.set(key, clock.now_ms() + ms)
            deadlines[key] = (clock.now_ms() + ms, serial)
        elif action == "cancel":
            timers.cancel(key)
            deadlines.pop(key, None)
        else:
            clock.advance(ms)
            timers.poll()
            due = sorted((when, key) for key, when in deadlines.items() if when[0] <= clock.now_ms())
            expected += [key for _, key in due]
            for _, key in due:
                del deadlines[key]
    timers.close()
    loop.close()
    return fired, expected


def test_a_moved_timer_fires_once_at_its_new_time() -> None:
    fired, _ = fired_by([("set", 1, 10), ("set", 1, 30), ("wait", 0, 20), ("wait", 0, 20)])
    assert fired == [1]


def test_a_cancelled_timer_stays_silent() -> None:
    fired, _ = fired_by([("set", 1, 10), ("cancel", 1, 0), ("wait", 0, 50)])
    assert fired == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "cancel", "wait"]), st.integers(0, 4), st.integers(0, 50)),
        max_size=40,
    )
)
def test_timers_equal_a_dictionary_of_deadlines(steps: list[tuple[str, int, int]]) -> None:
    fired, expected = fired_by(steps)
    assert fired == expected


def test_the_loop_fires_without_being_polled() -> None:
    from barnabas.runtime.clock import SystemClock

    async def main() -> list[Hashable]:
        fired: list[Hashable] = []
        done = asyncio.Event()

        def fire(key: Hashable) -> None:
            fired.append(key)
            if len(fired) == 2:
                done.set()

        clock = SystemClock()
        timers = KeyedTimers(asyncio.get_running_loop(), clock, fire)
        timers.set("late", clock.now_ms() + 30)
        timers.set("early", clock.now_ms() + 5)
        await asyncio.wait_for(done.wait(), 10)
        return fired

    assert asyncio.run(main()) == ["early", "late"]


def test_a_loop_that_did_not_run_reads_its_sockets_before_its_timers_fire() -> None:
    """What arrived meanwhile may move a timer that is overdue; nobody moved the other one."""

    async def run() -> list[Hashable]:
        loop, clock = asyncio.get_running_loop(), SystemClock()
        fired: list[Hashable] = []
        over = asyncio.Event()
        timers = KeyedTimers(loop, clock, lambda key: (fired.append(key), loop.call_later(0.05, over.set)))
        mine, theirs = socket.socketpair()
        due_ms = clock.now_ms() + 20
        timers.set("beats", due_ms)
        timers.set("silent", due_ms)

        def read() -> None:
            mine.recv(100)
            loop.call_soon(timers.set, "beats", clock.now_ms() + 60_000)  # requests are handled in tasks

        loop.add_reader(mine, read)
        theirs.send(b"heartbeat")
        time.sleep((20 + LATE_MS + 100) / 1000)  # noqa: ASYNC251 - the loop stands still
        await over.wait()
        loop.remove_reader(mine)
        timers.close()
        mine.close()
        theirs.close()
        return fired

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(run()) == ["silent"]


def test_the_wall_clock_may_be_put_back_and_forward_while_timers_wait() -> None:
    loop, clock = asyncio.new_event_loop(), ManualClock()
    fired: list[Hashable] = []
    timers = KeyedTimers(loop, clock, fired.append)
    timers.set("second", clock.now_ms() + 1_000)
    clock.step(-HOUR_MS)
    clock.advance(999)
    timers.poll()
    assert fired == []
    clock.advance(1)
    timers.poll()
    assert fired == ["second"]
    timers.set("session", clock.now_ms() + 45_000)
    clock.step(HOUR_MS)
    timers.poll()
    clock.advance(44_999)
    timers.poll()
    assert fired == ["second"]
    clock.advance(1)
    timers.poll()
    assert fired == ["second", "session"]
    timers.close()
    loop.close()


def test_what_one_timer_raises_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    loop, clock = asyncio.new_event_loop(), ManualClock()
    fired: list[Hashable] = []

    def fire(key: Hashable) -> None:
        if key == "broken":
            raise RuntimeError("injected")
        fired.append(key)

    timers = KeyedTimers(loop, clock, fire)
    for number, key in enumerate(("early", "broken", "late")):
        timers.set_after(key, number)
    clock.advance(10)
    timers.poll()
    assert fired == ["early", "late"]
    assert [record.message for record in caplog.records] == ["a timer met a bug; the others go on"]
    timers.set_after("again", 5)
    clock.advance(5)
    timers.poll()
    assert fired == ["early", "late", "again"]
    timers.close()
    loop.close()
