"""When a query stands still, and when it only has nothing to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipelines.entries.document import duration_seconds
from barnabas.pipelines.serving.standstill import Seen, Standstill

STANDS = 60.0


def stood(*seen: tuple[float, str | None, int | None, bool]) -> float | None:
    stand = Standstill(0.0, STANDS)
    for now_s, reached, lag, busy in seen:
        stand.note(Seen(now_s, reached, lag, busy))
    return stand.seconds(seen[-1][0])


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        # Records wait, and nothing ends: before the first micro-batch, or inside of one.
        ([(10, None, None, False), (100, None, None, False)], 100),
        ([(10, "a", 5, True), (100, "a", 9, True)], 90),
        ([(10, "a", 5, False), (100, "a", 5, False)], 90),
        # It moves, has nothing to do, or has only just stopped.
        ([(10, "a", 5, True), (90, "b", 5, True), (100, "b", 5, True)], None),
        ([(10, "a", 0, False), (100, "a", 0, False)], None),
        ([(10, "a", 5, True), (70, "a", 5, True)], None),
        # A source without a lag: only the time inside of a micro-batch counts.
        ([(10, "a", None, True), (100, "a", None, True)], 90),
        ([(10, "a", None, True), (50, "a", None, False), (100, "a", None, True)], None),
        # A query that is started again and again has not moved.
        ([(10, "a", 5, True), (40, None, 5, False), (100, "a", 5, True)], 90),
    ],
)
def test_a_query_stands_still_if_something_waits_and_nothing_ends(seen, seconds):
    assert stood(*seen) == seconds


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.sampled_from("abc"), st.integers(0, 2), st.booleans()), min_size=1
    )
)
def test_it_never_stands_still_for_longer_than_since_it_last_moved(steps):
    now, last, before, seen = 0.0, 0.0, None, []
    for pause, reached, lag, busy in steps:
        now += pause
        if lag == 0 or reached != before:
            last = now
        before = reached
        seen.append((now, reached, lag, busy))
    passed = now - last
    assert stood(*seen) == (passed if passed > STANDS else None)


@pytest.mark.parametrize(
    ("text", "seconds"), [("100 milliseconds", 0.1), ("1 second", 1), ("15minutes", 900), ("2 hours", 7200)]
)
def test_durations(text, seconds):
    assert duration_seconds(text) == seconds
