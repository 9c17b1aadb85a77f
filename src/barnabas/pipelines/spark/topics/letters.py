"""Reads dead letters as the original records, column by column in Spark's tasks, without a Python object for each.

A letter's headers that begin with `barnabas.` hold the pipeline, step and output that failed, the reason, and the
topic, partition and offset of the record. `LetterSource` (the format `barnabas-letters`) decodes them in the tasks that
read the topic.

Letters remain in their topic. The letters that a replay has processed are noted in the topic `<dead letters>-replays`,
in records with the header `barnabas.mark`. Letters for an aggregate are copied to that topic, too, because only the
running query has the aggregate's state.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from barnabas.client.blocking import EARLIEST, LATEST
from barnabas.pipelines.formats.columns import ARROW_TYPES, DDL_TYPES, append_batch
from barnabas.pipelines.spark.outgoing import HEADER_PREFIX
from barnabas.pipelines.spark.private import each
from barnabas.pipelines.spark.topics.offsets import Range, split
from barnabas.pipelines.spark.topics.options import SourceOptions, source_options
from barnabas.pipelines.spark.topics.source import read_range
from barnabas.pipelines.spark.workers import settle
from barnabas.records.columnar_encoder import BatchEncoder
from barnabas.records.units import Offset

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

    from barnabas.client.blocking import BlockingClient
    from barnabas.pipelines.plan.outputs import Output
    from barnabas.pipelines.plan.pipeline import PipelineSpec

FORMAT: Final = "barnabas-letters"
MARK: Final = HEADER_PREFIX + "mark"
REPLAYED: Final = HEADER_PREFIX + "replayed"
"""The header with the number of replays, on a replayed record and on its letter if it failed again."""
RANGES_MAX: Final = 20_000
"""The most ranges in one mark, which is some 400 KB then."""
RECORD: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
SCHEMA: Final = pa.schema(
    [
        *[pa.field(name, ARROW_TYPES[name]) for name in RECORD],
        pa.field("reason", pa.string()),
        pa.field("step", pa.string()),
        pa.field("output", pa.string()),
        pa.field("attempts", pa.int32()),
        pa.field("letter_partition", pa.int32()),
        pa.field("letter_offset", pa.int64()),
    ]
)
DDL: Final = ", ".join(
    [
        *[f"{name} {DDL_TYPES[name]}" for name in RECORD],
        "reason string, step string, output string, attempts int, letter_partition int, letter_offset bigint",
    ]
)
Spans = dict[int, list[tuple[int, int]]]
"""Ranges of offsets by partition, from..to (exclusive)."""


def _last_of(keys: pa.Array, name: str, parents: Any, rows: int) -> Any:
    """The index of each row's last header of this name; -1 if it has none."""
    places = np.full(rows, -1, np.int64)
    there = np.flatnonzero(pc.equal(keys, HEADER_PREFIX + name).to_numpy(zero_copy_only=False))
    places[parents[there]] = there
    return places


def _texts(values: pa.Array, places: Any) -> pa.Array:
    taken = values.take(pa.array(places, mask=places < 0))
    try:
        return taken.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: another program wrote the header
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in taken.to_pylist()])


def _numbers(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    digits = pc.fill_null(pc.match_substring_regex(texts, "^[0-9]{1,18}$"), False)
    return pc.if_else(digits, texts, pa.scalar(None, pa.string())).cast(kind)


def restored(batch: pa.RecordBatch, pipeline: str) -> pa.RecordBatch:
    """The original records of a batch of the dead-letter topic, with the columns of SCHEMA; letters of other pipelines
    are filtered out."""
    headers = batch.column(batch.schema.get_field_index("headers"))
    entries = headers.flatten()
    keys, values = entries.field(0), entries.field(1)
    parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
    rows = batch.num_rows

    def header(name: str) -> pa.Array:
        return _texts(values, _last_of(keys, name, parents, rows))

    own = ~pc.starts_with(keys, HEADER_PREFIX).to_numpy(zero_copy_only=False)
    counts = np.bincount(parents[own], minlength=rows)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    kind = ARROW_TYPES["headers"]
    kept = pa.ListArray.from_arrays(
        offsets, entries.filter(pa.array(own)), type=kind, mask=pa.array(counts == 0)
    )
    place = {name: batch.column(batch.schema.get_field_index(name)) for name in RECORD}
    columns = {
        **place,
        "topic": header("topic"),
        "partition": _numbers(header("partition"), pa.int32()),
        "offset": _numbers(header("offset"), pa.int64()),
        "headers": kept,
        "reason": header("reason"),
        "step": header("step"),
        "output": header("output"),
        "attempts": pc.fill_null(_numbers(header("replayed"), pa.int32()), 0),
        "letter_partition": place["partition"],
        "letter_offset": place["offset"],
    }
    whole = pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
    return whole.filter(pc.fill_null(pc.equal(header("pipeline"), pipeline), False))


@dataclass(frozen=True, slots=True)
class Letters:
    """Which letters to read. topic: of dead letters. bounds: from..to (exclusive) by partition. done: without these."""

    topic: str
    pipeline: str
    bounds: Mapping[int, tuple[Offset, Offset]]
    done: Spans

    def options(self) -> dict[str, str]:
        """The same as options of the format `barnabas-letters`."""
        return {
            "subscribe": self.topic,
            "pipeline": self.pipeline,
            "bounds": json.dumps(self.bounds),
            "done": json.dumps(self.done),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Letters:
        """The inverse of `options`."""

        def spans(name: str) -> dict[int, Any]:
            return {int(partition): value for partition, value in json.loads(options[name]).items()}

        return cls(options["subscribe"], options["pipeline"], spans("bounds"), spans("done"))

    def ranges(self) -> list[Range]:
        """What each Spark task reads."""
        ranges = [Range(self.topic, p, start, end) for p, (start, end) in self.bounds.items() if end > start]
        return split(ranges, 2)


def letter_options(settings: Mapping[str, str], topic: str) -> SourceOptions:
    """The options for reading the topic; records that were deleted meanwhile are skipped."""
    kafka = {name: value for name, value in settings.items() if name.lower().startswith("kafka.")}
    return source_options({**kafka, "subscribe": topic, "includeHeaders": "true", "onDataLoss": "earliest"})


def read_letters(
    options: SourceOptions, part: Range, pipeline: str, done: Sequence[tuple[int, int]] = ()
) -> Iterator[pa.RecordBatch]:
    """The letters of a range, except those in `done` (sorted ranges of offsets, from..to exclusive)."""
    starts = np.array([start for start, _ in done], np.int64)
    ends = np.array([end for _, end in done], np.int64)
    for batch in read_range(options, part):
        letters = restored(batch, pipeline)
        if len(starts):
            offsets = letters.column(SCHEMA.get_field_index("letter_offset")).to_numpy(zero_copy_only=False)
            place = np.searchsorted(starts, offsets, "right") - 1
            letters = letters.filter(pa.array((place < 0) | (offsets >= ends[place])))
        if letters.num_rows:
            yield letters


class LetterReader(DataSourceReader):
    """A range of the topic per Spark task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.letters = Letters.from_options({name.lower(): value for name, value in options.items()})
        self.source = letter_options(options, self.letters.topic)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(part) for part in self.letters.ranges()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part = partition.value
        if part is None:  # Spark passes one partition of None if there are none
            return
        settle()
        yield from read_letters(
            self.source, part, self.letters.pipeline, self.letters.done.get(part.partition, ())
        )


class LetterSource(DataSource):
    """The data source that is registered in Spark as `barnabas-letters`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return LetterReader(self.options)


def marks(client: BlockingClient, settings: Mapping[str, str], spec: PipelineSpec, topic_id: str) -> Spans:
    """The letters that earlier replays have processed, as sorted ranges that do not touch. topic_id: of the dead-letter
    topic; marks for an earlier topic of the same name are ignored."""
    name = spec.replays
    if name not in client.describe([name]):
        return {}
    options = letter_options(settings, name)
    pairs = [(name, partition) for partition in client.partitions(name)]
    starts = client.list_offsets(dict.fromkeys(pairs, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(pairs, LATEST))
    spans_by_partition: Spans = {}
    for pair in pairs:
        for batch in read_range(options, Range(*pair, starts[pair].offset, ends[pair].offset)):
            for row in batch.select(["value", "headers"]).to_pylist():
                if row["value"] is None or all(header["key"] != MARK for header in row["headers"] or ()):
                    continue
                mark = json.loads(row["value"])
                if mark["topic_id"] == topic_id and mark["pipeline"] == spec.name:
                    for partition, spans in mark["taken"].items():
                        spans_by_partition.setdefault(int(partition), []).extend(
                            (start, end) for start, end in spans
                        )
    return {partition: merged(spans) for partition, spans in spans_by_partition.items()}


def merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges sorted, with those that overlap or touch merged."""
    joined_spans: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined_spans and start <= joined_spans[-1][1]:
            joined_spans[-1] = (joined_spans[-1][0], max(joined_spans[-1][1], end))
        else:
            joined_spans.append((start, end))
    return joined_spans


def spans_of(partitions: Any, offsets: Any) -> Spans:
    """Ranges of offsets by partition. partitions, offsets: NumPy arrays with one element for each letter."""
    spans_by_partition: Spans = {}
    for partition in np.unique(partitions):
        own = np.unique(offsets[partitions == partition])
        edges = np.flatnonzero(np.diff(own) > 1)
        starts, ends = own[np.concatenate([[0], edges + 1])], own[np.concatenate([edges, [len(own) - 1]])] + 1
        spans_by_partition[int(partition)] = [(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]
    return spans_by_partition


def write_marks(
    client: BlockingClient, spec: PipelineSpec, topic_id: str, taken: Spans, about: Mapping[str, Any]
) -> None:
    """Writes marks for the letters that a replay has processed. about: further entries of each mark."""
    rows = []
    for partition, spans in taken.items():
        for at in range(0, len(spans), RANGES_MAX):
            part = {partition: spans[at : at + RANGES_MAX]}
            rows.append(
                json.dumps({"pipeline": spec.name, "topic_id": topic_id, "taken": part, **about}).encode()
            )
    if not rows:
        return
    encoder = BatchEncoder(1, batch_bytes_max=500_000)
    header = [{"key": MARK, "value": b"1"}]
    columns = {
        "value": pa.array(rows, pa.binary()),
        "headers": pa.array([header] * len(rows), ARROW_TYPES["headers"]),
    }
    append_batch(encoder, pa.record_batch(columns), int(time.time() * 1000))
    for batch in encoder.flush():
        client.produce_raw(spec.replays, 0, batch.data)


def header_text(name: str) -> Column:
    """A column with the text of a record's last header `barnabas.<name>`; null if it has none."""
    same = each("filter", "headers", lambda header: header["key"] == HEADER_PREFIX + name)
    return F.try_element_at(same, F.lit(-1))["value"].cast("string")


def with_replayed(rows: DataFrame, spec: PipelineSpec, output: Output) -> DataFrame:
    """The source's rows for an aggregate, with the original records in place of letters that a replay has copied for
    it. Marks and letters for other outputs are filtered out."""
    letter = F.col("topic") == spec.replays
    mine = (header_text("pipeline") == spec.name) & (header_text("output") == output.name)
    own = each("filter", "headers", lambda header: ~header["key"].startswith(HEADER_PREFIX))
    as_it_was = {
        "topic": header_text("topic"),
        "partition": header_text("partition").cast("int"),
        "offset": header_text("offset").cast("bigint"),
        "timestamp": F.timestamp_micros(header_text("timestamp").cast("bigint")),
        "headers": own,
    }
    asked = rows.where(~letter | F.coalesce(mine, F.lit(False)))
    return asked.withColumns(
        {name: F.when(letter, value).otherwise(F.col(name)) for name, value in as_it_was.items()}
    )
