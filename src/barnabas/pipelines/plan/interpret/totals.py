"""Results of aggregates over the rows of a stream, in the order in which they came."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from sqlglot import exp

from barnabas.pipelines.plan.aggregates import RESULT
from barnabas.pipelines.plan.interpret.expressions import evaluated
from barnabas.pipelines.plan.interpret.spark.collections import distinct
from barnabas.pipelines.plan.interpret.spark.compute import Computed, function_of
from barnabas.pipelines.plan.interpret.spark.read import tree_of
from barnabas.pipelines.plan.relations import Aggregate

Fields = Mapping[str, Any]
Values = list[Any]


def results_in_order(aggregate: Aggregate, key: Fields, rows: Sequence[Fields]) -> dict[str, Any]:
    """The results of a group. key: what identifies it. Raises NotInterpreted and Failed."""
    results = {}
    for name, expression in aggregate.compute.items():
        rest, calls = _divided(expression.text)
        results[name] = rest({**key, **{f"{RESULT}{at}": call(rows) for at, call in enumerate(calls)}})
    for name, expression in aggregate.then.items():
        results[name] = evaluated(expression.text, {**key, **results})
    return results


@lru_cache(maxsize=1024)
def _divided(text: str) -> tuple[Computed, tuple[Callable[[Sequence[Fields]], Any], ...]]:
    """An expression of the results of calls, and the calls, as functions of the rows of a group."""
    calls: list[Callable[[Sequence[Fields]], Any]] = []

    def without(node: exp.Expr) -> exp.Expr:
        inner = node.this if isinstance(node, exp.Filter) else node
        if not isinstance(inner, exp.Anonymous) or str(inner.this).lower() not in AGGREGATES:
            return node
        only = function_of(node.expression.this) if isinstance(node, exp.Filter) else None
        calls.append(_call(inner, only))
        return exp.column(f"{RESULT}{len(calls) - 1}", quoted=True)

    rest = function_of(tree_of(text).transform(without))
    return rest, tuple(calls)


def _call(node: exp.Anonymous, only: Computed | None) -> Callable[[Sequence[Fields]], Any]:
    work, arguments, is_distinct = AGGREGATES[str(node.this).lower()], list(node.expressions), False
    if arguments and isinstance(arguments[0], exp.Distinct):
        arguments, is_distinct = list(arguments[0].expressions), True
    if arguments and isinstance(arguments[0], exp.Star):
        arguments = [exp.true()]
    inner = [function_of(one) for one in arguments]

    def total(rows: Sequence[Fields]) -> Any:
        kept = [row for row in rows if only is None or only(row) is True]
        columns = [[one(row) for row in kept] for one in inner]
        if is_distinct:
            columns[0] = distinct([value for value in columns[0] if value is not None])
        return work(*columns)

    return total


def _known(values: Values) -> Values:
    return [value for value in values if value is not None]


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _sum(values: Values) -> Any:
    known = _known(values)
    if not known:
        return None
    return math.fsum(known) if isinstance(known[0], float) else sum(known)


def _average(values: Values) -> Any:
    known = _known(values)
    return float(sum(map(Decimal, known)) / len(known)) if known else None


def _extreme(choose: Callable[..., Any]) -> Callable[[Values], Any]:
    def work(values: Values) -> Any:
        known = _known(values)
        return choose(known, key=_number) if known else None

    return work


def _extreme_by(choose: Callable[..., Any]) -> Callable[[Values, Values], Any]:
    def work(values: Values, orders: Values) -> Any:
        pairs = [(order, value) for value, order in zip(values, orders, strict=True) if order is not None]
        return choose(pairs, key=lambda pair: pair[0])[1] if pairs else None

    return work


def _deviation(values: Values) -> Any:
    known = [float(value) for value in _known(values)]
    return None if len(known) < 2 else statistics.stdev(known)


def _correlation(one: Values, other: Values) -> Any:
    pairs = [(float(a), float(b)) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    try:
        return statistics.correlation(*map(list, zip(*pairs, strict=True))) if len(pairs) > 1 else math.nan
    except statistics.StatisticsError:
        return math.nan


AGGREGATES: Final[Mapping[str, Callable[..., Any]]] = {
    "count": lambda values: len(_known(values)),
    "approx_count_distinct": lambda values: len(distinct(_known(values))),
    "sum": _sum,
    "avg": _average,
    "min": _extreme(min),
    "max": _extreme(max),
    "min_by": _extreme_by(min),
    "max_by": _extreme_by(max),
    "collect_list": _known,
    "collect_set": lambda values: distinct(_known(values)),
    "stddev_samp": _deviation,
    "corr": _correlation,
    "bool_or": lambda values: any(_known(values)) if _known(values) else None,
    "bool_and": lambda values: all(_known(values)) if _known(values) else None,
}
