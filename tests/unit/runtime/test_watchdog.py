"""A turn of the loop that takes too long is noted with the stack in which it was."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
import uvloop

from barnabas.runtime.watchdog import Watchdog

SLOW_MS = 60
ROUNDS = 50


@pytest.mark.parametrize(
    "factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_a_long_turn_is_noted_with_its_stack(
    factory: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    def stands_still() -> None:
        time.sleep(4 * SLOW_MS / 1000)

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
    assert noted[0].__dict__["took_ms"] >= SLOW_MS / 2
    assert "test_watchdog.py" in noted[0].__dict__["stack"]


def test_it_ends_while_the_loop_waits(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watchdog = Watchdog(asyncio.get_running_loop(), SLOW_MS)
        watchdog.start()
        await asyncio.sleep(0.05)
        watchdog.stop()
        assert not watchdog._thread.is_alive()

    asyncio.run(main())


def test_a_stop_that_falls_between_two_steps_of_the_thread_ends_it() -> None:
    """Seen once in a broker that never ended: the thread undid what `stop` had set, and waited for the loop."""

    async def run() -> bool:
        watchdog = Watchdog(asyncio.get_running_loop(), slow_ms=3)

        class Undone(threading.Event):
            def clear(self) -> None:
                watchdog._ends.set()
                self.set()
                super().clear()

        watchdog._answered = Undone()
        watchdog.start()
        deadline = time.monotonic() + 120
        while not watchdog._ends.is_set() and time.monotonic() < deadline:
            pass  # a long turn, for the thread to see
        watchdog._thread.join(5)
        return watchdog._thread.is_alive()

    assert asyncio.run(run()) is False
