"""What the throttle of replication counts, and whom it holds back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.partitions.partition import Partition
from barnabas.broker.partitions.throttling import Throttle, Throttles
from barnabas.config.loader import load


class Clock:
    """A clock that stands."""

    ms = 1_000_000.0

    def monotonic_ms(self) -> float:
        return self.ms


def partition(topic: str, index: int, isr: tuple[int, ...]) -> Partition:
    return cast("Partition", SimpleNamespace(topic=topic, index=index, image=SimpleNamespace(isr=isr)))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def throttle(clock: Clock, rate: str | None, listed: str) -> Throttle:
    config = load(None, {"node.id": "1", "log.dirs": "/nowhere"})
    if rate is not None:
        config.set_dynamic(default={}, broker={"leader.replication.throttled.rate": rate})
    both = Throttles(config, cast("Any", clock), 1)
    both.configure({("topics", "t"): {"leader.replication.throttled.replicas": listed}})
    assert not both.follower.is_on, "the other side has options of its own"
    return both.leader


def test_listed_replicas_that_are_not_in_sync_count(clock: Clock) -> None:
    listed = throttle(clock, "1000", "0:1,2:7")
    assert listed.is_on
    assert listed.limits(partition("t", 0, (1,)), 2)
    assert not listed.limits(partition("t", 0, (1, 2)), 2), "in sync: it must stay so"
    assert not listed.limits(partition("t", 2, (1,)), 2), "listed for another broker"
    assert not listed.limits(partition("u", 0, (1,)), 2)
    assert throttle(clock, "1000", "*").limits(partition("t", 9, (1,)), 2)


def test_nothing_is_limited_without_a_rate_or_without_replicas(clock: Clock) -> None:
    assert not throttle(clock, None, "*").is_on
    assert not throttle(clock, "1000", "").is_on


def test_bytes_above_the_rate_are_waited_for(clock: Clock) -> None:
    limited = throttle(clock, "1000", "*")
    assert limited.wait_ms() == 0
    limited.note(20_000)  # of one second, averaged over ten windows
    assert limited.wait_ms() == 10_000
    clock.ms += 10_001
    assert limited.wait_ms() <= 10_000
    clock.ms += 1_000
    assert limited.wait_ms() == 0, "the window with the burst is over"
