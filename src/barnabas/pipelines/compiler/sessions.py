"""Compiles aggregates over sessions whose results are written at each change: Spark's own sessions have none before they
are over. The values are computed by Spark, row by row; what they come to is kept by processing/sessions.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.pipelines.compiler.columns import EVENT, HIDDEN
from barnabas.pipelines.compiler.totals import Places, then_computed
from barnabas.pipelines.entries.document import duration_seconds
from barnabas.pipelines.plan.aggregates import OF_STREAMS, RESULT, AggregateCall, divided
from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.own_aggregates import BadCall, expanded
from barnabas.pipelines.plan.places import Place
from barnabas.pipelines.plan.processing import Process, Windows
from barnabas.pipelines.plan.relations import Aggregate
from barnabas.pipelines.processing.processor import declared_states
from barnabas.pipelines.processing.sessions import GONE, Total, sessions
from barnabas.pipelines.spark.exact_json import json_object
from barnabas.pipelines.spark.frame import DELETED, TEXT, Frame, computed, expression, fail, quoted
from barnabas.pipelines.spark.outgoing import json_value
from barnabas.pipelines.spark.processing import processed

SUMMED: Final = {"tinyint": "bigint", "smallint": "bigint", "int": "bigint", "float": "double"}
"""The types of sums by those of their values, if they are other ones."""


def sessions_of(frame: Frame, groups: dict[str, Column], wanted: Aggregate, place: Places) -> Frame:
    """The results of sessions, with tombstones for those whose bounds have changed. frame: rows without an error, with
    their event time. groups: what they are grouped by, by the names of its fields. Raises PipelineError."""
    assert wanted.window is not None
    assert wanted.window.gap is not None
    at = place("aggregate")
    rests: dict[str, Expression] = {}
    calls: list[AggregateCall] = []
    for name, computation in wanted.compute.items():
        try:
            parts = divided(expanded(computation.text), len(calls), OF_STREAMS)
        except (BadCall, ValueError) as error:
            fail(place(f"aggregate.compute.{name}"), f"{error}, or emit: final")
        calls += parts.calls
        rests[name] = Expression.of(parts.rest, computation.where)
    columns: dict[str, Column] = {}
    totals = []
    for number, call in enumerate(calls):
        frame, total = _total(frame, call, number, columns, at)
        totals.append(total)
    keys = {name: F.col(quoted(f"group {number}")) for number, name in enumerate(groups)}
    columns |= {f"group {number}": column for number, column in enumerate(groups.values())}
    hidden = [name for name in (*HIDDEN, EVENT) if name in frame.data.columns and name != DELETED]
    data = frame.data.select(*hidden, *[column.alias(name) for name, column in columns.items()])
    length_ms = round(duration_seconds(wanted.window.gap) * 1000)
    windows = Windows(
        "session", length_ms, length_ms, wanted.window.name, wanted.window.end or "", final=False
    )
    code = sessions(totals, windows, tuple(groups))
    step = Process(
        called="sessions", key=wanted.by, states=declared_states(code), time="event", windows=windows, code=code,
        returns={**{total.result: total.returns for total in totals}, GONE: "boolean"},
        label=at.label, where=at.where, output=at.output,
    )  # fmt: skip
    done = processed(Frame(data, tuple(columns)), step, keys)
    for name, rest in rests.items():
        done = computed(done, name, rest, place(f"aggregate.compute.{name}"))
    return then_computed(_results(done, wanted, totals), wanted, place)


def _total(
    frame: Frame, call: AggregateCall, number: int, columns: dict[str, Column], place: Place
) -> tuple[Frame, Total]:
    """A call as what is kept for it; its values become columns."""
    frame, whole = expression(frame, Expression.of(call.text), place)
    returns = frame.kind(whole)
    frame, value = expression(frame, Expression.of(call.value), place)
    kind = frame.kind(value)
    if kind in ("variant", "void"):
        fail(place, f"the values of {call.text} are {kind}, which cannot be kept: convert them")
    order = None
    if call.order is not None:
        frame, order = expression(frame, Expression.of(call.order), place)
    if call.only is not None:
        frame, condition = expression(frame, Expression.of(call.only), place)
        value = F.when(condition, value)
        order = None if order is None else F.when(condition, order)
    columns[f"v{number}"] = value
    if order is not None:
        columns[f"o{number}"] = order
    if call.function == "avg":
        kind = (
            "decimal(38," + kind.partition(",")[2] if kind.startswith("decimal") else SUMMED.get(kind, kind)
        )
    return frame, Total(
        call.function, f"{RESULT}{number}", kind, None if order is None else frame.kind(order), returns
    )


def _results(done: Frame, wanted: Aggregate, totals: list[Total]) -> Frame:
    """The fields of the results, and the hidden columns of rows: their key is that of the group."""
    assert wanted.window is not None
    fields = (*wanted.window.names, *(by.text for by in wanted.by), *wanted.compute)
    is_bad = F.col("_error").isNotNull()
    data = done.data.withColumn(DELETED, F.coalesce(F.col(quoted(GONE)), F.lit(False)))
    data = data.drop(GONE, *[total.result for total in totals])
    key = json_object(data, wanted.groups).cast("binary")
    data = data.withColumn("_key", F.when(is_bad, F.col("_key")).otherwise(key))
    results = Frame(data, fields)
    text = json_value(results)
    values = {
        "_value": F.when(is_bad, F.col("_value")).otherwise(text.cast("binary")),
        TEXT: F.when(is_bad, F.col(TEXT)).otherwise(text.cast("string")),
    }
    return replace(results, data=data.withColumns(values))
