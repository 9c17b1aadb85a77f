"""A turn of the loop that takes too long is noted with the stack in which it was."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
import uvloop

from barnabas.runtime.watchdog import HELD_UP_FACTOR, LINES_MAX, QUIET_S, LogLimit, Watchdog, place_of

SLOW_MS = 60
ROUNDS = 50


@pytest.mark.parametrize(
    "factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_a_long_turn_is_noted_with_its_stack(
    factory: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    def stands_still() -> None:
        until_s = time.thread_time() + 4 * SLOW_MS / 1000
        while time.thread_time() < until_s:
            pass

    async def main() -> None:
        loop = asyncio.get_running_loop()
        watchdog = Watchdog(loop, SLOW_MS)
        watchdog.start()
        for _ in range(ROUNDS):  # on a busy machine the watching thread may not run in time
            loop.call_soon(stands_still)
            await asyncio.sleep(0.02)
            if any("stands_still" in record.__dict__["stack"] for record in caplog.records):
                break
        watchdog.stop()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
    noted = [record for record in caplog.records if "stands_still" in record.__dict__["stack"]]
    assert noted
    assert noted[0].__dict__["cpu_ms"] >= SLOW_MS / 2
    assert "test_watchdog.py" in noted[0].__dict__["stack"]


def test_a_turn_that_waits_for_the_processor_is_not_noted(caplog: pytest.LogCaptureFixture) -> None:
    """On a busy machine every turn takes long, and no stack explains that."""

    async def main() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), SLOW_MS)
        watchdog.start()
        for _ in range(5):
            asyncio.get_running_loop().call_soon(time.sleep, 3 * SLOW_MS / 1000)
            await asyncio.sleep(0.02)
        watchdog.stop()

    asyncio.run(main())
    assert not [record for record in caplog.records if "took long" in record.message]


def test_a_turn_that_waits_very_long_is_noted_as_held_up(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), slow_ms=9)
        watchdog.start()
        for _ in range(ROUNDS):
            asyncio.get_running_loop().call_soon(time.sleep, 2 * HELD_UP_FACTOR * 9 / 1000)
            await asyncio.sleep(0.02)
            if any("held up" in record.message for record in caplog.records):
                break
        watchdog.stop()

    asyncio.run(main())
    assert any("held up" in record.message for record in caplog.records)


def test_the_same_place_is_logged_once_a_minute_and_the_others_are_counted() -> None:
    limit = LogLimit()
    assert limit.take("encode < answer", 150, now_s=0.0) == {}
    assert limit.take("encode < answer", 170, now_s=1.0) is None
    assert limit.take("encode < answer", 300, now_s=2.0) is None
    assert limit.take("decode < read", 200, now_s=3.0) == {"not_logged": 2, "longest_not_logged_ms": 300}
    assert limit.take("encode < answer", 150, now_s=QUIET_S) == {}
    lines = [limit.take(f"place {number}", 100, now_s=QUIET_S + 1) for number in range(100)]
    assert sum(line is not None for line in lines) == LINES_MAX - 2


def test_the_line_of_a_function_does_not_make_it_another_place() -> None:
    assert place_of("walk (a.py:10) < run (b.py:3) < c (d.py:1) < e (f.py:2)") == place_of(
        "walk (a.py:12) < run (b.py:4) < c (d.py:9) < g (f.py:2)"
    )


def test_it_ends_while_the_loop_waits(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), SLOW_MS)
        watchdog.start()
        await asyncio.sleep(0.05)
        watchdog.stop()
        assert not watchdog.thread.is_alive()

    asyncio.run(main())


def test_a_stop_that_falls_between_two_steps_of_the_thread_ends_it() -> None:
    """Seen once in a broker that never ended: the thread undid what `stop` had set, and waited for the loop."""

    async def run() -> bool:
        watchdog = Watchdog(asyncio.get_running_loop(), slow_ms=3)

        class Undone(threading.Event):
            def clear(self) -> None:
                watchdog.ends.set()
                self.set()
                super().clear()

        watchdog.answered = Undone()
        watchdog.start()
        deadline = time.monotonic() + 120
        while not watchdog.ends.is_set() and time.monotonic() < deadline:
            pass  # a long turn, for the thread to see
        watchdog.thread.join(5)
        return watchdog.thread.is_alive()

    assert asyncio.run(run()) is False
