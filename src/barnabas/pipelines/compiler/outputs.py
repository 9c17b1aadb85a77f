"""Turns a checked pipeline into Spark data frames: from rows of the sources to rows for the sink.

A row that a step could not process is written by the same query as the others, but to the dead-letter topic and with
its original bytes: the data is read once, and nothing can be lost between two writes. An output with an aggregate
counts only rows without an error; the failed rows are sent by other queries of the pipeline (see
`PipelineSpec.queries`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.compiler.carrying import (
    observed,
    parcel_names,
    parcel_of_first,
    sent_parcel,
)
from barnabas.pipelines.compiler.columns import SKIPPED
from barnabas.pipelines.compiler.keeping import STORED, changes_column, is_change
from barnabas.pipelines.compiler.relations import (
    Compiler,
    Load,
    aggregated,
    run_steps,
)
from barnabas.pipelines.formats.columns import DDL_TYPES
from barnabas.pipelines.kinds.schemas import encoded_column
from barnabas.pipelines.kinds.steps.fields import known, with_headers
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.operators import ShowRecord
from barnabas.pipelines.plan.outputs import Output
from barnabas.pipelines.plan.pipeline import PipelineSpec, Query
from barnabas.pipelines.plan.places import Place
from barnabas.pipelines.spark.exact_json import json_text
from barnabas.pipelines.spark.frame import (
    CHANGE,
    DELETED,
    ID,
    OPEN,
    SENT,
    SIGN,
    Frame,
    always,
    complaint,
    computed,
    fail,
    flag,
    quoted,
)
from barnabas.pipelines.spark.outgoing import DOCUMENT, IDENTITY, dead_columns, identified, json_value
from barnabas.pipelines.spark.tables.operators import Before, net

SINK_TYPES: Final = {
    **{name: DDL_TYPES[name] for name in ("topic", "key", "value", "headers", "timestamp")},
    "origin": "struct<topic:string,partition:int,offset:bigint,output:string>",
}


def query_frame(
    spec: PipelineSpec, query: Query, rows: DataFrame | Load, before: Before | None = None
) -> Frame:
    """The rows after all steps, from which the query's output is made, with an observation that counts them.

    Rows that another query sends to the dead letters are filtered out, but after the observation: Spark moves no filter
    across it, and a filter moved below the steps would evaluate all their expressions a second time.
    """
    frame = run_steps(_relation(spec, query, rows, before), query.output.operators)
    bad = F.col("_error").isNotNull()
    data = observed(frame.data, ~F.col(SKIPPED) & ~is_change(query.output), ~F.col(SKIPPED) & bad)
    return replace(frame, data=data.where(~F.col(SKIPPED)).drop(SKIPPED))


def _relation(
    spec: PipelineSpec, query: Query, rows: DataFrame | Load, before: Before | None = None
) -> Frame:
    """The rows of the relation that the query's outputs write. rows: of the only source, or a function that loads
    them."""
    load = rows if callable(rows) else (lambda _relation, _as_stream: rows)
    kept = query.relation if query.keeps else None
    compiler = Compiler(spec.plan_of(query), load, query.sends, whole=spec.plan, kept=kept, before=before)
    if query.only_dead and not query.output.operators:
        return compiler.buried(query.relation)
    return compiler.frame(query.relation)


def query_rows(
    spec: PipelineSpec,
    query: Query,
    rows: DataFrame | Load,
    *,
    changes: bool = False,
    before: Before | None = None,
) -> DataFrame:
    """The rows that this query writes to topics, with columns like topic, key, value, headers and timestamp. changes: also
    those that are changes of stores (keeping.py). before: loads the state with which a table with a changelog begins."""
    if query.more:
        return _shared_rows(spec, query, rows)
    frame = query_frame(spec, query, rows, before)
    if query.only_dead:
        return _dead(spec, frame)
    addressed = _addressed(spec, query.output, _aggregated(spec, query.output, frame))
    if query.output.stores is None or changes:
        return addressed
    return addressed.where(F.col(STORED).isNull()).drop(STORED)


def query_deliverable(
    spec: PipelineSpec, query: Query, rows: DataFrame | Load
) -> tuple[DataFrame, tuple[str, ...], bool]:
    """The rows that this query delivers to a target other than a topic, the names of their fields, and whether their
    documents may have more fields. Raises PipelineError when the target cannot accept them."""
    output, target = query.output, query.output.target
    assert target is not None
    kind = TARGETS[target.kind]
    frame = _as_deletes(query_frame(spec, query, rows))
    if frame.deletes and not kind.deletes(target.options):
        fail(
            _place(spec, output, target.kind),
            f"{target.kind} cannot delete rows with these options, and records may be deletes (tombstones: deletes, "
            "tables): give it a key or an id, or write to it from a separate pipeline",
        )
    identity = target.options.get("id")
    if output.aggregate is not None:
        frame = _aggregated(spec, output, frame)
        if frame.deletes and not kind.deletes(target.options):
            fail(
                _place(spec, output, target.kind),
                f"{target.kind} cannot delete rows with these options, and a session whose bounds change is taken back: "
                "give it a key or an id, or write with emit: final",
            )
    elif frame.open:
        frame = frame.declare(target.options.get("partition_by", ()), _place(spec, output, "partition_by"))
        if kind.takes_open is not None and not kind.takes_open(target.options):
            fail(
                _place(spec, output, target.kind),
                "the columns must be known: declare the fields in the parse step, or name them in a keep step",
            )
    elif not frame.fields and kind.takes_open is not None:
        frame = _record_fields(spec, output, frame, kind.takes_bytes(target.options))
    elif not frame.fields and target.kind != "console":
        fail(_place(spec, output, target.kind), "there are no fields to deliver: begin with a parse step")
    known(frame, tuple(target.options.get("partition_by", ())), _place(spec, output, "partition_by"))
    if kind.prepared is not None:
        frame = kind.prepared(spec, output, frame)
    fields = frame.fields
    # Before the id is computed: that takes the fields that it names out of the open ones, but the document needs them.
    frame = replace(frame, data=frame.data.withColumn(DOCUMENT, json_value(frame).cast("string")))
    if identity is not None:
        frame = computed(frame, "_id", Expression.of(identity), _place(spec, output, "id"), "string")
        identity = "_id"
    identified_rows = identified(frame.data, identity)
    if frame.signed:
        names = target.options.get("key") or ()
        key = F.struct(
            *[F.col(quoted(n)).cast("string") for n in names] or [F.col(IDENTITY if identity else ID)]
        )
        identified_rows = _latest(identified_rows, key)
    return identified_rows, fields, frame.open


def _record_fields(spec: PipelineSpec, output: Output, frame: Frame, as_bytes: bool) -> Frame:
    """Makes fields of the record itself, for an archive. Unless `as_bytes`, records that are not text fail."""
    plain = {name: name for name in ("topic", "partition", "offset", "timestamp")}
    texts = {name: name for name in ("key", "value", "headers")}
    place = _place(spec, output, "the record")
    fields = {**plain, **({} if as_bytes else texts)}
    step = ShowRecord(fields=fields, label=place.label, where=place.where)
    frame = run_steps(frame, [step])
    return frame.put({name: F.col(f"_{name}") for name in texts}, step) if as_bytes else frame


def _dead(spec: PipelineSpec, frame: Frame) -> DataFrame:
    bad = frame.data.where(F.col("_error").isNotNull())
    return bad.select(*[column.alias(name) for name, column in dead_columns(spec).items()])


def _place(spec: PipelineSpec, output: Output, what: str) -> Place:
    """The place of one of an output's own entries in the file, for messages."""
    entry = what.partition(".")[0]
    kind = "" if output.target is None else output.target.kind
    where = (
        output.where.get(entry) or output.where.get(kind) or output.where.get("") or spec.where or spec.name
    )
    return Place(label=f"{output.name}: {what}", where=where, output=output.name)


def _as_deletes(frame: Frame) -> Frame:
    """The rows of a table as rows for a target: those that are not in it any more stand for deletes."""
    return replace(frame, data=frame.data.withColumn(DELETED, F.col(SIGN) < 0)) if frame.signed else frame


def _latest(data: DataFrame, key: Column) -> DataFrame:
    """Of a table's rows, the last of each key in a micro-batch; failed rows, which are no rows of the table, all of them."""
    bad = F.col("_error").isNotNull()
    return net(data.where(~bad | (F.col(SIGN) > 0)), key, bad)


def _addressed(spec: PipelineSpec, output: Output, frame: Frame) -> DataFrame:
    """The sink's rows: good ones as the output declares, failed ones as dead letters."""
    frame, columns = _columns(spec, output, _as_deletes(frame))
    if frame.signed:
        selected = frame.data.select(
            *[column.cast(SINK_TYPES[name]).alias(name) for name, column in columns.items()],
            SIGN,
            CHANGE,
            "_error",
        )
        # Records without a key replace none.
        selected = selected.where(F.col("_error").isNotNull() | F.col("key").isNotNull() | (F.col(SIGN) > 0))
        lone = F.when(F.col("key").isNull(), F.col("origin")["offset"])
        return _latest(selected, F.struct("topic", "key", lone.alias("lone"))).select(*columns)
    columns |= sent_parcel(frame.data)
    sent = [column.alias(name) for name, column in columns.items()]
    return frame.data.select(*sent, *changes_column(output))


def _columns(spec: PipelineSpec, output: Output, frame: Frame) -> tuple[Frame, dict[str, Column]]:
    """The sink's columns for each row: those that the output declares, or those of a dead letter if the row failed."""
    key = F.col("_key")
    timestamp, value = F.col("_timestamp"), F.col("_whole")
    if frame.signed:
        timestamp = F.timestamp_micros(F.col(CHANGE)["at"])
    if output.schema is not None:
        frame, value = _encoded(spec, output, frame)
    elif output.value is None:
        # Before the other expressions: a field that they name would become null in records that do not have it.
        frame = replace(frame, data=frame.data.withColumn("_whole", json_value(frame)))
    if output.key_schema is not None:
        frame, key = _encoded_key(spec, output, frame)
    elif output.key is not None:
        frame, key = _own(spec, output, frame, "key", output.key)
    if output.value is not None:
        frame, value = _own(spec, output, frame, "value", output.value)
    if output.timestamp is not None:
        frame, timestamp = _own(spec, output, frame, "timestamp", output.timestamp, "timestamp")
    frame = with_headers(frame, output.headers, lambda name: _place(spec, output, f"headers.{name}"))
    frame, topic = _topic(spec, output, frame)
    written = _bytes(frame, value)
    columns = {
        "topic": topic,
        "key": _bytes(frame, key),
        "value": F.when(~F.col(DELETED), written) if frame.deletes else written,
        "headers": F.col(SENT),
        "timestamp": timestamp,
    }
    bad = F.col("_error").isNotNull()
    dead = dead_columns(spec)
    # If a row is refused, the sink needs its origin to read the original record again.
    place = [F.col(f"_{name}").alias(name) for name in ("topic", "partition", "offset")]
    place.append(F.lit(output.name).alias("output"))
    chosen = {name: F.when(bad, dead[name]).otherwise(column) for name, column in columns.items()}
    return frame, {**chosen, "origin": F.struct(*place)}


def _shared_rows(spec: PipelineSpec, query: Query, rows: DataFrame | Load) -> DataFrame:
    """The rows that several outputs write to topics, made in one pass: the steps are evaluated once, then the
    expressions of each output on the same row. Each result becomes a row of its own."""
    frame = _relation(spec, query, rows)
    kept = {name: f"_before{name}" for name in ("_error", SENT, *([OPEN] if frame.open else []))}
    data = frame.data.withColumns({before: F.col(name) for name, before in kept.items()})
    parts = parcel_names(data)
    row_columns: list[str] = []
    for number, output in enumerate(query.outputs):
        own = replace(frame, data=data.withColumns({name: F.col(before) for name, before in kept.items()}))
        own, columns = _columns(spec, output, own)
        # If Spark knew that the headers of one output are never null, it would assume this for all outputs.
        columns["headers"] = F.when(always(), columns["headers"])
        sent_elsewhere = F.col(kept["_error"]).isNotNull() if number else F.col(SKIPPED)
        # The first output makes a row of every record that this query sends, so its rows are counted; the others make
        # none of a record that failed in a common step.
        marks = [F.lit(number == 0).alias("_first"), F.col("_error").isNotNull().alias("_dead")]
        marks += parcel_of_first(data, number)
        row = F.struct(
            *[column.cast(SINK_TYPES[name]).alias(name) for name, column in columns.items()], *marks
        )
        data = own.data.withColumn(f"_made{number}", F.when(~sent_elsewhere, row))
        row_columns.append(f"_made{number}")
    # Spark copies each row of an unpivot once; rows exploded from an array would be copied twice.
    rows_made = data.unpivot([], row_columns, "_output", "_row").where(F.col("_row").isNotNull())
    marked = rows_made.select(*[f"_row.{name}" for name in (*SINK_TYPES, "_first", "_dead", *parts)])
    counted = observed(marked, F.col("_first"), F.col("_dead"))
    sent = [column.alias(name) for name, column in sent_parcel(counted).items()]
    return counted.select(*SINK_TYPES, *sent)


def _own(
    spec: PipelineSpec,
    output: Output,
    frame: Frame,
    what: str,
    wanted: Expression,
    kind: str | None = None,
) -> tuple[Frame, Column]:
    """One of an output's own expressions as a column; rows for which it fails get an error."""
    name = f"_out.{what}"
    frame = computed(frame, name, wanted, _place(spec, output, what), kind)
    return frame, F.col(quoted(name))


def _encoded(spec: PipelineSpec, output: Output, frame: Frame) -> tuple[Frame, Column]:
    """The output's fields, encoded with its schema; rows that do not fit it get an error."""
    assert output.schema is not None
    place = _place(spec, output, "value")
    encoded = F.col("_encoded")
    if output.present is not None:
        frame = computed(frame, "_present", output.present, place, "boolean")
    for name in output.encoded:
        frame.source(name, place)  # it is there
    chosen = replace(frame, fields=output.encoded or frame.fields)
    data = frame.data.withColumn("_encoded", encoded_column(chosen, output.schema, place))
    error = F.when(~F.col(DELETED), encoded["error"]) if frame.deletes else encoded["error"]
    if output.present is not None:
        error = F.when(F.col("_present"), error)
    value = encoded["v"] if output.present is None else F.when(F.col("_present"), encoded["v"])
    return replace(frame, data=flag(data, error, place)), value


def _encoded_key(spec: PipelineSpec, output: Output, frame: Frame) -> tuple[Frame, Column]:
    """The key, encoded with its schema, and what follows it; null if all of its fields are."""
    assert output.key_schema is not None
    place = _place(spec, output, "key")
    for name in output.key_fields:
        frame.source(name, place)  # it is there
    chosen = replace(frame, fields=output.key_fields or frame.fields)
    data = frame.data.withColumn("_encoded_key", encoded_column(chosen, output.key_schema, place))
    encoded = F.col("_encoded_key")
    is_given = F.coalesce(*[F.col(quoted(name)).cast("string") for name in chosen.fields]).isNotNull()
    frame = replace(frame, data=flag(data, F.when(is_given, encoded["error"]), place))
    key = F.when(is_given, encoded["v"])
    if output.key is None:
        return frame, key
    frame, after = _own(spec, output, frame, "key", output.key)
    return frame, F.concat(key, after)


def _topic(spec: PipelineSpec, output: Output, frame: Frame) -> tuple[Frame, Column]:
    if output.route is None:
        return frame, F.lit(output.topic)
    frame, chosen = _own(spec, output, frame, "route.by", output.route.by, "string")
    if output.route.topics:
        pairs = [F.lit(text) for pair in output.route.topics.items() for text in pair]
        chosen = F.try_element_at(F.create_map(*pairs), F.coalesce(chosen, F.lit("")))
        return frame, F.coalesce(chosen, F.lit(output.topic))
    frame = replace(frame, data=frame.data.withColumn("_routed", F.coalesce(chosen, F.lit(output.topic))))
    routed, loop = F.col("_routed"), F.lit(False)
    for source in spec.sources:
        read = source.topics if source.pattern is None else ()
        loop = loop | (routed.isin(list(read)) if read else routed.rlike(rf"^(?:{source.pattern})\z"))
    why = F.when(
        loop,
        complaint("the pipeline would read topic ", routed, ", which it writes itself, in an endless loop"),
    )
    return replace(frame, data=flag(frame.data, why, _place(spec, output, "route.by"))), routed


def _bytes(frame: Frame, column: Column) -> Column:
    """The bytes of a key or value: text as UTF-8, structs, maps and arrays as JSON, other values as text."""
    kind = frame.kind(column)
    if kind == "binary":
        return column
    if kind.startswith(("struct", "map", "array")):
        return json_text(frame.data, column).cast("binary")
    return column.cast("string").cast("binary")


def _aggregated(spec: PipelineSpec, output: Output, frame: Frame) -> Frame:
    """The rows of the output's own aggregate, if it has one."""
    if output.aggregate is None:
        return frame
    return aggregated(frame, output.aggregate, lambda what: _place(spec, output, what))
