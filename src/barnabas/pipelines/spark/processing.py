"""User code with state in Spark: one `transformWithState` per step, whose rows carry their records as text.

Spark's Python worker makes a Python object of each cell, which takes longer than anything else here. So a row has few of
them: its key, its place, its fields, and one text with all hidden columns, which is only passed on. With Spark's other way,
by pandas, it is slower still (docs/decisions/0014-user-code-in-rows.md).

State is kept as text, so that Spark keeps values and times as they are, whatever time zone a worker has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from barnabas.pipelines.plan.processing import Process, State
from barnabas.pipelines.processing.code import own_modules
from barnabas.pipelines.processing.engine import Engine, RowOutcome, StateLost
from barnabas.pipelines.processing.values import EPOCH, Type, type_named
from barnabas.pipelines.spark.frame import ROW, TEXT, Frame, fail, quoted
from barnabas.pipelines.spark.outgoing import json_value
from barnabas.pipelines.spark.private import pickled, unpickled

if TYPE_CHECKING:
    from pyspark.sql.streaming import (
        ExpiredTimerInfo,
        ListState,
        MapState,
        StatefulProcessorHandle,
        TimerValues,
        ValueState,
    )

EVENT: Final = "_event"
"""The column with a row's event time; compiler/relations.py makes it."""
SKIPPED: Final = "_skipped"
MODES: Final = {"none": "none", "event": "eventTime", "clock": "processingTime"}
PLACE: Final = "\x1f"
FINISHED: Final = 1 << 24
"""The number of the first row that was made once all rows of a key were processed: after those of its last record."""
KEPT: Final = "v string"
KEY_OF_MAP: Final = "k string"


class SparkStore:
    """The state of the present key in Spark's state store."""

    def __init__(self, handle: StatefulProcessorHandle, states: dict[str, State]) -> None:
        self.handle = handle
        self.values: dict[str, ValueState] = {}
        self.lists: dict[str, ListState] = {}
        self.maps: dict[str, MapState] = {}
        for name, state in states.items():
            if state.kind == "value":
                self.values[name] = handle.getValueState(name, KEPT, state.ttl_ms)
            elif state.kind == "list":
                self.lists[name] = handle.getListState(name, KEPT, state.ttl_ms)
            else:
                self.maps[name] = handle.getMapState(name, KEY_OF_MAP, KEPT, state.ttl_ms)

    def value(self, name: str) -> str | None:
        row = self.values[name].get()
        return None if row is None else row[0]

    def set_value(self, name: str, text: str | None) -> None:
        if text is None:
            self.values[name].clear()
        else:
            self.values[name].update((text,))

    def entries(self, name: str) -> list[str]:
        return [row[0] for row in self.lists[name].get()]

    def set_entries(self, name: str, texts: list[str]) -> None:
        if texts:
            self.lists[name].put([(text,) for text in texts])
        else:
            self.lists[name].clear()

    def append(self, name: str, texts: list[str]) -> None:
        self.lists[name].appendList([(text,) for text in texts])

    def get(self, name: str, key: str) -> str | None:
        row = self.maps[name].getValue((key,))
        return None if row is None else row[0]

    def put(self, name: str, key: str, text: str | None) -> None:
        if text is None:
            self.maps[name].removeKey((key,))
        else:
            self.maps[name].updateValue((key,), (text,))

    def pairs(self, name: str) -> list[tuple[str, str]]:
        return [(key[0], value[0]) for key, value in self.maps[name].iterator()]

    def timers(self) -> list[int]:
        return list(self.handle.listTimers())

    def set_timer(self, at_ms: int) -> None:
        self.handle.registerTimer(at_ms)

    def delete_timer(self, at_ms: int) -> None:
        self.handle.deleteTimer(at_ms)


class Guarded:
    """A store whose errors end the task instead of becoming the reason of a dead letter."""

    def __init__(self, store: SparkStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def guarded(*arguments: Any) -> Any:
            try:
                return method(*arguments)
            except Exception as error:
                raise StateLost(f"the state of a process step cannot be used: {error}") from error

        setattr(self, name, guarded)
        return guarded


@dataclass
class Running(StatefulProcessor):
    """The step in a worker. code: the pickled class. keys: the types of the key's values, by name."""

    code: bytes
    states: dict[str, State]
    returns: dict[str, str]
    keys: dict[str, str]
    time: str

    def init(self, handle: StatefulProcessorHandle) -> None:
        store = SparkStore(handle, self.states)
        self._engine: Engine | None = None
        self._store: Any = Guarded(store)
        self._types: tuple[Type, ...] = tuple(type_named(kind) for kind in self.keys.values())

    def _begun(self, key: str, timers: TimerValues) -> Engine:
        if self._engine is None:
            self._engine = Engine(unpickled(self.code), self.states, self.returns, self._store)
        plain = json.loads(key)
        values = [None if v is None else kind.restored(v) for v, kind in zip(plain, self._types, strict=True)]
        timed = self.time != "none"
        now_ms = timers.getCurrentProcessingTimeInMs() if self.time == "clock" else 0
        watermark_ms = timers.getCurrentWatermarkInMs() if self.time == "event" else 0
        named = values[0] if len(values) == 1 else tuple(values)
        self._engine.begin(named, now_ms, watermark_ms if watermark_ms > 0 else None, timed=timed)
        return self._engine

    def handleInputRows(self, key: Any, rows: Iterable[Any], timerValues: TimerValues) -> Iterator[Row]:
        if key[0] is None:  # rows that failed before
            for row in rows:
                yield _row(row.record)
            return
        engine = self._begun(key[0], timerValues)
        ordered = in_order(list(rows))
        fields_of_rows = [row.fields for row in ordered]
        engine.prepare(fields_of_rows)
        for row, fields in zip(ordered, fields_of_rows, strict=True):
            yield from self._rows(engine.process(fields, _event_time(row.place)), row.record, None)
        if engine.finishes and ordered:
            yield from self._rows(engine.finish(), ordered[-1].record, None, first=FINISHED)
        engine.end()

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        engine = self._begun(key[0], timerValues)
        at_ms = expiredTimerInfo.getExpiryTimeInMs()
        fired = engine.fire(at_ms)
        finished = engine.finish() if engine.finishes else RowOutcome()
        engine.end()
        named = json.dumps(dict(zip(self.keys, json.loads(key[0]), strict=True)), ensure_ascii=False)
        yield from self._rows(fired, None, at_ms, named)
        yield from self._rows(finished, None, at_ms, named, first=FINISHED)

    def close(self) -> None:
        """Nothing is open."""

    def _rows(
        self,
        outcome: RowOutcome,
        record: str | None,
        at_ms: int | None,
        key: str | None = None,
        first: int = 0,
    ) -> Iterator[Row]:
        """first: the number of the first row among those of the record."""
        if outcome.reason is not None:
            yield _row(record, reason=outcome.reason, at_ms=at_ms, key=key)
        several = first > 0 or len(outcome.rows) > 1
        for number, fields in enumerate(outcome.rows, first):
            yield _row(record, fields, number if several else None, at_ms=at_ms, key=key)


def _row(
    record: str | None,
    fields: dict[str, Any] | None = None,
    number: int | None = None,
    *,
    reason: str | None = None,
    at_ms: int | None = None,
    key: str | None = None,
) -> Row:
    return Row(fields=fields, record=record, number=number, reason=reason, at_ms=at_ms, key=key)


RESULT: Final = "record string, number int, reason string, at_ms bigint, key string"


def _event_time(place: str) -> datetime | None:
    micros = place.rpartition(PLACE)[2]
    return EPOCH + timedelta(microseconds=int(micros)) if micros else None


def in_order(rows: list[Any]) -> list[Any]:
    """Rows of one key in the order of their partitions' offsets; those of several partitions by their times, but none
    before an older offset of its partition."""
    if len(rows) < 2:
        return rows
    placed = []
    for row in rows:
        topic, partition, offset, at, sub, _ = row.place.split(PLACE)
        placed.append(((topic, int(partition)), int(offset), _numbers(sub), int(at), row))
    placed.sort(key=lambda one: one[:3])
    reached: dict[tuple[str, int], int] = {}
    timed = []
    for place, offset, sub, at, row in placed:
        reached[place] = max(at, reached.get(place, at))
        timed.append((reached[place], place, offset, sub, row))
    timed.sort(key=lambda one: one[:4])
    return [one[-1] for one in timed]


def _numbers(sub: str) -> tuple[tuple[int, str], ...]:
    """The number of a row among those of its record, and so on for each step that made several, as sorting needs it."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in sub.split("-")) if sub else ()


def processed(frame: Frame, step: Process, keys: dict[str, Column]) -> Frame:
    """The frame after a step of user code. keys: the values of its key, none of which is null in rows without an error.
    Raises PipelineError."""
    if frame.open:
        fail(step, "the fields must be known: declare them in the parse step, or name them in a keep step")
    if frame.deletes:
        fail(step, "records may be deletes (tombstones: deletes), which have no fields to process")
    if not frame.fields:
        fail(step, "there are no fields to process: begin with a parse step")
    if step.windows is not None:
        step = replace(step, returns=_results(frame, step, keys))
    data = frame.data
    if step.time == "event" and EVENT not in data.columns:
        fail(step, "time: event needs an event time: give the source or relation that it reads `time`, and put the step "
             "into a relation or an output after it")  # fmt: skip
    hidden = [name for name in data.columns if name not in frame.fields]
    keyed = data.select(
        F.when(F.col("_error").isNull(), _key_text(frame, step, keys)).alias("k"),
        F.struct(*[_typed(frame, name) for name in frame.fields]).alias("fields"),
        F.to_json(F.struct(*[_plain(data, name) for name in hidden])).alias("record"),
        F.concat_ws(PLACE, *_place(hidden)).alias("place"),
    )
    running = Running(
        pickled(step.code, own_modules(step.code)),
        dict(step.states),
        dict(step.returns),
        {name: _plain_kind(frame, key) for name, key in keys.items()},
        step.time,
    )
    # Spark drops late rows by the column that it has a watermark for. Here that is in a text, so no row is dropped.
    fields = ",".join(f"{quoted(name)}:{kind}" for name, kind in step.returns.items())
    result = f"fields struct<{fields}>, {RESULT}"
    rows = keyed.groupBy("k").transformWithState(running, result, "append", MODES[step.time])
    return _opened(frame, step, rows, hidden)


def _results(frame: Frame, step: Process, keys: dict[str, Column]) -> dict[str, str]:
    """All fields of the results of an aggregate: the key's, the window's, and its own."""
    assert step.windows is not None
    bounds = dict.fromkeys(step.windows.names, "timestamp")
    kinds = {name: _plain_kind(frame, key) for name, key in keys.items()}
    names = [*kinds, *bounds, *step.returns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        fail(step, f"two fields of the results are called {twice!r}: rename one")
    return {**kinds, **bounds, **step.returns}


def _place(hidden: list[str]) -> list[Column]:
    at = F.coalesce(F.unix_micros(F.col("_timestamp")), F.lit(0))
    sub = F.coalesce(F.col(ROW), F.lit("")) if ROW in hidden else F.lit("")
    parts = [F.coalesce(F.col("_topic"), F.lit("")), F.coalesce(F.col("_partition"), F.lit(0))]
    parts += [F.coalesce(F.col("_offset"), F.lit(0)), at]
    event = F.unix_micros(F.col(EVENT)).cast("string") if EVENT in hidden else F.lit(None)
    return [*[part.cast("string") for part in parts], sub, F.coalesce(event, F.lit(""))]


def _typed(frame: Frame, name: str) -> Column:
    """A field; of the type void, which Arrow does not pass, a text."""
    column = F.col(quoted(name))
    return (column.cast("string") if frame.kind(column) == "void" else column).alias(name)


def _plain_kind(frame: Frame, key: Column) -> str:
    kind = frame.kind(key)
    return "string" if kind in ("void", "variant") else kind


def _key_text(frame: Frame, step: Process, keys: dict[str, Column]) -> Column:
    """The key's values as a JSON list, as processing/values.py reads it. Raises PipelineError."""
    parts = []
    for name, key in keys.items():
        kind = _plain_kind(frame, key)
        if kind.startswith(("array", "map", "struct")):
            fail(step, f"the key {name} is {kind}: name one of its fields, or convert it to text")
        if kind in ("timestamp", "timestamp_ntz"):
            parts.append(_or_null(F.unix_micros(key.cast("timestamp")).cast("string")))
        elif kind in ("tinyint", "smallint", "int", "bigint", "boolean"):
            parts.append(_or_null(key.cast("string")))
        else:
            listed = F.to_json(F.array(F.base64(key) if kind == "binary" else key.cast("string")))
            parts.append(listed.substr(F.lit(2), F.length(listed) - 2))
    return F.concat(F.lit("["), F.concat_ws(",", *parts), F.lit("]"))


def _or_null(text: Column) -> Column:
    return F.coalesce(text, F.lit("null"))


def _plain(data: DataFrame, name: str) -> Column:
    """A hidden column as JSON keeps it whole."""
    column = F.col(name)
    return (F.unix_micros(column) if _is_time(data, name) else column).alias(name)


def _is_time(data: DataFrame, name: str) -> bool:
    return isinstance(data.schema[name].dataType, TimestampType)


def _opened(frame: Frame, step: Process, rows: DataFrame, hidden: list[str]) -> Frame:
    """The frame of the rows that the step has made. Rows of timers come from no record: they have the key's values as key,
    and their timer's time."""
    before = frame.data
    schema = StructType(
        [
            StructField(name, LongType() if _is_time(before, name) else before.schema[name].dataType)
            for name in hidden
        ]
    )
    data = rows.withColumn("_record", F.from_json("record", schema, {"mode": "FAILFAST"}))
    of_timer, at = F.col("record").isNull(), F.timestamp_millis(F.col("at_ms"))
    columns: dict[str, Column] = {}
    for name in hidden:
        kept = F.col("_record")[name]
        columns[name] = F.timestamp_micros(kept) if _is_time(before, name) else kept
    columns["_key"] = F.when(of_timer, F.col("key").cast("binary")).otherwise(columns["_key"])
    columns["_timestamp"] = F.coalesce(columns["_timestamp"], at)
    number = F.when(of_timer, F.concat_ws("-", F.lit("at"), "at_ms", "number")).otherwise(F.col("number"))
    columns[ROW] = F.concat_ws("-", *([columns[ROW]] if ROW in hidden else []), number)
    columns |= {SKIPPED: F.coalesce(columns[SKIPPED], F.lit(False))} if SKIPPED in hidden else {}
    output = F.lit(step.output).cast("string").alias("output")
    error = F.struct(F.lit(step.label).alias("step"), F.col("reason"), output)
    columns["_error"] = F.when(F.col("reason").isNotNull(), error).otherwise(columns["_error"])
    if EVENT in hidden:
        # The mark of the column that Spark has a watermark for, by which later steps with state know it.
        mark = before.schema[EVENT].metadata
        columns[EVENT] = F.coalesce(columns[EVENT], at).alias(EVENT, metadata=mark)
    fields = {name: F.col("fields")[name] for name in step.returns}
    selected = data.select(
        *[column if name == EVENT else column.alias(name) for name, column in columns.items()],
        *[column.alias(name) for name, column in fields.items()],
    )
    done = Frame(selected, tuple(fields))
    text = F.when(F.col("_offset").isNull() & F.col("_error").isNull(), json_value(done).cast("string"))
    values = {"_value": F.coalesce(F.col("_value"), text.cast("binary")), TEXT: F.coalesce(F.col(TEXT), text)}
    return replace(done, data=selected.withColumns(values))
