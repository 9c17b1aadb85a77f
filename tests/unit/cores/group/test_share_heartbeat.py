"""States that the share coordinator was asked for: again after the retry interval, whatever the wall clock does."""

from __future__ import annotations

from barnabas.cores.group import InitializeShareState, TimerFired
from barnabas.cores.group.share.events import ShareHeartbeat
from tests.scenarios.group.driver import Driver

DAY_MS = 86_400_000


def asked(driver: Driver) -> int:
    """How often states have been asked for."""
    return sum(isinstance(effect, InitializeShareState) for effect in driver.effects)


def heartbeat(driver: Driver, epoch: int) -> None:
    topics = frozenset(("t",)) if epoch == 0 else None
    driver.step(ShareHeartbeat("token", driver.now_ms, "g", "member", epoch, topics=topics))
    driver.take_replies()


def test_the_wall_clock_decides_nothing() -> None:
    driver = Driver()
    driver.set_topics(t=2)
    heartbeat(driver, 0)
    assert asked(driver) == 1
    for by_ms in (DAY_MS, -2 * DAY_MS):  # no time passes: no timer fires
        driver.now_ms += by_ms
        heartbeat(driver, 1)
        assert asked(driver) == 1
    (key,) = [key for key in driver.timers if key.kind == "initialize"]
    driver.step(TimerFired(driver.now_ms, key, driver.timers.pop(key)))
    heartbeat(driver, 1)
    assert asked(driver) == 2


def test_it_is_asked_again_after_the_interval_and_not_before() -> None:
    driver = Driver()
    driver.set_topics(t=2)
    heartbeat(driver, 0)
    interval_ms = driver.limits.share_initialize_retry_interval_ms
    for _ in range(10):
        driver.advance(interval_ms // 10 - 1)
        heartbeat(driver, 1)
    assert asked(driver) == 1
    driver.advance(20)
    heartbeat(driver, 1)
    assert asked(driver) == 2
