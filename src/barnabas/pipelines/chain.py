"""A checked pipeline to Spark data frames: source rows in, rows for the sink out.

Every output is one streaming query. A row that a step could not handle leaves through the same query as the
others, addressed to the dead-letter topic with its original bytes: one pass over the data, and nothing can be
lost between two writes. An output with an aggregate counts only rows without an error; the other outputs of
the pipeline send the bad ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.columns import DDL_TYPES
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.model import Output, PipelineSpec, Query, Step, Window
from barnabas.pipelines.steps import STEPS
from barnabas.pipelines.steps.base import (
    ERROR_TYPE,
    OPEN,
    OPEN_TYPE,
    RECORD_COLUMNS,
    Frame,
    computed,
    expression,
    fail,
    quoted,
    spark_reason,
)

JSON_OPTIONS: Final = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
HEADER_PREFIX: Final = "barnabas."
METRICS: Final = "barnabas"
"""Name of the observation that counts rows, and failed ones, of each micro-batch."""


def opened(rows: DataFrame) -> Frame:
    """Source rows with the record in columns of its own and no fields yet."""
    there = set(rows.columns)
    columns = [
        F.col(name[1:]).alias(name)
        if name[1:] in there
        else F.lit(None).cast(DDL_TYPES[name[1:]]).alias(name)
        for name in RECORD_COLUMNS
    ]
    return Frame(rows.select(*columns, F.lit(None).cast(ERROR_TYPE).alias("_error")))


def run_steps(frame: Frame, steps: Iterable[Step]) -> Frame:
    """The frame after these steps. Raises PipelineError at the step that Spark does not accept."""
    for step in steps:
        try:
            frame = STEPS[step.kind].apply(frame, step)
        except PipelineError:
            raise
        except Exception as error:
            raise PipelineError(f"{step.where}: step {step.label}: {spark_reason(error)}") from error
    return frame


def query_frame(spec: PipelineSpec, query: Query, rows: DataFrame) -> Frame:
    """What this query's output is made of: the rows after all steps, observed for their numbers.

    Rows that failed in the common steps are left out where another query sends them. That is done after the
    observation, which Spark moves no filter across: moved below the steps it would repeat all their expressions.
    """
    frame = run_steps(opened(rows), spec.steps)
    skipped = F.lit(False) if query.sends_common else F.col("_error").isNotNull()
    frame = replace(frame, data=frame.data.withColumn("_skipped", skipped))
    frame = run_steps(frame, query.output.steps)
    told = F.when(~F.col("_skipped"), 1)
    failed = F.when(~F.col("_skipped") & F.col("_error").isNotNull(), 1)
    data = frame.data.observe(METRICS, F.count(told).alias("rows"), F.count(failed).alias("failed"))
    return replace(frame, data=data.where(~F.col("_skipped")).drop("_skipped"))


def query_rows(spec: PipelineSpec, query: Query, rows: DataFrame) -> DataFrame:
    """What this query writes to topics: topic, key, value, headers (and timestamp)."""
    frame = query_frame(spec, query, rows)
    if query.only_dead:
        return _dead(spec, frame)
    if query.output.aggregate is not None:
        return _aggregate_rows(spec, query.output, frame)
    return _addressed(spec, query.output, frame)


def query_deliverable(spec: PipelineSpec, query: Query, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
    """What this query delivers to a target that is no topic, and the names of the fields in it."""
    from barnabas.pipelines.delivery.base import DOCUMENT, identified

    output = query.output
    frame = query_frame(spec, query, rows)
    identity = None if output.target is None else output.target.options.get("id")
    if output.aggregate is not None:
        frame = aggregated(spec, output, frame)
        key = F.to_json(F.struct(*[F.col(quoted(name)) for name in group_fields(output)]), JSON_OPTIONS)
        frame = replace(frame, data=frame.data.withColumn("_group", key))
        identity = identity or "_group"
    elif frame.open:
        needed = output.target.options.get("partition_by", ()) if output.target is not None else ()
        frame = frame.declare(needed, _place(spec, output, "partition_by"))
    fields = frame.fields
    # Before the id: a field that it names must not leave the open ones.
    frame = replace(frame, data=frame.data.withColumn(DOCUMENT, json_value(frame).cast("string")))
    if identity is not None:
        place = _place(spec, output, "id")
        if output.aggregate is None:
            frame = computed(frame, "_id", identity, place, "string")
            identity = "_id"
        else:
            expression(frame, identity, place)
    return identified(frame.data, identity), fields


def _dead(spec: PipelineSpec, frame: Frame) -> DataFrame:
    bad = frame.data.where(F.col("_error").isNotNull())
    return bad.select(*[column.alias(name) for name, column in dead_columns(spec).items()])


def dead_columns(spec: PipelineSpec) -> dict[str, Column]:
    return {
        "topic": F.lit(spec.dead_letters),
        "key": F.col("_key"),
        "value": F.col("_value"),
        "headers": dead_headers(spec.name),
        "timestamp": F.col("_timestamp"),
    }


def json_value(frame: Frame) -> Column:
    """All fields as one JSON object; the record's own value when no step made any."""
    if not frame.fields and not frame.open:
        return F.col("_value")
    declared = F.to_json(F.struct(*[F.col(quoted(name)) for name in frame.fields]), JSON_OPTIONS)
    if not frame.open:
        return declared
    rest = F.to_json(F.coalesce(F.col(OPEN), F.create_map().cast(OPEN_TYPE)), JSON_OPTIONS)
    if not frame.fields:
        return rest
    # Two objects one after the other: `{"a":1}` and `{"b":2}` to `{"a":1,"b":2}`.
    joined = F.concat(
        F.substr(declared, F.lit(1), F.length(declared) - 1), F.lit(","), F.substr(rest, F.lit(2))
    )
    return F.when(rest == "{}", declared).otherwise(joined)


def _place(spec: PipelineSpec, output: Output, what: str) -> Step:
    """Where an output's own expression stands, for messages."""
    return Step("output", f"{output.name}: {what}", {}, spec.where or spec.name)


def _addressed(spec: PipelineSpec, output: Output, frame: Frame) -> DataFrame:
    """Good rows as the output says, bad ones as they came with headers that tell why."""
    key, headers = F.col("_key"), F.lit(None).cast(DDL_TYPES["headers"])
    timestamp, value = F.col("_timestamp"), F.col("_whole")
    if output.value is None:
        # Before the expressions: a field that they name must not show up where a record does not have it.
        frame = replace(frame, data=frame.data.withColumn("_whole", json_value(frame)))
    if output.key is not None:
        frame, key = _own(spec, output, frame, "key", output.key)
    if output.value is not None:
        frame, value = _own(spec, output, frame, "value", output.value)
    if output.timestamp is not None:
        frame, timestamp = _own(spec, output, frame, "timestamp", output.timestamp, "timestamp")
    if output.headers:
        frame, headers = _headers(spec, output, frame)
    frame, topic = _topic(spec, output, frame)
    columns = {
        "topic": topic,
        "key": _bytes(frame, key),
        "value": _bytes(frame, value),
        "headers": headers,
        "timestamp": timestamp,
    }
    bad = F.col("_error").isNotNull()
    dead = dead_columns(spec)
    return frame.data.select(
        *[F.when(bad, dead[name]).otherwise(column).alias(name) for name, column in columns.items()]
    )


def _own(
    spec: PipelineSpec, output: Output, frame: Frame, what: str, sql: str, kind: str | None = None
) -> tuple[Frame, Column]:
    """One of an output's own expressions as a column; rows that it fails for have an error."""
    name = f"_out.{what}"
    frame = computed(frame, name, sql, _place(spec, output, what), kind)
    return frame, F.col(quoted(name))


def _topic(spec: PipelineSpec, output: Output, frame: Frame) -> tuple[Frame, Column]:
    if output.route is None:
        return frame, F.lit(output.topic)
    frame, chosen = _own(spec, output, frame, "route.by", output.route.by, "string")
    if output.route.topics:
        pairs = [F.lit(text) for pair in output.route.topics.items() for text in pair]
        chosen = F.try_element_at(F.create_map(*pairs), F.coalesce(chosen, F.lit("")))
    return frame, F.coalesce(chosen, F.lit(output.topic))


def _bytes(frame: Frame, column: Column) -> Column:
    """Bytes of a key or value: text as UTF-8, objects as JSON, other values as their text."""
    kind = frame.kind(column)
    if kind == "binary":
        return column
    if kind.startswith(("struct", "map", "array")):
        return F.to_json(column, JSON_OPTIONS).cast("binary")
    return column.cast("string").cast("binary")


def _headers(spec: PipelineSpec, output: Output, frame: Frame) -> tuple[Frame, Column]:
    entries = []
    for name, sql in output.headers.items():
        frame, column = _own(spec, output, frame, f"headers.{name}", sql, "string")
        value = column.cast("binary")
        entries.append(F.struct(F.lit(name).alias("key"), value.alias("value")))
    return frame, F.array(*entries).cast(DDL_TYPES["headers"])


def dead_headers(pipeline: str) -> Column:
    """The record's own headers, then who could not handle it, why, and where it lay."""
    told = {
        "pipeline": F.lit(pipeline),
        "step": F.col("_error")["step"],
        "reason": F.col("_error")["reason"],
        "topic": F.col("_topic"),
        "partition": F.col("_partition").cast("string"),
        "offset": F.col("_offset").cast("string"),
    }
    entries = [
        F.struct(F.lit(HEADER_PREFIX + name).alias("key"), value.cast("binary").alias("value"))
        for name, value in told.items()
    ]
    own = F.coalesce(F.col("_headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    return F.concat(own, F.array(*entries).cast("array<struct<key:string,value:binary>>"))


def aggregated(spec: PipelineSpec, output: Output, frame: Frame) -> Frame:
    """Groups and their results as fields; rows with an error are left out."""
    assert output.aggregate is not None
    plan = output.aggregate
    frame = replace(frame, data=frame.data.where(F.col("_error").isNull()))
    groups: list[Column] = []
    for sql in plan.by:
        frame, column = expression(frame, sql, _place(spec, output, "aggregate.by"))
        # Spark does not group by variants: their text does as well.
        groups.append((column.cast("string") if frame.kind(column) == "variant" else column).alias(sql))
    if plan.window is not None:
        frame, window = _window(spec, output, frame, plan.window)
        groups.insert(0, window)
    results = []
    for name, sql in plan.compute.items():
        frame, column = expression(frame, sql, _place(spec, output, f"aggregate.compute.{name}"))
        results.append(column.alias(name))
    data = frame.data
    if plan.window is not None and plan.late is not None:
        data = data.withWatermark("_time", plan.late)
    counted = data.groupBy(*groups).agg(*results)
    fields = list(plan.by)
    if plan.window is not None:
        counted = counted.withColumn(plan.window.name, F.col("_window")["start"]).drop("_window")
        fields.insert(0, plan.window.name)
    return Frame(counted, (*fields, *plan.compute))


def group_fields(output: Output) -> list[str]:
    """The fields that name a group."""
    assert output.aggregate is not None
    window = output.aggregate.window
    return [*([] if window is None else [window.name]), *output.aggregate.by]


def _aggregate_rows(spec: PipelineSpec, output: Output, frame: Frame) -> DataFrame:
    done = aggregated(spec, output, frame)
    key = _group_key(group_fields(output))
    if output.key is not None:
        done, key = expression(done, output.key, _place(spec, output, "key"))
    value = json_value(done)
    if output.value is not None:
        done, value = expression(done, output.value, _place(spec, output, "value"))
    columns = {"topic": F.lit(output.topic), "key": _bytes(done, key), "value": _bytes(done, value)}
    return done.data.select(*[column.alias(name) for name, column in columns.items()])


def _window(spec: PipelineSpec, output: Output, frame: Frame, window: Window) -> tuple[Frame, Column]:
    place = _place(spec, output, "aggregate.window.of")
    frame, time = expression(frame, window.of, place)
    if frame.kind(time) != "timestamp":
        fail(place, f"{window.of!r} is {frame.kind(time)}, not a timestamp: use a time step before")
    frame = replace(frame, data=frame.data.withColumn("_time", time))
    return frame, F.window("_time", window.every, window.slide or window.every).alias("_window")


def _group_key(fields: list[str]) -> Column:
    """The group's values as a JSON object: one key per group, so that compaction keeps the newest result."""
    return F.to_json(F.struct(*[F.col(quoted(name)) for name in fields]), JSON_OPTIONS)
