"""The changelog of a view: a compacted topic with the newest row of each key, from which a lost view is rebuilt.

A record's key is the JSON object of the key's fields, its value that of all fields; a row that is deleted becomes a
tombstone. Headers name the view (`barnabas.view`), the id of its checkpoint (`barnabas.checkpoint`) and the micro-batch
(`barnabas.batch`). The changes of a micro-batch are in the topic before they are in the file: if Spark repeats it, they are
written again, and compaction keeps one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient
from barnabas.pipelines.spark.topics.options import client_options
from barnabas.pipelines.spark.topics.records import read_ranges
from barnabas.pipelines.views.columns import Stored
from barnabas.pipelines.views.lookup import key_json, row_json
from barnabas.pipelines.views.store import Note, Row, ViewError, ViewShape
from barnabas.records.units import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS_AT_ONCE: Final = 50_000
ADVICE: Final = "name another topic as changelog"


@dataclass(slots=True)
class Changes:
    """Changes of a view, as records and as rows. wanted: whether records are needed."""

    shape: ViewShape
    wanted: bool = True
    records: dict[str, str | None] = field(default_factory=dict)
    puts: list[Row] = field(default_factory=list)
    gone: list[Row] = field(default_factory=list)

    def add(self, puts: Iterable[Row], gone: Iterable[Row]) -> None:
        """Adds rows that were put, and keys of rows that were removed, as records."""
        if not self.wanted:
            return
        shape = self.shape
        for key in gone:
            self.records[key_json(shape, key)] = None
        size = len(shape.key)
        for row in puts:
            self.records[key_json(shape, row[:size])] = row_json(shape, row)


@dataclass(frozen=True, slots=True)
class Changelog:
    """The changelog topic of a view. settings: of the query's sink, with the brokers' address."""

    spark: SparkSession
    topic: str
    shape: ViewShape
    settings: Mapping[str, str]

    @property
    def _connection(self) -> dict[str, str]:
        return {n: v for n, v in self.settings.items() if n.startswith("kafka.") and "transactional" not in n}

    def begin(self) -> None:
        """For a new view: deletes what an earlier one of the same name has left in the topic. Raises ViewError if the topic
        has records of something else."""
        left: dict[str, None] = {}
        for table in self._tables():
            for key, value, headers in _records(table):
                self._require_own(headers)
                if value is None:
                    left.pop(key, None)
                else:
                    left[key] = None
        if left:
            self._send(dict(left), Note(0))

    def write(self, changes: Changes, note: Note) -> None:
        """Writes the changes of a micro-batch."""
        if changes.records:
            self._send(changes.records, note)

    def _send(self, records: Mapping[str, str | None], note: Note) -> None:
        table = pa.table(
            {
                "key": pa.array(records.keys(), pa.string()),
                "value": pa.array(records.values(), pa.string()),
            }
        )
        header_texts = {
            "barnabas.view": self.shape.label,
            "barnabas.checkpoint": self.shape.identity,
            "barnabas.batch": str(note.batch),
        }
        headers = F.array(
            *[
                F.struct(F.lit(name).alias("key"), F.lit(value).cast("binary").alias("value"))
                for name, value in header_texts.items()
            ]
        )
        rows = self.spark.createDataFrame(table).withColumn("headers", headers)
        options = {**self._connection, "topic": self.topic}
        rows.write.format("barnabas").options(**options).mode("append").save()

    def read(self) -> Iterator[Changes]:
        """The view's rows, as changes in the topic's order. Raises ViewError if there are none of this checkpoint."""
        count = 0
        for table in self._tables():
            last: dict[tuple[Stored, ...], Row | None] = {}
            for key, value, headers in _records(table):
                self._require_own(headers)
                if headers.get("barnabas.checkpoint") != self.shape.identity:
                    continue
                count += 1
                stored = _stored(self.shape, json_fragments(key))
                last[stored] = None if value is None else self._row(value)
            yield Changes(
                self.shape,
                puts=[row for row in last.values() if row is not None],
                gone=[k for k, row in last.items() if row is None],
            )
        if not count:
            raise ViewError(
                f"view {self.shape.label} is lost, and its changelog topic {self.topic} has no rows of this checkpoint: "
                "begin anew with `restart --from earliest`"
            )

    def _row(self, value: str) -> Row:
        fragments = json_fragments(value)
        # A column that was added later is in no earlier record.
        return [
            column.from_fragment(fragments[column.name]) if column.name in fragments else column.null
            for column in self.shape.columns
        ]

    def _require_own(self, headers: Mapping[str, str]) -> None:
        view = headers.get("barnabas.view")
        if view == self.shape.label:
            return
        what = "records that are no changes of a view" if view is None else f"the changes of view {view}"
        raise ViewError(f"view {self.shape.label}: the changelog topic {self.topic} has {what}: {ADVICE}")

    def _tables(self) -> Iterator[pa.Table]:
        """All records of the topic, partition by partition, some at a time."""
        with BlockingClient(client_options(self._connection)) as client:
            pairs = [(self.topic, partition) for partition in client.partitions(self.topic)]
            starts = client.list_offsets(dict.fromkeys(pairs, EARLIEST))
            ends = client.list_offsets(dict.fromkeys(pairs, LATEST))
            for pair in pairs:
                at, end = starts[pair].offset, ends[pair].offset
                while at < end:
                    upto = Offset(min(at + RECORDS_AT_ONCE, end))
                    yield read_ranges(client, {pair: (at, upto)})
                    at = upto


def _records(table: pa.Table) -> Iterator[tuple[str, str | None, dict[str, str]]]:
    """Key, value and headers of records."""
    columns = (table.column(name).to_pylist() for name in ("key", "value", "headers"))
    for key, value, headers in zip(*columns, strict=True):
        header_texts = {h["key"]: (h["value"] or b"").decode(errors="replace") for h in headers or ()}
        text = None if value is None else value.decode(errors="replace")
        yield (key or b"").decode(errors="replace"), text, header_texts


def _stored(shape: ViewShape, fragments: Mapping[str, str]) -> tuple[Stored, ...]:
    return tuple(column.from_fragment(fragments[column.name]) for column in shape.key)


def json_fragments(text: str) -> dict[str, str]:
    """The values of a JSON object as they are written, by name: numbers keep all their digits."""
    decoder: Any = json.JSONDecoder()
    fragments: dict[str, str] = {}
    at = 1
    while at < len(text) and text[at] != "}":
        name, at = decoder.raw_decode(text, at)
        start = at + 1  # after the colon; there is no white space, see `row_json`
        _, at = decoder.raw_decode(text, start)
        fragments[name] = text[start:at]
        at += 1 if at < len(text) and text[at] == "," else 0
    return fragments
