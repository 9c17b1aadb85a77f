"""How a micro-batch is delivered to a target that is not a topic.

Each Spark task passes its rows to the target as Arrow record batches. Single rows that the target refuses, and rows
that failed in a step, are written to the dead-letter topic in the same job. Any other error fails the task: Spark runs
it again, then fails the query, and the next run repeats the same micro-batch. So a target may receive rows twice; its
`repeats` says what happens to them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import EntryShape
from barnabas.pipelines.formats.columns import DDL_TYPES
from barnabas.pipelines.plan.relations import Join
from barnabas.pipelines.spark.exact_json import json_text
from barnabas.pipelines.spark.folders import Folder
from barnabas.pipelines.spark.frame import DELETED, ERROR_TYPE, RECORD_COLUMNS, Frame, quoted
from barnabas.pipelines.spark.outgoing import DOCUMENT, IDENTITY, dead_columns
from barnabas.pipelines.spark.private import require_whole_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipelines.plan.outputs import Output, Target
    from barnabas.pipelines.plan.pipeline import PipelineSpec

RECORD_DDL: Final = ", ".join(f"{name} {DDL_TYPES[name[1:]]}" for name in RECORD_COLUMNS)
RESULT_DDL: Final = f"{RECORD_DDL}, _error {ERROR_TYPE}"


class DeliveryError(Exception):
    """The target did not accept a batch; the message has its answer."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that the target will never accept, and why. row: its index in the batch."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A micro-batch for a target. query: its name, for users. identity: the id that Spark gave the query's checkpoint;
    together with the batch number it is unique, even if other queries have the same name."""

    query: str
    identity: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Task:
    """The part of a delivery that one Spark task has. part: the number of the task; a repeated micro-batch may be divided
    in another way. open: whether documents may have fields without a column. nested: the fields whose values are objects,
    lists or variants, as JSON text. in_order: whether its rows come from records, in their order, and all rows from the
    offsets between the first and the last of a partition are in this part."""

    query: str
    batch_id: int
    part: int
    identity: str = ""
    open: bool = False
    in_order: bool = False
    nested: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """Identifies this part of the delivery; the same when it is repeated with the same division."""
        return f"{self.identity or self.query}-{self.batch_id}-{self.part}"


Materialise = Callable[
    ["DataFrame", Delivery, "PipelineSpec", "Output", Sequence[str], Mapping[str, str], str | None], None
]
Deliver = Callable[
    [Mapping[str, Any], Task, Iterator[pa.RecordBatch]], Iterator[tuple[pa.RecordBatch, list[Refused]]]
]


@dataclass(frozen=True, slots=True)
class TargetKind:
    """One kind of target.

    shape: the entries that it accepts. check: makes options of the entry in the file (raises PipelineError). reach:
    contacts the target from the driver before anything runs (raises PipelineError if it does not answer). deliver:
    called in each task. write: called in the driver instead, for targets that Spark itself writes (for options for
    which `by_spark` is true). repeats: what happens to a repeated batch. takes_open: whether it accepts undeclared
    fields; None for a target that stores documents. takes_bytes: whether records without fields are delivered as bytes,
    not as text. by_place: whether documents are known by the place of their record, which then begins with the topic's
    id: a topic that is created again has the same offsets. deletes: whether rows can be deleted by their key. prepared:
    checks and completes the frame of an output when it is compiled. open: tries, with the query's checkpoint, whether the
    target can be written, before the query starts (raises TargetAway). materialise: in place of deliver and write, applies
    a micro-batch in the driver, with the query's checkpoint.
    """

    name: str
    repeats: str
    shape: EntryShape
    check: Callable[[Item], Mapping[str, Any]]
    reach: Callable[[Mapping[str, Any]], None]
    deliver: Deliver | None = None
    write: Callable[[Mapping[str, Any], Delivery, Frame], None] | None = None
    by_spark: Callable[[Mapping[str, Any]], bool] = lambda _: True
    takes_open: Callable[[Mapping[str, Any]], bool] | None = None
    takes_bytes: Callable[[Mapping[str, Any]], bool] = lambda _: False
    by_place: Callable[[Mapping[str, Any]], bool] = lambda _: False
    deletes: Callable[[Mapping[str, Any]], bool] = lambda _: False
    prepared: Callable[[PipelineSpec, Output, Frame], Frame] | None = None
    open: Callable[[PipelineSpec, Output, str], None] | None = None
    materialise: Materialise | None = None


def deliver_batch(
    rows: DataFrame,
    batch_id: int,
    *,
    spec: PipelineSpec,
    query: str,
    output: str,
    checkpoint: str,
    kind: TargetKind,
    target: Target,
    fields: Sequence[str],
    open: bool,
    settings: Mapping[str, str],
) -> None:
    """Delivers a micro-batch of `identified` rows; refused rows go to the dead letters."""
    spark = rows.sparkSession
    if kind.by_place(target.options):
        rows = placed(rows, topic_ids(Folder(spark, checkpoint), batch_id))
    delivery = Delivery(query, checkpoint_identity(spark, checkpoint), batch_id)
    deliver_rows(rows, delivery, spec, output, kind, target, fields, open, settings, checkpoint)


def topic_ids(folder: Folder, batch_id: int) -> dict[str, str]:
    """The ids of the topics of a micro-batch, by name, from a query's checkpoint."""
    lines = folder.read(f"offsets/{batch_id}").decode().splitlines()[2:]
    ids: dict[str, str] = {}
    for line in lines:
        offsets = json.loads(line) if line.startswith("{") else {}
        ids |= {t: entry["id"] for t, entry in offsets.items() if isinstance(entry, dict) and "id" in entry}
    return ids


def placed(rows: DataFrame, ids: Mapping[str, str]) -> DataFrame:
    """`identified` rows whose places begin with the first part of the topic's id."""
    pairs = [F.lit(part) for topic, uuid in ids.items() for part in (topic, uuid.partition("-")[0])]
    if not pairs or "_topic" not in rows.columns:
        return rows
    known = F.create_map(*pairs)[F.col("_topic")]
    whole = F.when(known.isNull(), F.col(IDENTITY)).otherwise(F.concat_ws("-", known, F.col(IDENTITY)))
    return rows.withColumn(IDENTITY, whole)


def deliver_rows(
    rows: DataFrame,
    delivery: Delivery,
    spec: PipelineSpec,
    output: str,
    kind: TargetKind,
    target: Target,
    fields: Sequence[str],
    open: bool,
    settings: Mapping[str, str],
    checkpoint: str | None = None,
) -> None:
    """Delivers rows like `deliver_batch`, for a given delivery. output: the rows' output, for the dead letters.
    checkpoint: None in a replay."""
    if kind.materialise is not None:
        chosen = next(o for o in spec.outputs if o.name == output)
        kind.materialise(rows, delivery, spec, chosen, fields, settings, checkpoint)
        return
    if kind.write is not None and kind.by_spark(target.options):
        rows = rows.persist()
        try:
            kind.write(target.options, delivery, Frame(_good(rows), tuple(fields), open))
            refused = rows.where(F.col("_error").isNotNull()).select(*result_columns(rows))
            bury(refused, spec, settings)
        finally:
            rows.unpersist()
        return
    assert kind.deliver is not None
    columns = [*result_columns(rows), F.col(DOCUMENT), F.col(IDENTITY)]
    marks = [F.col(DELETED)] if DELETED in rows.columns else []
    plain = _in_order(rows, spec, output).select(
        *columns, *[plain_column(rows, name) for name in fields], *marks
    )
    nested = frozenset(name for name in fields if _is_nested(rows, name))
    in_order = keeps_order(spec, output)
    work = _Work(kind.name, target.options, delivery, open, kind.deliver, output, in_order, nested)
    bury(plain.mapInArrow(work, RESULT_DDL), spec, settings)


@functools.cache
def checkpoint_identity(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query whose checkpoint this is."""
    return str(Folder(spark, checkpoint).read_note("metadata")["id"]).replace("-", "")


def _in_order(rows: DataFrame, spec: PipelineSpec, output: str) -> DataFrame:
    """The rows in the order of their records, if a step may have mixed them: the last one with a key counts."""
    chosen = next(o for o in spec.outputs if o.name == output)
    above = spec.plan.needed(chosen.relation)
    operators = [*chosen.operators, *(operator for relation in above for operator in relation.operators)]
    if chosen.aggregate is not None or not any(operator.stateful for operator in operators):
        return rows
    place = ("_topic", "_partition")
    return rows.repartition(*place).sortWithinPartitions(*place, "_offset")


def keeps_order(spec: PipelineSpec, output: str) -> bool:
    """Whether each task has an unbroken range of each partition's records (`Task.in_order`): no record is read twice, and
    no aggregate or join has rows that come from no single record."""
    chosen = next(o for o in spec.outputs if o.name == output)
    plan = spec.plan
    if chosen.aggregate is not None or any(
        relation.aggregate is not None or isinstance(relation.origin, Join)
        for relation in plan.needed(chosen.relation)
    ):
        return False
    scans = list(plan.scans(chosen.relation))
    if len(scans) == 1:
        return scans[0].kind == "topic"
    topics = [topic for source in scans for topic in source.topics]
    return all(source.topics for source in scans) and len(set(topics)) == len(topics)


def _good(rows: DataFrame) -> DataFrame:
    return rows.where(F.col("_error").isNull())


def result_columns(rows: DataFrame) -> list[Any]:
    """The record's columns and the error. Rows of an aggregate have no record; their document becomes the value."""
    there = set(rows.columns)
    columns = []
    for name in RECORD_COLUMNS:
        if name in there:
            columns.append(F.col(name))
        elif name == "_value":
            columns.append(F.col(DOCUMENT).cast("binary").alias(name))
        else:
            columns.append(F.lit(None).cast(DDL_TYPES[name[1:]]).alias(name))
    error = F.col("_error") if "_error" in there else F.lit(None).cast(ERROR_TYPE).alias("_error")
    return [*columns, error]


NESTED: Final = ("struct", "map", "array")


def _is_nested(rows: DataFrame, name: str) -> bool:
    return bool(rows.schema[name].dataType.simpleString().startswith((*NESTED, "variant")))


def plain_column(rows: DataFrame, name: str) -> Any:
    """A field in a type that other programs can read: objects as JSON text, variants as text."""
    kind = rows.schema[name].dataType.simpleString()
    column = F.col(quoted(name))
    if kind == "variant":
        column = column.cast("string")
    elif kind.startswith(NESTED):
        column = json_text(rows, column)
    return column.alias(name)


def bury(refused: DataFrame, spec: PipelineSpec, settings: Mapping[str, str]) -> None:
    """Writes rows with an error to the dead-letter topic. Only this write makes Spark run the delivery."""
    columns = dead_columns(spec)
    rows = refused.select(*[column.alias(name) for name, column in columns.items()])
    rows.write.format("barnabas").options(**settings).mode("append").save()


@dataclass(frozen=True, slots=True)
class _Work:
    """Runs in the tasks: delivers the good rows, returns the others."""

    kind: str
    options: Mapping[str, Any]
    delivery: Delivery
    open: bool
    deliver: Deliver
    output: str
    in_order: bool
    nested: frozenset[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        delivery = self.delivery
        task = Task(
            delivery.query, delivery.batch_id, part, delivery.identity, self.open, self.in_order, self.nested
        )
        failed_before: list[pa.RecordBatch] = []
        results = self.deliver(self.options, task, self._good(batches, failed_before))
        for batch, refused in results:
            yield from failed_before
            failed_before.clear()
            if refused:
                yield _marked(batch, refused, f"deliver {self.kind}", self.output)
        yield from failed_before

    @staticmethod
    def _good(batches: Iterable[pa.RecordBatch], failed: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            errors = batch.column(batch.schema.get_field_index("_error"))
            if errors.null_count < batch.num_rows:
                yield batch.filter(errors.is_null()) if errors.null_count else batch.slice(0, 0)
            else:
                yield batch
            bad = batch.filter(errors.is_valid())
            if bad.num_rows:
                failed.append(bad.select(range(len(RECORD_COLUMNS) + 1)))
        require_whole_input()  # before the target commits


def _marked(batch: pa.RecordBatch, refused: list[Refused], step: str, output: str) -> pa.RecordBatch:
    """The refused rows, with the reason as their error."""
    rows = batch.take(pa.array([r.row for r in refused], pa.int64())).select(range(len(RECORD_COLUMNS) + 1))
    names = rows.schema.names
    at = names.index("_error")
    error_rows = [{"step": step, "reason": r.reason, "output": output} for r in refused]
    errors = pa.array(error_rows, rows.schema.field(at).type)
    return rows.set_column(at, rows.schema.field(at), errors)


def documents(batch: pa.RecordBatch) -> list[str]:
    """The JSON documents of a batch."""
    texts: list[str] = batch.column(batch.schema.get_field_index(DOCUMENT)).to_pylist()
    return texts


def identities(batch: pa.RecordBatch) -> list[str | None]:
    """The ids of a batch's documents."""
    ids: list[str | None] = batch.column(batch.schema.get_field_index(IDENTITY)).to_pylist()
    return ids


def field_names(batch: pa.RecordBatch) -> list[str]:
    """The fields of the pipeline in a batch, without the record's own columns."""
    names: list[str] = batch.schema.names
    return [name for name in names[len(RECORD_COLUMNS) + 3 :] if name != DELETED]


def deletions(batch: pa.RecordBatch) -> list[bool]:
    """For each row of a batch, whether it stands for a delete."""
    at = batch.schema.get_field_index(DELETED)
    return [False] * batch.num_rows if at < 0 else batch.column(at).to_pylist()
