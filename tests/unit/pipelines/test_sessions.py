"""Sessions whose results are written at each change: generated histories out of order, against the interpreter's results for
the rows of each session."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from barnabas.pipelines.plan.aggregates import OF_STREAMS, RESULT, AggregateCall, divided
from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.interpret.expressions import evaluated
from barnabas.pipelines.plan.interpret.totals import results_in_order
from barnabas.pipelines.plan.processing import Windows
from barnabas.pipelines.plan.relations import Aggregate
from barnabas.pipelines.processing.sessions import GONE, Total, sessions
from barnabas.pipelines.processing.testing import ProcessorFailed, ProcessorTest

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
PAUSE = 10 * SECOND
COMPUTE = {
    "count(*)": "bigint",
    "count(x) FILTER (WHERE x > 50)": "bigint",
    "sum(x)": "bigint",
    "avg(x)": "double",
    "min(x)": "bigint",
    "max(x)": "bigint",
    "min_by(x, at)": "bigint",
    "max_by(x, at)": "bigint",
    "collect_list(x)": "array<bigint>",
    "collect_set(x)": "array<bigint>",
    "approx_count_distinct(x)": "bigint",
    "stddev_samp(x)": "double",
    "bool_or(x > 90)": "boolean",
    "bool_and(x > 5)": "boolean",
    "corr(x, y)": "double",
}
CALLS: list[AggregateCall] = [divided(text, more=OF_STREAMS).calls[0] for text in COMPUTE]
Row = dict[str, Any]


def history(seed: int) -> list[Row]:
    """Rows whose times rise, but by up to half a minute out of order; no two have the same time."""
    chance = random.Random(seed)
    times = sorted(chance.sample(range(400), 60), key=lambda at: at + chance.randrange(30))
    return [
        {
            "k": chance.choice("ab"),
            "x": chance.choice([None, *range(100)]),
            "y": chance.randrange(100),
            "at": NOON + at * SECOND,
        }
        for at in times
    ]


def of_processor(late: str) -> ProcessorTest:
    kinds = {"at": "timestamp", "y": "bigint", None: None}
    totals = [
        Total(
            call.function,
            f"{RESULT}{number}",
            "boolean" if call.function in ("any", "every") else "bigint",
            kinds[call.order],
            kind,
        )
        for number, (call, kind) in enumerate(zip(CALLS, COMPUTE.values(), strict=True))
    ]
    code = sessions(totals, Windows("session", 10_000, 10_000, "begun", "ended", final=False), ("k",))
    results = {total.result: total.returns for total in totals}
    code.returns = {"k": "string", "begun": "timestamp", "ended": "timestamp", GONE: "boolean", **results}
    return ProcessorTest(code, key="k", time="event", of="at", late=late)


def with_values(row: Row) -> Row:
    """A row with its values as Spark computes them for the processor."""
    fields = dict(row)
    for number, call in enumerate(CALLS):
        is_in = call.only is None or evaluated(call.only, row) is True
        fields[f"v{number}"] = evaluated(call.value, row) if is_in else None
        fields[f"o{number}"] = evaluated(call.order, row) if is_in and call.order is not None else None
    return fields


def applied(table: dict[Any, list[Any]], results: list[Mapping[str, Any]]) -> None:
    """Changes a table of results as a reader of the topic does."""
    for result in results:
        key = (result["k"], result["begun"], result["ended"])
        if result[GONE]:
            del table[key]
        else:
            table[key] = [plain(result[f"{RESULT}{number}"]) for number in range(len(CALLS))]


def expected(rows: list[Row]) -> dict[Any, list[Any]]:
    """The sessions of all rows so far."""
    aggregate = Aggregate(compute={str(n): Expression(text) for n, text in enumerate(COMPUTE)})
    table = {}
    for key in "ab":
        members: list[Row] = []
        for row in [*sorted((row for row in rows if row["k"] == key), key=lambda row: row["at"]), None]:
            if members and (row is None or row["at"] > members[-1]["at"] + PAUSE):
                results = results_in_order(aggregate, {}, members).values()
                table[key, members[0]["at"], members[-1]["at"] + PAUSE] = [plain(value) for value in results]
                members = []
            members += [] if row is None else [row]
    return table


def plain(value: Any) -> Any:
    """A result that can be compared: the order of lists is not said, sums of floats differ in their last digits, and what
    is no number is not equal to itself."""
    if isinstance(value, list):
        return sorted(value)
    return str(round(value, 9)) if isinstance(value, float) else value


@pytest.mark.parametrize("seed", range(4))
def test_after_each_row_the_table_is_that_of_the_sessions(seed: int) -> None:
    test, rows, table = of_processor("1 day"), list[Row](), dict[Any, list[Any]]()
    for row in history(seed):
        applied(table, test.send(with_values(row)))
        rows.append(row)
        assert table == expected(rows)


def test_what_is_over_is_forgotten_and_does_not_take_rows() -> None:
    test = of_processor("0 seconds")
    for at in (0, 5):
        test.send(with_values({"k": "a", "x": 1, "y": 1, "at": NOON + at * SECOND}))
    test.advance(NOON + 16 * SECOND)
    assert not any(test.store.kept.values())
    assert not any(test.store.timer_times.values())
    with pytest.raises(ProcessorFailed, match="TooLate: its session ended at 2026-01-31 12:00:14"):
        test.send(with_values({"k": "a", "x": 1, "y": 1, "at": NOON + 4 * SECOND}))
