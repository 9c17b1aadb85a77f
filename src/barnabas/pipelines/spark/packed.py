"""User code that takes entries (processing/packed.py) in Spark: a few rows for each task, which hold thousands of records.

    records -> pass over Arrow batches -> one transformWithState for each stage that keeps something -> rows

The first stage runs within the pass over the source's batches if it keeps nothing. What is made for topics, changes of
stores, and records that failed leave the last stage as texts (JSON), which Java divides into rows again.
"""

from __future__ import annotations

import json
import pickle
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.processing import Process, State
from barnabas.pipelines.plan.whole import WholeRecord
from barnabas.pipelines.processing.cells import TimerChanges
from barnabas.pipelines.processing.code import own_modules
from barnabas.pipelines.processing.packed import BUCKETS, Buckets, Entry, Origin, TaskOutput, in_order
from barnabas.pipelines.processing.processor import MILLISECOND, Timers
from barnabas.pipelines.processing.values import EPOCH
from barnabas.pipelines.spark.frame import ERROR_TYPE, ROW, Frame
from barnabas.pipelines.spark.outgoing import HEADERS_TYPE
from barnabas.pipelines.spark.private import pickled, unpickled
from barnabas.pipelines.spark.processing import MODES, Guarded, SparkStore

if TYPE_CHECKING:
    from pyspark.sql.streaming import ExpiredTimerInfo, StatefulProcessorHandle, TimerValues

PACK: Final = "stage int, task int, entries binary, texts string"
"""stage, task: which stage of which task the entries are for; rows with texts are for none any more."""
PACK_SCHEMA: Final = pa.schema(
    [
        pa.field("stage", pa.int32()),
        pa.field("task", pa.int32()),
        pa.field("entries", pa.binary()),
        pa.field("texts", pa.string()),
    ]
)
DONE: Final = -1
"""The stage of rows that no stage takes any more."""
BYTES_MAX: Final = 256 << 10
"""About how many bytes of entries, or characters of texts, are in one row."""
ROWS_MAX: Final = 2000
READ_MAX: Final = 8192
"""Records that the pass over the source's batches takes at once, unless their values have more than READ_BYTES_MAX bytes."""
READ_BYTES_MAX: Final = 4 << 20
BUCKET_STATE: Final = {BUCKETS: State("map", "string", "string")}
TEXTS: Final = (
    "array<struct<stage:int,key:string,value:string,at:bigint,headers:string,to:string,out_key:string,out_value:string,"
    "topic:string,partition:int,offset:bigint,reason:string>>"
)
"""What is in texts. In rows that failed, out_key, out_value, headers and at (microseconds) are those of the record."""


def takes_packs(step: Operator) -> TypeGuard[Process]:
    """Whether it is a step whose code takes entries."""
    return isinstance(step, Process) and hasattr(step.code, "process_entries")


# --- rows ---------------------------------------------------------------------------------------------


def spread_over(tasks: int) -> tuple[int, ...]:
    """For each task a number that Spark puts into a partition of its own, if there are as many partitions as tasks."""
    numbers: dict[int, int] = {}
    number = 0
    while len(numbers) < tasks:
        numbers.setdefault(hash_of(number) % tasks, number)
        number += 1
    return tuple(numbers[task] for task in range(tasks))


def hash_of(number: int) -> int:
    """Spark's hash (Murmur3) of an integer, as a signed number; only how even the load is depends on it."""
    k = number * 0xCC9E2D51 & 0xFFFFFFFF
    k = (k << 15 | k >> 17) * 0x1B873593 & 0xFFFFFFFF
    h = 42 ^ k
    h = ((h << 13 | h >> 19) & 0xFFFFFFFF) * 5 + 0xE6546B64 & 0xFFFFFFFF
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _packs(
    packed: TaskOutput, spread: Sequence[int], stage: int, task: int
) -> Iterator[tuple[int, int, bytes | None, str | None]]:
    """Rows (see PACK) with what a task of a stage has made."""
    for (coming, other), entries in packed.onward.items():
        for piece in pieces_of(entries):
            yield coming, spread[other], piece, None
    texts: list[dict[str, Any]] = []
    size = 0
    for number, text in enumerate(_leaving_rows(packed, stage, task)):
        texts.append(text)
        size += len(text.get("out_value") or text.get("value") or "") + 200
        if size > BYTES_MAX or len(texts) == ROWS_MAX:
            yield DONE, spread[number % len(spread)], None, _json(texts)
            texts, size = [], 0
    if texts:
        yield DONE, spread[0], None, _json(texts)


def pieces_of(entries: list[Entry]) -> Iterator[bytes]:
    plain = [(None if origin is None else tuple(origin), place, items) for origin, place, items in entries]
    data = pickle.dumps(plain, 5)
    if len(data) <= BYTES_MAX or len(entries) == 1:
        yield data
        return
    half = len(entries) // 2
    yield from pieces_of(entries[:half])
    yield from pieces_of(entries[half:])


def entries_in(data: bytes) -> list[Entry]:
    return [
        Entry(None if origin is None else Origin._make(origin), place, items)
        for origin, place, items in pickle.loads(data)
    ]


def _json(texts: list[dict[str, Any]]) -> str:
    return json.dumps(texts, separators=(",", ":"))


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b2a_base64(data, newline=False).decode()


def _leaving_rows(packed: TaskOutput, stage: int, task: int) -> Iterator[dict[str, Any]]:
    """What leaves the last stage, as in TEXTS."""
    for fields, origin in packed.rows:
        text = {name: value for name, value in fields.items() if value is not None}
        for name in ("out_key", "out_value"):
            if name in text:
                text[name] = _base64(text[name])
        if origin is not None:
            text |= {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset}
        yield text
    for origin, reason in packed.failed:
        if origin is None:
            yield {"stage": stage, "out_key": _base64(b'{"task":%d}' % task), "reason": reason}
            continue
        headers = [[name, _base64(value)] for name, value in origin.headers]
        yield {
            "stage": stage,
            "topic": origin.topic,
            "partition": origin.partition,
            "offset": origin.offset,
            "at": origin.at_us,
            "out_key": _base64(origin.key),
            "out_value": _base64(origin.value),
            "headers": json.dumps(headers) if headers else None,
            "reason": reason,
        }


# --- code at work -------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _code(data: bytes) -> Any:
    """The class of a stage, which all tasks of a query in this process share."""
    return unpickled(data)


def _object(code: bytes) -> Any:
    code_object = _code(code)()
    code_object.timers = Timers()
    code_object.init()
    return code_object


@dataclass
class Reading:
    """The pass over the source's batches."""

    code: bytes
    tasks: int
    spread: tuple[int, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stage = _object(self.code)
        stage.cells, stage.key = {"kept": {}}, 0
        reached: Reached = {}
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if (
                sum(one.num_rows for one in waiting) >= READ_MAX
                or sum(one.nbytes for one in waiting) >= READ_BYTES_MAX
            ):
                yield self._read(stage, waiting, reached)
                waiting = []
        if waiting:
            yield self._read(stage, waiting, reached)

    def _read(self, stage: Any, batches: list[pa.RecordBatch], reached: Reached) -> pa.RecordBatch:
        origins = [origin for batch in batches for origin in _origins(batch, reached)]
        if stage.keeps_nothing:
            packed = stage.process_entries([Entry(origin, (), []) for origin in origins])
        else:
            packed = TaskOutput()
            tasks = [task for batch in batches for task in batch.column("task").to_pylist()]
            for origin, task in zip(origins, tasks, strict=True):
                packed.onward.setdefault((0, task), []).append(Entry(origin, (), []))
        rows = list(_packs(packed, self.spread, 0, 0))
        columns: list[Any] = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
        arrays = [
            pa.array(list(column), field.type) for column, field in zip(columns, PACK_SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=PACK_SCHEMA)


Reached = dict[tuple[str, int], int]
"""The latest timestamp so far in each partition, in microseconds."""


def _origins(batch: pa.RecordBatch, reached: Reached) -> Iterator[Origin]:
    headers: Iterable[Any] = batch.column("headers").to_pylist()
    columns = [
        batch.column(name).to_pylist() for name in ("topic", "partition", "offset", "at", "key", "value")
    ]
    for topic, partition, offset, at, key, value, pairs in zip(*columns, headers, strict=True):
        named = tuple((pair["key"], pair["value"]) for pair in pairs) if pairs else ()
        latest = reached.get((topic, partition), 0)
        yield Origin(topic, partition, offset, at, key, value, named, latest)
        reached[topic, partition] = max(at, latest)


@dataclass
class Packed(StatefulProcessor):
    """A stage in a worker."""

    code: bytes
    stage: int
    spread: tuple[int, ...]
    time: str

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._store: Any = Guarded(SparkStore(handle, BUCKET_STATE))
        self._object: Any = None

    def _begun(self, key: int, timers: TimerValues) -> Any:
        if self._object is None:
            self._object = _object(self.code)
        stage = self._object
        stage.key = self.spread.index(key)
        now_ms = timers.getCurrentProcessingTimeInMs() if self.time == "clock" else 0
        stage.now = EPOCH + now_ms * MILLISECOND
        stage.cells = {"kept": Buckets(self._store)}
        stage.timers.changes = TimerChanges(self._store, []) if self.time == "clock" else None
        return stage

    def _ended(self, stage: Any, packed: TaskOutput) -> Iterator[Row]:
        stage.cells["kept"].flush()
        if stage.timers.changes is not None:
            stage.timers.changes.flush()
        for number, task, data, texts in _packs(packed, self.spread, self.stage, stage.key):
            yield Row(stage=number, task=task, entries=data, texts=texts)

    def handleInputRows(self, key: Any, rows: Iterable[Any], timerValues: TimerValues) -> Iterator[Row]:
        entries: list[Entry] = []
        for row in rows:
            if row.stage == self.stage:
                entries += entries_in(row.entries)
            else:
                yield Row(stage=row.stage, task=row.task, entries=row.entries, texts=row.texts)
        if entries:
            stage = self._begun(key[0], timerValues)
            yield from self._ended(stage, stage.process_entries(in_order(entries)))

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        stage = self._begun(key[0], timerValues)
        yield from self._ended(stage, stage.fire_entries(expiredTimerInfo.getExpiryTimeInMs()))

    def close(self) -> None:
        """Nothing is open."""


# --- frames -------------------------------------------------------------------------------------------


def packed_stages(frame: Frame, whole: WholeRecord, steps: Sequence[Process]) -> Frame:
    """The frame after these steps. whole: says in how many tasks the stages run."""
    spread = spread_over(whole.tasks)
    codes = [pickled(step.code, own_modules(step.code)) for step in steps]
    checksum = F.crc32(F.coalesce(F.col("_key"), F.lit(b"")))
    origins = frame.data.select(
        F.col("_topic").alias("topic"),
        F.col("_partition").alias("partition"),
        F.col("_offset").alias("offset"),
        F.coalesce(F.unix_micros("_timestamp"), F.lit(0)).alias("at"),
        F.col("_key").alias("key"),
        F.col("_value").alias("value"),
        F.col("_headers").alias("headers"),
        (checksum % F.lit(whole.tasks)).cast("int").alias("task"),
    )
    rows = origins.mapInArrow(Reading(codes[0], whole.tasks, spread).__call__, PACK)
    for number, (step, code) in enumerate(zip(steps, codes, strict=True)):
        if number == 0 and step.code.keeps_nothing:
            continue
        running = Packed(code, number, spread, step.time)
        rows = rows.groupBy("task").transformWithState(running, PACK, "append", MODES[step.time])
    return _opened(frame, steps, rows)


def _opened(frame: Frame, steps: Sequence[Process], rows: DataFrame) -> Frame:
    """The frame of what has left the last stage."""
    last = steps[-1]
    labels = F.array(*[F.lit(step.label) for step in steps])
    row = F.explode(F.from_json("texts", TEXTS, {"mode": "FAILFAST"})).alias("row")
    data = rows.where(F.col("texts").isNotNull()).select(row)
    bad = F.col("row.reason").isNotNull()
    bytes_of = {name: F.unbase64(F.col(f"row.{name}")) for name in ("out_key", "out_value")}
    headers = F.expr(
        "transform(from_json(row.headers, 'array<array<string>>'), "
        "h -> named_struct('key', h[0], 'value', unbase64(h[1])))"
    ).cast(HEADERS_TYPE)
    error = F.struct(
        labels[F.col("row.stage")].alias("step"),
        F.col("row.reason").alias("reason"),
        F.lit(last.output).cast("string").alias("output"),
    )
    hidden: dict[str, Column] = {
        "_key": F.when(bad, bytes_of["out_key"]),
        "_value": F.when(bad, bytes_of["out_value"]),
        "_topic": F.col("row.topic"),
        "_partition": F.col("row.partition"),
        "_offset": F.col("row.offset"),
        "_timestamp": F.when(bad, F.timestamp_micros("row.at")),
        "_headers": F.when(bad, headers),
        "_error": F.when(bad, error.cast(ERROR_TYPE)),
    }
    fields = {name: F.col(f"row.{name}") for name in ("stage", "key", "value", "at", "headers", "to")}
    fields |= {"node": F.lit(None), "task": F.lit(0), **bytes_of}
    names = [name for name in frame.data.columns if name not in frame.fields]
    nothing = {name: F.lit(None).cast(frame.data.schema[name].dataType) for name in names}
    columns = {**nothing, ROW: F.lit(None).cast("string"), **hidden}
    columns |= {name: F.when(~bad, fields[name]).cast(kind) for name, kind in last.returns.items()}
    selected = data.select(*[column.alias(name) for name, column in columns.items()])
    return replace(frame, data=selected, fields=tuple(last.returns))
