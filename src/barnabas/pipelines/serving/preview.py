"""Shows what each step of a pipeline does to real records, as text for the terminal or as plain data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import ClientError
from barnabas.pipelines.compiler.outputs import query_rows
from barnabas.pipelines.compiler.relations import opened, run_steps
from barnabas.pipelines.kinds.connectors import connectors
from barnabas.pipelines.plan.errors import PipelineError, suggestion
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.outputs import Output
from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
from barnabas.pipelines.plan.relations import Scan
from barnabas.pipelines.plan.sources import Source
from barnabas.pipelines.spark.frame import Frame
from barnabas.pipelines.spark.outgoing import json_value
from barnabas.pipelines.spark.session.start import adopt_session
from barnabas.pipelines.spark.topics.options import client_options
from barnabas.pipelines.spark.topics.records import as_rows, first_records, last_records, made_records

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class StepResult:
    """A record after one step. rows: the fields of each row that the step made of it: none if it was filtered out,
    several if it was exploded. reason: why the step failed."""

    step: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None


@dataclass(slots=True)
class Leaving:
    """A record as it would be written to a topic."""

    topic: str
    key: str | None
    value: str | None
    headers: dict[str, str | None] = field(default_factory=dict)


@dataclass(slots=True)
class RecordPreview:
    """One record and the result of each step, up to the step that failed. leaves: what the output would write to topics
    for it, also as a dead letter."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    steps: list[StepResult] = field(default_factory=list)
    leaves: list[Leaving] = field(default_factory=list)


def preview(
    spark: SparkSession,
    spec: PipelineSpec,
    bootstrap: str,
    *,
    topic: str | None = None,
    count: int = 5,
    output: str | None = None,
    oldest: bool = False,
) -> list[RecordPreview]:
    """Runs the first step, then the first two, and so on, over `count` records of the source (the newest, or the
    oldest).

    topic: which one to read, of several. output: whose steps follow the common ones; default the first. Writes nothing.
    Raises PipelineError.
    """
    from barnabas.pipelines.compiler.queries import connection_options

    if not spec.plan.single:
        return _preview_source(spark, spec, bootstrap, topic, count, oldest)
    table = _records(connection_options(spec, bootstrap), spec, spec.source, topic, count, oldest)
    chosen = _output(spec, output)
    steps = spec.plan[chosen.relation].operators + chosen.operators
    records = preview_rows(spark, steps, table, spec.source)
    _add_leaving(spark, spec, chosen, table, records)
    return records


def _preview_source(
    spark: SparkSession, spec: PipelineSpec, bootstrap: str, topic: str | None, count: int, oldest: bool
) -> list[RecordPreview]:
    """A preview of one of several sources: the one that reads the topic; default the first."""
    from barnabas.pipelines.compiler.queries import connection_options

    scans = [(r, r.origin.source) for r in spec.plan.relations.values() if isinstance(r.origin, Scan)]
    by_topic = {name: (relation, source) for relation, source in scans for name in source.topics}
    if not by_topic:
        raise PipelineError(f"{spec.where}: no source names its topics, which preview needs")
    topic = topic or next(iter(by_topic))
    if topic not in by_topic:
        raise PipelineError(f"{spec.where}: no source reads topic {topic}; {suggestion(topic, by_topic)}")
    relation, source = by_topic[topic]
    table = _records(connection_options(spec, bootstrap), spec, source, topic, count, oldest)
    return preview_rows(spark, relation.operators, table, source)


def _add_leaving(
    spark: SparkSession, spec: PipelineSpec, output: Output, table: pa.Table, records: list[RecordPreview]
) -> None:
    """Adds what the output writes to its topic for each record; nothing for aggregates and for other targets."""
    if output.target is not None or output.aggregate is not None:
        return
    query = Query(output.name, output, spec.plan.carried(output.relation))
    rows = query_rows(spec, query, as_rows(spark, table)).collect()
    by_place = {(record.topic, record.partition, record.offset): record for record in records}
    for row in rows:
        headers = {header.key: _text(header.value) for header in row.headers or ()}
        leaf = Leaving(row.topic, _text(row.key), _text(row.value), headers)
        by_place[row.origin.topic, row.origin.partition, row.origin.offset].leaves.append(leaf)


def _output(spec: PipelineSpec, output: str | None) -> Output:
    names = [o.name for o in spec.outputs]
    if output is not None and output not in names:
        raise PipelineError(f"{spec.where}: there is no output {output!r}; there are {', '.join(names)}")
    return spec.outputs[0 if output is None else names.index(output)]


def _records(
    options: dict[str, str],
    spec: PipelineSpec,
    source: Source,
    topic: str | None,
    count: int,
    oldest: bool,
) -> pa.Table:
    """Records of the topics; of the connector that is to fill them, if they do not exist yet."""
    topics = (topic,) if topic is not None else source.topics
    if not topics:
        raise PipelineError(f"{spec.where}: the source is a pattern: name one topic with --topic")
    take: Callable[..., pa.Table] = first_records if oldest else last_records
    try:
        with BlockingClient(client_options(options)) as client:
            if source.connector and not client.describe(tuple(topics)):
                samples = connectors().sample(source.connector, topics, count)
                return made_records(
                    [(r.topic, r.number, r.key, r.value, r.headers, r.timestamp_ms) for r in samples]
                )
            return take(client, topics, count)
    except ClientError as error:
        raise PipelineError(str(error)) from error


def preview_rows(
    spark: SparkSession, steps: tuple[Operator, ...], table: pa.Table, source: Source | None = None
) -> list[RecordPreview]:
    """A preview of the steps over records that were read before."""
    adopt_session(spark)
    previews: dict[tuple[str, int, int], RecordPreview] = {}
    for row in table.to_pylist():
        place = (row["topic"], row["partition"], row["offset"])
        previews[place] = RecordPreview(*place, _text(row["key"]), _text(row["value"]))
    source = source or Source()
    frame = opened(as_rows(spark, table), source.encoding, deletes=source.deletes)
    for step in steps:
        frame = run_steps(frame, (step,))
        results: dict[tuple[str, int, int], StepResult] = {}
        for place, reason, fields in _after(frame):
            failed_before = any(result.reason for result in previews[place].steps)
            if failed_before:
                continue
            result = results.setdefault(place, StepResult(step.label))
            if reason is not None:
                result.reason = reason
            else:
                result.rows.append(fields)
        for place, record in previews.items():
            if record.steps and (record.steps[-1].reason or not record.steps[-1].rows):
                continue  # failed or filtered out by an earlier step
            record.steps.append(results.get(place, StepResult(step.label)))
    return list(previews.values())


def _after(frame: Frame) -> list[tuple[tuple[str, int, int], str | None, dict[str, Any]]]:
    rows = frame.data.select(
        "_topic",
        "_partition",
        "_offset",
        F.col("_error")["reason"].alias("reason"),
        json_value(frame).alias("json"),
    ).collect()
    done = []
    for row in rows:
        fields = {}
        if row.reason is None and (frame.fields or frame.open):
            fields = json.loads(row.json)
        done.append(((row._topic, row._partition, row._offset), row.reason, fields))
    return done


def _text(value: bytes | bytearray | None) -> str | None:
    return None if value is None else bytes(value).decode("utf-8", "replace")


def render(records: list[RecordPreview]) -> str:
    """The preview as text, with only the changes of each step."""
    lines: list[str] = []
    for record in records:
        lines.append(f"{record.topic}-{record.partition} offset {record.offset}")
        lines.append(f"  value  {_shown(record.value)}")
        before: list[dict[str, Any]] = [{}]
        for result in record.steps:
            lines.append(f"  {result.step}")
            lines += [f"    {line}" for line in _changes(before, result)]
            before = result.rows
        for leaf in record.leaves:
            lines.append(f"  to {leaf.topic}")
            lines.append(f"    key    {_shown(leaf.key)}")
            lines.append(f"    value  {_shown(leaf.value)}")
            lines += [f"    header {name} = {_shown(value)}" for name, value in leaf.headers.items()]
        lines.append("")
    return "\n".join(lines).rstrip()


def _changes(before: list[dict[str, Any]], result: StepResult) -> list[str]:
    if result.reason is not None:
        return [f"cannot be handled: {result.reason}", "-> dead letters"]
    if not result.rows:
        return ["left out"]
    lines = []
    if len(result.rows) != len(before):
        lines.append(f"{len(result.rows)} rows")
    for number, row in enumerate(result.rows):
        old = before[number] if number < len(before) and len(before) == len(result.rows) else before[0]
        for name, value in row.items():
            if name not in old or old[name] != value:
                lines.append(f"+ {name} = {_shown(value)}")
        lines += [f"- {name}" for name in old if name not in row]
    return lines or ["no change"]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:157] + "..."
