"""Counting requests and the parts of their time."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.runtime.slow import SLOW_US, topics_of
from barnabas.runtime.timing import Histogram, RequestTimes, begin_sending, now_us, settle

VALUES = st.lists(st.integers(0, 1 << 33), min_size=1, max_size=50)
SENDER = SimpleNamespace(client_id="app", peer="127.0.0.1:5")


@given(VALUES, st.lists(st.floats(0.001, 1), min_size=1, max_size=5).map(sorted))
def test_a_quantile_is_known_to_an_eighth(values: list[int], fractions: list[float]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    ordered = sorted(values)
    for fraction, quantile in zip(fractions, histogram.quantiles(fractions), strict=True):
        rank = next(n for n in range(1, len(ordered) + 1) if n >= fraction * len(ordered) - 1e-6)
        want = ordered[min(rank, len(ordered)) - 1]
        assert abs(quantile - want) <= max(want / 8, 1)


@given(VALUES)
def test_count_sum_and_bounds(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value, 2)
    assert (histogram.count, histogram.sum) == (2 * len(values), 2 * sum(values))
    assert histogram.at_most([0, 1 << 40]) == [2 * values.count(0), 2 * len(values)]
    low, high = histogram.extremes()
    assert low <= min(values)
    assert high >= max(values)
    assert histogram.plus(histogram).count == 4 * len(values)


def test_old_values_lose_weight_and_are_forgotten_at_last() -> None:
    histogram = Histogram()
    histogram.add(1000, 100)
    histogram.age(0.1)
    histogram.add(10, 90)
    assert histogram.quantiles([0.5])[0] < 20
    for _ in range(10):
        histogram.age(0.1)
    assert histogram.quantiles([0.5]) == [0.0]
    assert histogram.count == 190


def test_no_values() -> None:
    histogram = Histogram()
    assert histogram.quantiles([0.5, 0.99]) == [0.0, 0.0]
    assert histogram.extremes() == (0, 0)


def test_the_parts_of_a_request_make_its_total() -> None:
    stats = RequestTimes().of("Produce")
    timing = stats.begin(now_us() - 3_000, 9, 100, None)
    timing.handle()
    time.sleep(0.004)
    timing.wait()
    time.sleep(0.008)
    timing.finish()
    timing.answer(7)
    timings = [timing]
    begin_sending(timings)
    settle(timings, SENDER)
    assert timings == []
    parts = {name: histogram.sum for name, histogram in stats.parts}
    assert parts["RequestQueueTimeMs"] >= 3_000
    assert parts["LocalTimeMs"] >= 4_000
    assert parts["RemoteTimeMs"] >= 8_000
    assert parts["ThrottleTimeMs"] == 7_000
    without_throttle = sum(us for name, us in parts.items() if name not in ("TotalTimeMs", "ThrottleTimeMs"))
    assert parts["TotalTimeMs"] == without_throttle
    assert stats.versions == {9: 1}
    assert stats.size.sum == 100


def test_requests_of_a_fast_path_are_all_counted_and_some_are_measured_for_the_others() -> None:
    stats = RequestTimes().of("Produce")
    for _ in range(1000):
        timing = stats.quick(stats.begin_quick(), 3, 8, 30)
        if timing is not None:
            settle([timing], SENDER)
    assert stats.requests == stats.size.count == 3000
    assert stats.total.count == stats.local.count == pytest.approx(3000, abs=3 * 8)


def test_every_slow_request_of_a_fast_path_is_kept() -> None:
    times = RequestTimes()
    stats = times.of("Produce")
    for _ in range(100):
        timing = stats.quick(stats.begin_quick() - SLOW_US, 1, 8, 30, ("orders",))
        assert timing is not None
        settle([timing], SENDER)
    assert len(times.slow) == 100
    assert stats.total.count == pytest.approx(100, abs=8)


def test_slow_requests_are_kept_with_their_topics_but_not_those_that_wait_on_purpose() -> None:
    times = RequestTimes()
    asked = SimpleNamespace(topics=[SimpleNamespace(topic="orders"), SimpleNamespace(topic="bills")])
    for name in ("Produce", "FetchConsumer"):
        timing = times.of(name).begin(now_us() - SLOW_US, 9, 100, asked)
        timing.handle() if name == "Produce" else None
        timing.answer(0)
        settle([timing], SENDER)
    assert [(slow.request, slow.topics) for slow in times.slow] == [
        ("Produce", ("orders", "bills")),
        ("FetchConsumer", ("orders", "bills")),
    ]
    assert times.slow[0].queue_ms >= SLOW_US / 1000
    waits = times.of("FetchConsumer").begin(now_us() - 1_000, 9, 100, asked)
    waits.handle()
    waits.wait()
    time.sleep(SLOW_US / 1e6)
    waits.finish()
    waits.answer(0)
    settle([waits], SENDER)
    assert len(times.slow) == 2


def test_topics_of_requests_by_name_and_id() -> None:
    assert topics_of(SimpleNamespace(topic_data=[SimpleNamespace(name="", topic_id="id")])) == ("id",)
    assert topics_of(SimpleNamespace(topics=["a", "b"])) == ("a", "b")
    assert topics_of(SimpleNamespace()) == ()
