"""Compiles aggregates whose results are a table: of tables, from which rows are taken away again, and of streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.pipelines.compiler.columns import HIDDEN, SKIPPED
from barnabas.pipelines.plan.aggregates import RESULT, AggregateCall, divided
from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.places import Place
from barnabas.pipelines.plan.relations import Aggregate
from barnabas.pipelines.spark.exact_json import json_object
from barnabas.pipelines.spark.frame import (
    CHANGE,
    DELETED,
    ERROR_TYPE,
    ID,
    OPEN,
    ROW,
    SIGN,
    TEXT,
    Frame,
    complaint,
    computed,
    expression,
    fail,
    flag,
    kept,
)
from barnabas.pipelines.spark.outgoing import json_value
from barnabas.pipelines.spark.tables.operators import BAD, Before, Total, totalled

Places = Callable[[str], Place]
"""Returns the place of an entry in the pipeline file, for messages."""
SUMS: Final = ("bigint", "double", "decimal")


def table_of_groups(
    frame: Frame,
    groups: Sequence[Column],
    wanted: Aggregate,
    place: Places,
    *,
    each: bool,
    kept_state: bool = False,
    before: Before | None = None,
) -> Frame:
    """The results of groups as a table with the groups as its key. groups: columns of the frame, the window first. each:
    whether every change makes a result, not only the last of a micro-batch. kept_state, before: see `totalled`."""
    frame, by = _named(frame, groups, wanted)
    calls: list[AggregateCall] = []
    rests: dict[str, Expression] = {}
    for name, computation in wanted.compute.items():
        parts = divided(computation.text, len(calls))
        calls += parts.calls
        rests[name] = Expression.of(parts.rest, computation.where)
    totals: list[Total] = []
    known: list[tuple[str, str | None, str | None]] = []
    for call in calls:
        frame, total = _total(frame, call, known, place("aggregate"))
        totals.append(total)
    rows = totalled(frame.data, by, totals, each=each, kept_state=kept_state, before=before)
    results = _results(Frame(rows, tuple(by)), wanted, calls, place("aggregate"))
    for name, rest in rests.items():
        results = computed(results, name, rest, place(f"aggregate.compute.{name}"))
    results = then_computed(results, wanted, place)
    data = results.data.drop(*[f"{RESULT}{number}" for number in range(len(calls))])
    # A result that fails was never in the table, so it cannot leave it either.
    results = replace(results, data=kept(data, F.col("_error").isNull() | (F.col(SIGN) > 0)))
    text = json_value(results)
    return replace(results, data=results.data.withColumns({"_value": text.cast("binary"), TEXT: text}))


def then_computed(frame: Frame, wanted: Aggregate, place: Places) -> Frame:
    """The results with the fields that are computed of them."""
    if not wanted.then:
        return frame
    for name, computation in wanted.then.items():
        frame = computed(frame, name, computation, place(f"aggregate.then.{name}"))
    text = json_value(frame)
    return replace(frame, data=frame.data.withColumns({"_value": text.cast("binary"), TEXT: text}))


def _named(frame: Frame, groups: Sequence[Column], wanted: Aggregate) -> tuple[Frame, dict[str, Column]]:
    """The columns of the groups by the names of their fields; of a window, its start and its end."""
    columns = {f"_group{number}": column for number, column in enumerate(groups)}
    frame = replace(frame, data=frame.data.select("*", *[c.alias(name) for name, c in columns.items()]))
    there = [F.col(name) for name in columns]
    by: dict[str, Column] = {}
    if wanted.window is not None:
        window = there.pop(0)
        by = {name: window[end] for name, end in zip(wanted.window.names, ("start", "end"), strict=False)}
    return frame, by | {group.text: column for group, column in zip(wanted.by, there, strict=True)}


def _total(
    frame: Frame, call: AggregateCall, known: list[tuple[str, str | None, str | None]], place: Place
) -> tuple[Frame, Total]:
    """A call as an aggregate of the operator. known: the values that are kept so far, to which its own are added."""
    frame, whole = expression(frame, Expression.of(call.text), place)
    kind = frame.kind(whole)
    frame, value = expression(frame, Expression.of(call.value), place)
    if call.function in ("sum", "avg") and not kind.startswith(SUMS):
        fail(place, f"{call.text} is {kind}, which cannot be kept: convert its values to a number")
    if call.keeps_values and any(word in frame.kind(value) for word in ("map<", "variant", "void")):
        fail(
            place,
            f"the values of {call.text} are {frame.kind(value)}, which cannot be compared: convert them",
        )
    if call.order is not None:
        frame, order = expression(frame, Expression.of(call.order), place)
        value = F.when(order.isNotNull(), F.struct(order.alias("o"), value.alias("v")))
    if call.only is not None:
        frame, condition = expression(frame, Expression.of(call.only), place)
        value = F.when(condition, value)
    number = None
    if call.grows or (call.keeps_values and frame.signed):
        values = (call.value, call.order, call.only)
        if values not in known:
            known.append(values)
        number = known.index(values)
    return frame, Total(call.function, value, kind.replace(" ", ""), number)


def _results(frame: Frame, wanted: Aggregate, calls: Sequence[AggregateCall], place: Place) -> Frame:
    """The results with the hidden columns of rows, and an error where one does not fit its type."""
    key = json_object(frame.data, wanted.groups).cast("binary")
    own = {
        "_key": key,
        ID: key,
        "_topic": F.col(CHANGE)["topic"],
        "_partition": F.col(CHANGE)["partition"],
        "_offset": F.col(CHANGE)["offset"],
        "_timestamp": F.timestamp_micros(F.col(CHANGE)["at"]),
        SKIPPED: F.lit(False),
        "_error": F.lit(None).cast(ERROR_TYPE),
    }
    others = {
        name: F.lit(None).cast(kind)
        for name, kind in HIDDEN.items()
        if name not in (*own, ROW, OPEN, DELETED, SIGN, CHANGE)
    }
    ordered = {
        f"{RESULT}{i}": F.col(f"{RESULT}{i}")["v"] for i, call in enumerate(calls) if call.order is not None
    }
    data = frame.data.withColumns({**own, **others, **ordered})
    texts = F.array(*[F.lit(call.text) for call in calls])
    too_much = complaint("the result of ", F.get(texts, F.col(BAD)), " does not fit its type")
    data = flag(data, F.when(F.col(BAD).isNotNull(), too_much), place).drop(BAD)
    return replace(frame, data=data)
