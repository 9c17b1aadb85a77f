"""Time left and the line of progress."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.pipelines.serving.rates import Gauge, duration_text, progress_line


def gauge(*seen):
    gauge_ = Gauge()
    for second, lag in seen:
        gauge_.note(second, 0, lag)
    return gauge_


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        ([], None),
        ([(0, 100)], None),
        ([(0, 100), (2, 80)], 8),
        ([(0, 100), (2, 100)], None),
        ([(0, 100), (2, 120)], None),
        ([(0, 0), (2, 0)], 0),
        ([(0, 10_000), (100, 60), (110, 50)], 50),
    ],
)
def test_time_left_is_how_the_lag_falls_now(seen, left):
    assert gauge(*seen).seconds_left() == left


def test_one_line():
    query = {"name": "q", "records_per_second": 1520.4, "lag": 34_000, "seconds_left": 22}
    status = {"name": "p", "state": "running", "waiting": None, "stuck": None}
    status |= {"last_error": None, "queries": [query]}
    reports = [SimpleNamespace(rows=1_200, failed=2), SimpleNamespace(rows=900, failed=1)]
    line = progress_line(status, reports, "p-dead")
    assert line == "p: 1,200 records, 3 to p-dead, 1,520/s, 34,000 waiting, 22 s left"
    waiting = {**status, "waiting": "waiting for the broker since 10:00:00Z"}
    assert progress_line(waiting, [], "p-dead") == "p: 0 records, waiting for the broker since 10:00:00Z"
    stuck = {**status, "stuck": "q: no micro-batch has ended since 10:00:00Z"}
    assert progress_line(stuck, [], "p-dead") == "p: 0 records, q: no micro-batch has ended since 10:00:00Z"
    failed = {**status, "state": "failed", "last_error": "no such table: t", "retry_in_seconds": 4.0}
    assert progress_line(failed, [], "p-dead") == "p: 0 records, no such table: t; trying again in 4 s"
    assert [duration_text(s) for s in (5, 75, 7_380)] == ["5 s", "1 min 15 s", "2 h 3 min"]
