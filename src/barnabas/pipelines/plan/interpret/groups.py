"""Results of aggregates over the rows of a group, and the windows of a time."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from barnabas.pipelines.plan.aggregates import RESULT, AggregateCall, divided
from barnabas.pipelines.plan.interpret.expressions import Failed, NotInterpreted, evaluated
from barnabas.pipelines.plan.relations import Aggregate, Window

UNITS: Final = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 7 * 86400,
}
"""Seconds."""
EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def grouped(aggregate: Aggregate, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The groups of the rows with their results."""
    groups: dict[str, tuple[dict[str, Any], list[Mapping[str, Any]]]] = {}
    for row in rows:
        by = {by.text: evaluated(by.text, row) for by in aggregate.by}
        for window in windows(aggregate.window, row):
            key = {**window, **by}
            groups.setdefault(repr(key), (key, []))[1].append(row)
    group_rows = []
    for key, members in groups.values():
        try:
            group_rows.append({**key, **_results(aggregate, key, members)})
        except Failed:
            continue
    return group_rows


def _results(
    aggregate: Aggregate, key: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, expression in aggregate.compute.items():
        parts = divided(expression.text)
        results = {f"{RESULT}{number}": _result(call, rows) for number, call in enumerate(parts.calls)}
        values[name] = evaluated(parts.rest, {**key, **results})
    for name, expression in aggregate.then.items():
        values[name] = evaluated(expression.text, {**key, **values})
    return values


def _result(call: AggregateCall, rows: Sequence[Mapping[str, Any]]) -> Any:
    if call.only is not None:
        rows = [row for row in rows if evaluated(call.only, row) is True]
    pairs = [(evaluated(call.value, row), evaluated(call.order or "true", row)) for row in rows]
    if call.order is not None:
        ordered = [(order, value is not None, value) for value, order in pairs if order is not None]
        return (min if call.function == "min" else max)(ordered)[2] if ordered else None
    values = [value for value, _ in pairs if value is not None]
    if call.function == "count":
        return len(values)
    if call.function == "distinct":
        return len(set(values))
    if call.function in ("list", "set"):
        return sorted(values if call.function == "list" else set(values))
    if not values:
        return None
    if call.function in ("min", "max"):
        return (min if call.function == "min" else max)(values)
    return _average(values) if call.function == "avg" else _sum(values)


def _sum(values: Sequence[Any]) -> Any:
    return math.fsum(values) if isinstance(values[0], float) else sum(values)


def _average(values: Sequence[Any]) -> float:
    """Exact, and rounded once."""
    if isinstance(values[0], Decimal):
        raise NotInterpreted("an average of decimals")
    return float(sum(map(Fraction, values)) / len(values))


def windows(window: Window | None, row: Mapping[str, Any]) -> Iterator[dict[str, datetime.datetime]]:
    """The windows of a row, as fields; one without fields if the rows have none."""
    if window is None:
        yield {}
        return
    if window.gap is not None or window.of is None or window.every is None:
        raise NotInterpreted("sessions, and windows of the event time")
    time = evaluated(window.of.text, row)
    if time is None:
        return
    length = duration(window.every)
    slide = duration(window.slide or window.every)
    start = EPOCH + (time - EPOCH) // slide * slide
    while start + length > time:
        yield dict(zip(window.names, (start, start + length), strict=False))
        start -= slide


def duration(text: str) -> datetime.timedelta:
    """A duration in Spark's notation, like `1 hour 30 minutes`."""
    parts = text.lower().split()
    try:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        seconds = sum(float(number) * UNITS[unit.removesuffix("s")] for number, unit in pairs)
    except (KeyError, ValueError):
        raise NotInterpreted(f"the duration {text!r}") from None
    return datetime.timedelta(seconds=seconds)
