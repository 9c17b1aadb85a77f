"""How a micro-batch leaves for a target that is no topic.

Each Spark task hands its rows to the target as Arrow record batches. Rows that the target refuses one by one,
and rows that a step could not handle, come back and go to the dead-letter topic in the same job. Anything else
that goes wrong fails the task: Spark runs it again, then fails the query, and the next run does the same micro-batch
again. So a target is told things twice now and then; each says in its `repeats` what comes of that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from barnabas.pipelines.columns import DDL_TYPES
from barnabas.pipelines.document import Item
from barnabas.pipelines.folders import Folder
from barnabas.pipelines.outgoing import DOCUMENT, IDENTITY, JSON_OPTIONS, dead_columns
from barnabas.pipelines.plan import operator_of
from barnabas.pipelines.shapes import Shape
from barnabas.pipelines.spark_private import require_whole_input
from barnabas.pipelines.steps.base import DELETED, ERROR_TYPE, RECORD_COLUMNS, Frame, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipelines.model import PipelineSpec, Target

RECORD_DDL: Final = ", ".join(f"{name} {DDL_TYPES[name[1:]]}" for name in RECORD_COLUMNS)
RESULT_DDL: Final = f"{RECORD_DDL}, _error {ERROR_TYPE}"


class DeliveryError(Exception):
    """The target did not take a batch; the message says what it answered."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A row, by its place in the batch, that the target will never take, and why."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A micro-batch on its way to a target. query: its name, for people. identity: the id that Spark gave the query's
    checkpoint; with the batch number it names this delivery and no other, whatever else has the query's name."""

    query: str
    identity: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class Task:
    """A task's part of a delivery. part: the Spark task; the same micro-batch has the same parts when repeated. open:
    there are more fields in the documents than there are columns."""

    query: str
    batch_id: int
    part: int
    identity: str = ""
    open: bool = False

    @property
    def label(self) -> str:
        return f"{self.identity or self.query}-{self.batch_id}-{self.part}"


Deliver = Callable[
    [Mapping[str, Any], Task, Iterator[pa.RecordBatch]], Iterator[tuple[pa.RecordBatch, list[Refused]]]
]


@dataclass(frozen=True, slots=True)
class TargetKind:
    """One kind of target.

    shape: what its entry may hold. check: the file's entry to options (raises PipelineError). reach: tries the target
    from the driver before anything runs, and raises PipelineError when it does not answer. deliver: runs in a task. write:
    runs in the driver instead, for targets that Spark writes itself (`by_spark` says for which options). repeats: what
    a repeated batch does. takes_open: whether fields need not be known before; None for one that takes documents.
    takes_bytes: whether records without any field are delivered with their bytes, not as text. deletes: whether rows can
    be taken away by their key.
    """

    name: str
    repeats: str
    shape: Shape
    check: Callable[[Item], Mapping[str, Any]]
    reach: Callable[[Mapping[str, Any]], None]
    deliver: Deliver | None = None
    write: Callable[[Mapping[str, Any], Delivery, Frame], None] | None = None
    by_spark: Callable[[Mapping[str, Any]], bool] = lambda _: True
    takes_open: Callable[[Mapping[str, Any]], bool] | None = None
    takes_bytes: Callable[[Mapping[str, Any]], bool] = lambda _: False
    deletes: Callable[[Mapping[str, Any]], bool] = lambda _: False


def deliver_batch(
    rows: DataFrame,
    batch_id: int,
    *,
    spec: PipelineSpec,
    query: str,
    output: str,
    checkpoint: str,
    target: Target,
    fields: Sequence[str],
    open: bool,
    settings: Mapping[str, str],
) -> None:
    """Delivers a micro-batch of `identified` rows; what was refused goes to the dead letters."""
    delivery = Delivery(query, checkpoint_identity(rows.sparkSession, checkpoint), batch_id)
    deliver_rows(rows, delivery, spec, output, target, fields, open, settings)


def deliver_rows(
    rows: DataFrame,
    delivery: Delivery,
    spec: PipelineSpec,
    output: str,
    target: Target,
    fields: Sequence[str],
    open: bool,
    settings: Mapping[str, str],
) -> None:
    """The same under a name that the caller gives. output: whose rows they are, for the dead letters."""
    from barnabas.pipelines.delivery import TARGETS

    kind = TARGETS[target.kind]
    if kind.write is not None and kind.by_spark(target.options):
        rows = rows.persist()
        try:
            kind.write(target.options, delivery, Frame(_good(rows), tuple(fields), open))
            refused = rows.where(F.col("_error").isNotNull()).select(*_result_columns(rows))
            _bury(refused, spec, settings)
        finally:
            rows.unpersist()
        return
    assert kind.deliver is not None
    columns = [*_result_columns(rows), F.col(DOCUMENT), F.col(IDENTITY)]
    marks = [F.col(DELETED)] if DELETED in rows.columns else []
    plain = _in_order(rows, spec, output).select(*columns, *[_plain(rows, name) for name in fields], *marks)
    work = _Work(kind.name, target.options, delivery, open, kind.deliver, output)
    _bury(plain.mapInArrow(work, RESULT_DDL), spec, settings)


@functools.cache
def checkpoint_identity(spark: SparkSession, checkpoint: str) -> str:
    """The id of the query whose checkpoint this is."""
    return str(Folder(spark, checkpoint).read_note("metadata")["id"]).replace("-", "")


def _in_order(rows: DataFrame, spec: PipelineSpec, output: str) -> DataFrame:
    """The rows in the order of their records, where a step has mixed them: of rows with one key the last one counts."""
    chosen = next(o for o in spec.outputs if o.name == output)
    steps = [
        *chosen.steps,
        *(step for relation in spec.plan.needed(chosen.relation) for step in relation.steps),
    ]
    if chosen.aggregate is not None or not any(operator_of(step).stateful for step in steps):
        return rows
    place = ("_topic", "_partition")
    return rows.repartition(*place).sortWithinPartitions(*place, "_offset")


def _good(rows: DataFrame) -> DataFrame:
    return rows.where(F.col("_error").isNull())


def _result_columns(rows: DataFrame) -> list[Any]:
    """The record's columns and the error; an aggregate has no record behind it: its document stands in."""
    there = set(rows.columns)
    found = []
    for name in RECORD_COLUMNS:
        if name in there:
            found.append(F.col(name))
        elif name == "_value":
            found.append(F.col(DOCUMENT).cast("binary").alias(name))
        else:
            found.append(F.lit(None).cast(DDL_TYPES[name[1:]]).alias(name))
    error = F.col("_error") if "_error" in there else F.lit(None).cast(ERROR_TYPE).alias("_error")
    return [*found, error]


def _plain(rows: DataFrame, name: str) -> Any:
    """A field as Arrow and other programs know it: objects as JSON text, variants as text."""
    kind = rows.schema[name].dataType.simpleString()
    column = F.col(quoted(name))
    if kind == "variant":
        column = column.cast("string")
    elif kind.startswith(("struct", "map", "array")):
        column = F.to_json(column, JSON_OPTIONS)
    return column.alias(name)


def _bury(refused: DataFrame, spec: PipelineSpec, settings: Mapping[str, str]) -> None:
    """Writes rows with an error to the dead-letter topic. This is also what makes the delivery run."""
    columns = dead_columns(spec)
    rows = refused.select(*[column.alias(name) for name, column in columns.items()])
    rows.write.format("barnabas").options(**settings).mode("append").save()


@dataclass(frozen=True, slots=True)
class _Work:
    """Runs in the tasks: delivers good rows, gives back the others."""

    kind: str
    options: Mapping[str, Any]
    delivery: Delivery
    open: bool
    deliver: Deliver
    output: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        delivery = self.delivery
        task = Task(delivery.query, delivery.batch_id, part, delivery.identity, self.open)
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
    """The refused rows with their reason as error."""
    rows = batch.take(pa.array([r.row for r in refused], pa.int64())).select(range(len(RECORD_COLUMNS) + 1))
    names = rows.schema.names
    at = names.index("_error")
    made = [{"step": step, "reason": r.reason, "output": output} for r in refused]
    errors = pa.array(made, rows.schema.field(at).type)
    return rows.set_column(at, rows.schema.field(at), errors)


def documents(batch: pa.RecordBatch) -> list[str]:
    """The JSON documents of a batch."""
    found: list[str] = batch.column(batch.schema.get_field_index(DOCUMENT)).to_pylist()
    return found


def identities(batch: pa.RecordBatch) -> list[str | None]:
    """The ids of a batch's documents."""
    found: list[str | None] = batch.column(batch.schema.get_field_index(IDENTITY)).to_pylist()
    return found


def field_names(batch: pa.RecordBatch) -> list[str]:
    """The fields of the pipeline in a batch, without the record's own columns."""
    names: list[str] = batch.schema.names
    return [name for name in names[len(RECORD_COLUMNS) + 3 :] if name != DELETED]


def deletions(batch: pa.RecordBatch) -> list[bool]:
    """Which rows of a batch stand for a delete."""
    at = batch.schema.get_field_index(DELETED)
    return [False] * batch.num_rows if at < 0 else batch.column(at).to_pylist()
