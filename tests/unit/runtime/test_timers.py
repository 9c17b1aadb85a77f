"""Keyed timers on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from barnabas.runtime.clock import ManualClock
from barnabas.runtime.timers import KeyedTimers


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
