"""A checked pipeline to Spark data frames: source rows in, rows for the sink out.

Every output is one streaming query. A row that a step could not handle leaves through the same query as the
others, addressed to the dead-letter topic with its original bytes: one pass over the data, and nothing can be
lost between two writes. An output with an aggregate counts only rows without an error; the other outputs of
the pipeline send the bad ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.columns import DDL_TYPES
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.spec import Output, PipelineSpec, Query, Step
from barnabas.pipelines.steps import STEPS
from barnabas.pipelines.steps.base import (
    ERROR_TYPE,
    RECORD_COLUMNS,
    Frame,
    checked,
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


def query_rows(spec: PipelineSpec, query: Query, rows: DataFrame) -> DataFrame:
    """What this query writes: topic, key, value, headers (and timestamp)."""
    output = query.output
    frame = run_steps(opened(rows), spec.steps)
    if not query.sends_common:
        frame = Frame(frame.data.where(F.col("_error").isNull()), frame.fields)
    frame = run_steps(frame, output.steps)
    failed = F.count(F.when(F.col("_error").isNotNull(), 1)).alias("failed")
    frame = Frame(frame.data.observe(METRICS, F.count(F.lit(1)).alias("rows"), failed), frame.fields)
    if query.only_dead:
        return _dead(spec, frame)
    if output.aggregate is not None:
        return _aggregated(spec, output, frame)
    return _addressed(spec, output, frame)


def _dead(spec: PipelineSpec, frame: Frame) -> DataFrame:
    bad = frame.data.where(F.col("_error").isNotNull())
    return bad.select(*[column.alias(name) for name, column in _dead_columns(spec).items()])


def _dead_columns(spec: PipelineSpec) -> dict[str, Column]:
    return {
        "topic": F.lit(spec.dead_letters),
        "key": F.col("_key"),
        "value": F.col("_value"),
        "headers": dead_headers(spec.name),
        "timestamp": F.col("_timestamp"),
    }


def _where(spec: PipelineSpec, output: Output) -> str:
    return f"{spec.where or spec.name}: output {output.name}"


def _json_value(frame: Frame) -> Column:
    if not frame.fields:
        return F.col("_value")
    return F.to_json(F.struct(*[F.col(quoted(name)) for name in frame.fields]), JSON_OPTIONS)


def _addressed(spec: PipelineSpec, output: Output, frame: Frame) -> DataFrame:
    """Good rows as the output says, bad ones as they came with headers that tell why."""
    where = _where(spec, output)
    data = frame.data
    key = F.col("_key") if output.key is None else checked(data, output.key, f"{where}: key").cast("binary")
    value = _json_value(frame) if output.value is None else checked(data, output.value, f"{where}: value")
    headers = _headers(data, output, where)
    columns = {
        "topic": F.lit(output.topic),
        "key": key,
        "value": value.cast("binary"),
        "headers": headers,
    }
    if output.timestamp is not None:
        columns["timestamp"] = checked(data, output.timestamp, f"{where}: timestamp").cast("timestamp")
    columns.setdefault("timestamp", F.col("_timestamp"))
    bad = F.col("_error").isNotNull()
    dead = _dead_columns(spec)
    return data.select(
        *[F.when(bad, dead[name]).otherwise(column).alias(name) for name, column in columns.items()]
    )


def _headers(data: DataFrame, output: Output, where: str) -> Column:
    kind = "array<struct<key:string,value:binary>>"
    if not output.headers:
        return F.lit(None).cast(kind)
    entries = [
        F.struct(
            F.lit(name).alias("key"),
            checked(data, sql, f"{where}: headers.{name}").cast("string").cast("binary").alias("value"),
        )
        for name, sql in output.headers.items()
    ]
    return F.array(*entries).cast(kind)


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


def _aggregated(spec: PipelineSpec, output: Output, frame: Frame) -> DataFrame:
    assert output.aggregate is not None
    plan = output.aggregate
    where = f"{_where(spec, output)}: aggregate"
    data = frame.data.where(F.col("_error").isNull())
    groups: list[Column] = []
    if plan.window is not None:
        window = plan.window
        time = checked(data, window.of, f"{where}: window.of")
        kind = data.select(time.alias("t")).schema["t"].dataType.simpleString()
        if kind != "timestamp":
            raise PipelineError(f"{where}: window.of: {window.of!r} is {kind}, not a timestamp")
        data = data.withColumn("_time", time)
        if plan.late is not None:
            data = data.withWatermark("_time", plan.late)
        groups.append(F.window("_time", window.every, window.slide or window.every).alias("_window"))
    names = []
    for sql in plan.by:
        groups.append(checked(data, sql, f"{where}: by").alias(sql))
        names.append(sql)
    results = [checked(data, sql, f"{where}: {name}").alias(name) for name, sql in plan.compute.items()]
    counted = data.groupBy(*groups).agg(*results)
    fields = list(names)
    if plan.window is not None:
        counted = counted.withColumn(plan.window.name, F.col("_window")["start"]).drop("_window")
        fields.insert(0, plan.window.name)
    frame = Frame(counted, (*fields, *plan.compute))
    key = checked(counted, output.key, f"{_where(spec, output)}: key") if output.key else _group_key(fields)
    value = (
        _json_value(frame)
        if output.value is None
        else checked(counted, output.value, f"{_where(spec, output)}: value")
    )
    return counted.select(
        F.lit(output.topic).alias("topic"),
        key.cast("binary").alias("key"),
        value.cast("binary").alias("value"),
    )


def _group_key(fields: list[str]) -> Column:
    """The group's values as a JSON object: one key per group, so that compaction keeps the newest result."""
    return F.to_json(F.struct(*[F.col(quoted(name)) for name in fields]), JSON_OPTIONS)
