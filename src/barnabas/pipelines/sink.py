"""The writing side of the data source `barnabas`: rows of Arrow columns to record batches, compiled.

Columns: value (string or binary), and where they are there key, headers (array<struct<key,value>>), topic,
partition (int), timestamp, origin (see ORIGIN_DDL). The topic option stands for the column. A null value is a tombstone,
a null topic an error. Written with acks=all by an idempotent producer: a request that is repeated is stored once. A Spark
task that fails and runs again writes its rows again (at least once). What a topic will never take becomes a dead letter,
see refusing.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import UnknownTopic
from barnabas.client.producing import ProduceStream
from barnabas.pipelines.columns import append_batch
from barnabas.pipelines.options import OptionError, SinkOptions, sink_options
from barnabas.pipelines.refusing import (
    DeadLetters,
    Gate,
    Letter,
    Refusal,
    RefusedTopic,
    as_batch,
    gate_of,
    letter_of,
)
from barnabas.pipelines.workers import settle
from barnabas.records.columnar_encoder import BatchEncoder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ORIGIN_DDL: Final = "struct<topic:string,partition:int,offset:bigint,output:string>"
"""Where the record lies that a row was made of, from where a dead letter takes it as it came; and whose row it is."""
HEADERS_DDL: Final = "array<struct<key:string,value:binary>>"
ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "bigint"),
    "headers": (HEADERS_DDL,),
    "origin": (ORIGIN_DDL,),
}
REFRESH_SECONDS: Final = 1.0
GATE_SECONDS: Final = 10.0
OPEN_BYTES_MAX: Final = 64 << 20
"""What unfinished batches of one topic may hold before they are sent as they are."""


def check_schema(raw: Mapping[str, str], schema: StructType) -> SinkOptions:
    """The checked options, once the columns fit them. Raises OptionError."""
    options = sink_options(raw)
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in types.items():
        if name not in ALLOWED:
            raise OptionError(
                f"the barnabas sink does not know column {name}; it takes {', '.join(ALLOWED)} "
                "(make one value of several columns with to_json(struct(...)))"
            )
        if kind not in ALLOWED[name] and not (name == "headers" and _is_headers(kind)):
            raise OptionError(
                f"column {name} is {kind}; the barnabas sink takes {' or '.join(ALLOWED[name])}"
            )
    if "value" not in types:
        raise OptionError("the barnabas sink needs a column value")
    if options.topic is None and "topic" not in types:
        raise OptionError("the barnabas sink needs the option topic, or a column topic")
    return options


def _is_headers(kind: str) -> bool:
    return kind in ("array<struct<key:string,value:string>>", "array<struct<key:binary,value:binary>>")


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote."""

    records: int
    bytes: int


class Producer:
    """One producer id of a worker process with an encoder per topic; lives on from task to task.

    A new id for each task would leave the broker with thousands of producers to remember. After an error
    its sequences are not known any more: it is thrown away.
    """

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.client = BlockingClient(options.client)
        self.producer_id, self.epoch = self.client.init_producer_id()
        self.encoders: dict[str, BatchEncoder] = {}
        self.gates: dict[str, Gate] = {}
        self._refused: dict[str, str] = {}
        self._checked = self._gates_checked = time.monotonic()

    def refresh(self) -> bool:
        """Whether the topics still have the partitions that the encoders know; looked at once a second. What they take is
        asked for again after some seconds."""
        now = time.monotonic()
        if now - self._checked < REFRESH_SECONDS:
            return True
        self._checked = now
        self._refused.clear()
        if now - self._gates_checked > GATE_SECONDS:
            return False
        views = self.client.describe(self.encoders)
        return all(n in views and len(views[n].partitions) == e.partitions for n, e in self.encoders.items())

    def encoder(self, topic: str) -> BatchEncoder:
        found = self.encoders.get(topic)
        if found is None:
            gate = self.gates[topic] = gate_of(self.client, topic)
            found = self.encoders[topic] = BatchEncoder(
                len(self.client.partitions(topic)),
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                codec=self.options.codec,
                level=self.options.level,
                batch_bytes_max=gate.encoder_bytes(self.options.batch_bytes),
                first_sticky=os.getpid(),
            )
        return found

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Writes all rows; returns once the brokers have acknowledged them."""
        stream = ProduceStream(self.client.cluster)
        for batch in batches:
            now_ms = int(time.time() * 1000)
            for topic, rows in _by_topic(batch, self.options.topic):
                letters = self._write_rows(stream, topic, rows, now_ms)
                if letters:
                    self._bury(stream, letters, now_ms)
        for topic, encoder in self.encoders.items():
            stream.send(topic, encoder.flush())
        stream.flush()
        return Written(stream.records, stream.bytes)

    def _write_rows(
        self, stream: ProduceStream, topic: str, rows: pa.RecordBatch, now_ms: int
    ) -> list[Letter]:
        """Writes what the topic takes; gives dead letters for the rest."""
        refused = self._refuses(topic)
        refusals = (
            [Refusal(row, refused) for row in range(rows.num_rows)]
            if refused is not None
            else self.gates[topic].refusals(rows, now_ms, self.options.codec)
        )
        if not refusals:
            self._append(stream, topic, rows, now_ms)
            return []
        if topic == self.options.dead_letters:
            whole = rows.take(pa.array([refusal.row for refusal in refusals])).to_pylist()
            letters = [letter_of(row) for row in whole]
        else:
            letters = self._letters(topic, rows, refusals)
        bad = {refusal.row for refusal in refusals}
        good = [row for row in range(rows.num_rows) if row not in bad]
        if good:
            self._append(stream, topic, rows.take(pa.array(good)), now_ms)
        return letters

    def _refuses(self, topic: str) -> str | None:
        """Why a topic takes nothing. Raises UnknownTopic for one of the pipeline's own: it will be made again."""
        if topic not in self._refused:
            try:
                self.encoder(topic)
            except RefusedTopic as error:
                options = self.options
                if options.dead_letters is None or topic in (
                    *options.own_topics,
                    options.topic,
                    options.dead_letters,
                ):
                    raise UnknownTopic(str(error)) from None
                self._refused[topic] = str(error)
        return self._refused.get(topic)

    def _letters(self, topic: str, rows: pa.RecordBatch, refusals: list[Refusal]) -> list[Letter]:
        if self.options.dead_letters is None:
            raise OptionError(f"{refusals[0].reason}: set deadLetters to a topic for what {topic} refuses")
        made = DeadLetters(self.client, self.options)
        return [
            made.letter(rows.slice(refusal.row, 1).to_pylist()[0], topic, refusal.reason)
            for refusal in refusals
        ]

    def _bury(self, stream: ProduceStream, letters: list[Letter], now_ms: int) -> None:
        topic = self.options.dead_letters
        assert topic is not None
        self._refuses(topic)  # finds out what it takes
        gate = self.gates[topic]
        self._append(stream, topic, as_batch([letter.fitted(gate) for letter in letters]), now_ms)

    def _append(self, stream: ProduceStream, topic: str, rows: pa.RecordBatch, now_ms: int) -> None:
        encoder = self.encoders[topic]
        append_batch(encoder, rows, now_ms)
        stream.send(topic, encoder.flush() if encoder.open_bytes > OPEN_BYTES_MAX else encoder.take())


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic; a topic column goes before the option, null in it takes the option."""
    if "topic" not in batch.schema.names:
        assert topic is not None, "the schema was checked before any task started"
        yield topic, batch
        return
    column = batch.column(batch.schema.names.index("topic"))
    if topic is not None:
        column = pc.fill_null(column, topic)
    if column.null_count:
        raise OptionError("a row has no topic: the column topic is null and the option topic is not set")
    names = pc.unique(column).to_pylist()
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(column, name))


_producers: dict[SinkOptions, Producer] = {}


def write_batches(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Writes Arrow record batches with this process's producer for these options."""
    settle()
    producer = _producers.pop(options, None)
    if producer is not None and not producer.refresh():
        producer.client.close()
        producer = None
    if producer is None:
        producer = Producer(options)
    try:
        written = producer.write(batches)
    except BaseException:
        producer.client.close()
        raise
    _producers[options] = producer
    return written


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("barnabas")`."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_batches(self.options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("barnabas")`, append mode. For update mode see `write_each_batch`."""

    def __init__(self, options: SinkOptions) -> None:
        settle()  # Spark makes one for each micro-batch to plan it, and one to commit it
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_batches(self.options, iterator)
