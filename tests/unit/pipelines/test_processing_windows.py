"""Aggregates in Python over windows: generated histories out of order, against plain models and DuckDB."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import duckdb
import pytest

from barnabas.pipelines.processing import Aggregator
from barnabas.pipelines.processing.testing import ProcessorFailed, ProcessorTest

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Total(Aggregator):
    """Sum and number, and the values in the order in which they were added."""

    accumulator = "struct<n:bigint,sum:bigint>"
    takes: ClassVar = {"x": "bigint"}
    returns: ClassVar = {"n": "bigint", "sum": "bigint"}

    def init(self):
        return {"n": 0, "sum": 0}

    def add(self, accumulator, row):
        return {"n": accumulator["n"] + 1, "sum": accumulator["sum"] + row["x"]}

    def merge(self, accumulator, other):
        return {name: accumulator[name] + other[name] for name in accumulator}

    def result(self, accumulator):
        return accumulator


def history(seed: int, count: int = 80) -> list[dict]:
    """Rows whose times rise, but by up to half a minute out of order."""
    chance = random.Random(seed)
    return [
        {
            "k": chance.choice("ab"),
            "x": chance.randrange(100),
            "at": NOON + chance.randrange(n * 5, n * 5 + 30) * SECOND,
        }
        for n in range(count)
    ]


def run(
    rows: list[dict], emit: str = "final", late: str = "1 minute", **window: str
) -> tuple[list, list[dict]]:
    """What was made, in the end also of windows that were not over, and the rows that came too late."""
    test = ProcessorTest(
        Total, key="k", of="at", late=late, window={"as": "start", "end": "end", **window}, emit=emit
    )
    refused = []
    for row in rows:
        try:
            test.send(row)
        except ProcessorFailed as error:
            refused.append((row, str(error)))
    test.advance(NOON + timedelta(days=1))
    assert not any(test.store.kept.values())
    assert not any(test.store.lists.values())
    assert not any(test.store.timer_times.values())
    results = [(row["k"], row["start"], row["end"], row["n"], row["sum"]) for row in test.rows]
    reasons = [reason for _, reason in refused]
    assert all(reason.startswith("TooLate: its window ended at 2026-01-31T12:") for reason in reasons)
    return results, [row for row, _ in refused]


def fixed(rows: list[dict], every: int, slide: int) -> dict:
    sums: dict = defaultdict(lambda: (0, 0))
    for row in rows:
        seconds = int(row["at"].timestamp())
        for start in range(seconds - seconds % slide, seconds - every, -slide):
            n, total = sums[row["k"], start]
            sums[row["k"], start] = (n + 1, total + row["x"])
    return {
        (k, datetime.fromtimestamp(s, UTC), datetime.fromtimestamp(s + every, UTC), *v)
        for (k, s), v in sums.items()
    }


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("slide", [30, 10, 7])
def test_tumbling_and_hopping(seed, slide):
    rows = history(seed)
    results, refused = run(rows, every="30 seconds", slide=f"{slide} seconds")
    assert not refused
    assert len(results) == len(set(results))
    assert set(results) == fixed(rows, 30, slide)
    changes, _ = run(rows, emit="changes", every="30 seconds", slide=f"{slide} seconds")
    newest = {row[:3]: row for row in changes}
    assert set(newest.values()) == set(results)


@pytest.mark.parametrize("seed", range(10))
def test_sessions(seed):
    rows = history(seed)
    results, refused = run(rows, session="12 seconds")
    assert not refused
    wanted = []
    for key in "ab":
        mine = sorted((row for row in rows if row["k"] == key), key=lambda row: row["at"])
        sessions: list[list[dict]] = []
        for row in mine:
            if sessions and row["at"] < sessions[-1][-1]["at"] + 12 * SECOND:
                sessions[-1].append(row)
            else:
                sessions.append([row])
        wanted += [
            (key, s[0]["at"], s[-1]["at"] + 12 * SECOND, len(s), sum(row["x"] for row in s)) for s in sessions
        ]
    assert sorted(results) == sorted(wanted)


@pytest.mark.parametrize("seed", range(10))
def test_sliding_windows_are_those_of_duckdb(seed):
    rows = history(seed)
    results, refused = run(rows, sliding="20 seconds")
    assert not refused
    values = ", ".join(
        f"('{row['k']}', {row['x']}, TIMESTAMP '{row['at']:%Y-%m-%d %H:%M:%S}')" for row in rows
    )
    wanted = duckdb.sql(
        f"""SELECT DISTINCT k, t - INTERVAL 20 SECOND, t, count(*) OVER w, sum(x) OVER w
        FROM (VALUES {values}) AS given(k, x, t)
        WINDOW w AS (PARTITION BY k ORDER BY t RANGE BETWEEN INTERVAL 20 SECOND PRECEDING AND CURRENT ROW)"""
    ).fetchall()
    plain = [(k, s.replace(tzinfo=None), e.replace(tzinfo=None), n, total) for k, s, e, n, total in results]
    assert sorted(plain) == sorted((k, s, e, n, int(total)) for k, s, e, n, total in wanted)
    changes, _ = run(rows, emit="changes", sliding="20 seconds")
    assert sorted({row[:3]: row for row in changes}.values()) == sorted(results)


@pytest.mark.parametrize(
    "window", [{"every": "30 seconds"}, {"session": "12 seconds"}, {"sliding": "20 seconds"}]
)
def test_late_rows_fail_and_change_nothing(window):
    """Without any lateness, about half of the rows come too late. What is made is made once, and of the others."""
    rows = history(1)
    results, refused = run(rows, late="0 seconds", **window)
    assert 5 < len(refused) < len(rows)
    good = [row for row in rows if row not in refused]
    if "session" in window:  # one that is over is not gone on with
        assert sum(n for *_, n, _ in results) == len(good)
    else:
        assert sorted(run(good, late="1 minute", **window)[0]) == sorted(results)
    assert len({row[:3] for row in results}) == len(results)
