"""The writing side of the data source `barnabas`: compiled code encodes Arrow columns as record batches.

Columns: value (string or binary), and optionally key, headers (array<struct<key,value>>), topic, partition (int),
timestamp, origin (see ORIGIN_DDL) and, with the internal option parcels, a column with many rows in one value
(direct/parcels.py). With value.schema and key.schema, value and key are structs (typed.py). The option topic is used
for rows whose column topic is null or missing; without either, a row is an error. A null value is a tombstone. Records
are written with acks=all by an idempotent producer: a repeated request is stored once. A streaming query writes each
row exactly once, in transactions (exactly_once.py); other writes are repeated if a task fails and runs again. A row
that its topic would reject becomes a dead letter, see refusing.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import BrokerError, BrokerUnavailable, ClientError, UnknownTopic
from barnabas.client.producing import ProduceStream
from barnabas.client.transactions import LOST, Joined, TransactionLost, Transactions, TxnProducer
from barnabas.pipelines.direct.program import ONE_TOPIC, PARCEL
from barnabas.pipelines.formats.columns import append_batch
from barnabas.pipelines.spark.topics.connections import shared_client
from barnabas.pipelines.spark.topics.exactly_once import (
    Batch,
    Opened,
    Part,
    abort_batch,
    check_rows,
    commit_batch,
    mark,
    open_batch,
    prefix_of,
    rows_before,
    task_id,
)
from barnabas.pipelines.spark.topics.options import OptionError, SinkOptions, sink_options
from barnabas.pipelines.spark.topics.refusing import (
    DeadLetters,
    Gate,
    Letter,
    Refusal,
    RefusedTopic,
    as_batch,
    gate_of,
    letter_of,
)
from barnabas.pipelines.spark.topics.typed import encoded_rows
from barnabas.pipelines.spark.workers import settle
from barnabas.records.columnar_encoder import BatchEncoder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ORIGIN_DDL: Final = "struct<topic:string,partition:int,offset:bigint,output:string>"
"""The record that a row was made from, which a dead letter contains unchanged; and the output that made the row."""
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
GATHERED_ROWS: Final = 4096
GATHERED_BYTES: Final = 4 << 20
LONE_ROWS: Final = 512
"""Batches of at least this many rows for one topic, as in a parcel, are not joined with others, because the rows of
different topics would have to be separated again."""
OPEN_BYTES_MAX: Final = 64 << 20
"""If the unfinished batches of a topic have more bytes than this, they are sent as they are."""


def check_schema(raw: Mapping[str, str], schema: StructType) -> SinkOptions:
    """The options, checked together with the columns of the rows. Raises OptionError."""
    options = sink_options(raw)
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    typed = {place.part for place in options.schemas}
    for name, kind in types.items():
        if name in typed:
            if not kind.startswith("struct<"):
                raise OptionError(
                    f"column {name} is {kind}; with {name}.schema=registry it is a struct of the fields"
                )
            continue
        if name == PARCEL and kind == "binary" and options.parcels:
            continue
        if name not in ALLOWED:
            raise OptionError(
                f"the barnabas sink has no column {name}; it accepts {', '.join(ALLOWED)} "
                "(make one value of several columns with to_json(struct(...)))"
            )
        if kind not in ALLOWED[name] and not (name == "headers" and _is_headers(kind)):
            raise OptionError(
                f"column {name} is {kind}; the barnabas sink accepts {' or '.join(ALLOWED[name])}"
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
    """What one task wrote. part: its report, if the micro-batch is written exactly once."""

    records: int
    bytes: int
    part: Part | None = None


class Producer:
    """A worker process's connections, with an encoder per topic; used by one task after the other.

    All tasks share one producer id: with a new one for each task, brokers would have to remember thousands of
    producers. Transactions have producer ids of their own (`begin`). After an error the sequence numbers are unknown,
    so the producer is discarded.
    """

    def __init__(self, options: SinkOptions, *, transactional: bool = False) -> None:
        self.options = options
        self.client = BlockingClient(options.client)
        self.transaction: TxnProducer | None = None
        self.producer_id, self.epoch = (-1, -1) if transactional else self.client.init_producer_id()
        self.encoders: dict[str, BatchEncoder] = {}
        self.gates: dict[str, Gate] = {}
        self._refused: dict[str, str] = {}
        self._checked = self._gates_checked = time.monotonic()

    def begin(self, transactional_id: str, timeout_ms: int) -> TxnProducer:
        """Begins a transaction, to which all following writes belong."""
        self.transaction = Transactions(self.client).begin(transactional_id, timeout_ms)
        _, self.producer_id, self.epoch = self.transaction
        self.encoders.clear()  # sequences begin anew with the epoch
        return self.transaction

    def refresh(self) -> bool:
        """Checks once a second whether the topics have as many partitions as the encoders expect. Returns False if not,
        and when the topics' configs have to be read again after GATE_SECONDS: the producer is then to be discarded."""
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
        """The topic's encoder. Raises RefusedTopic for a topic that cannot be written."""
        encoder = self.encoders.get(topic)
        if encoder is None:
            gate = self.gates.get(topic)
            if gate is None:
                gate = self.gates[topic] = gate_of(self.client, topic)
            encoder = self.encoders[topic] = BatchEncoder(
                len(self.client.partitions(topic)),
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                codec=self.options.codec,
                level=self.options.level,
                batch_bytes_max=gate.encoder_bytes(self.options.batch_bytes),
                first_sticky=os.getpid(),
                transactional=self.transaction is not None,
            )
        return encoder

    def write(self, batches: Iterable[pa.RecordBatch]) -> ProduceStream:
        """Writes all rows (as dead letters if their topic would reject them); returns when all are acknowledged."""
        joined = None if self.transaction is None else Joined(Transactions(self.client), self.transaction)
        stream = ProduceStream(self.client.cluster, joined=joined)
        for batch in gathered(batches):
            now_ms = int(time.time() * 1000)
            for topic, rows in _by_topic(batch, self.options.topic):
                letters = self._write_rows(stream, topic, rows, now_ms)
                if letters:
                    self._bury(stream, letters, now_ms)
        for topic, encoder in self.encoders.items():
            stream.send(topic, encoder.flush())
        stream.flush()
        return stream

    def _write_rows(
        self, stream: ProduceStream, topic: str, rows: pa.RecordBatch, now_ms: int
    ) -> list[Letter]:
        """Writes the rows that the topic accepts; returns dead letters for the others."""
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
        """Why a topic cannot be written; None if it can. Raises UnknownTopic for the pipeline's own topics: it creates
        them again when it restarts."""
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
        letters = DeadLetters(self.client, self.options)
        return [
            letters.letter(rows.slice(refusal.row, 1).to_pylist()[0], topic, refusal.reason)
            for refusal in refusals
        ]

    def _bury(self, stream: ProduceStream, letters: list[Letter], now_ms: int) -> None:
        topic = self.options.dead_letters
        assert topic is not None
        self._refuses(topic)  # reads the topic's config into self.gates
        gate = self.gates[topic]
        self._append(stream, topic, as_batch([letter.fitted(gate) for letter in letters]), now_ms)

    def _append(self, stream: ProduceStream, topic: str, rows: pa.RecordBatch, now_ms: int) -> None:
        encoder = self.encoders[topic]
        append_batch(encoder, rows, now_ms)
        stream.send(topic, encoder.flush() if encoder.open_bytes > OPEN_BYTES_MAX else encoder.take())


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches. Spark sends small batches if records may be large, and each batch costs as much
    as hundreds of rows. Large batches are not joined with others, because that would copy them, and an Arrow column can
    hold at most 2 GB."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows >= LONE_ROWS and ONE_TOPIC in (batch.schema.metadata or ()):
            if waiting:
                yield _together(waiting)
                waiting, rows, size = [], 0, 0
            yield batch
            continue
        if waiting and size + batch.nbytes > GATHERED_BYTES:
            yield _together(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= GATHERED_ROWS or size >= GATHERED_BYTES:
            yield _together(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _together(waiting)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic: that in the column topic, or the option `topic` if it is null or missing."""
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


_producers: dict[tuple[SinkOptions, bool], Producer] = {}


@contextmanager
def kept_producer(options: SinkOptions, *, transactional: bool = False) -> Iterator[Producer]:
    """This process's producer for these options; after an error it is closed, otherwise kept for the next task."""
    key = (replace(options, batch=None, schemas=()), transactional)
    producer = _producers.pop(key, None)
    if producer is not None and not producer.refresh():
        producer.client.close()
        producer = None
    if producer is None:
        producer = Producer(options, transactional=transactional)
    try:
        yield producer
    except BaseException:
        producer.client.close()
        raise
    _producers[key] = producer


def _sink_rows(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches from Spark as rows of records: encoded with their schemas, or unpacked from parcels."""
    if options.schemas:
        return encoded_rows(options.schemas, batches)
    if options.parcels:
        from barnabas.pipelines.direct.parcels import unpacked

        return unpacked(batches)
    return iter(batches)


def write_batches(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Written:
    """Writes Arrow record batches at least once: if the task is repeated, they are written again."""
    settle()
    batches = _sink_rows(options, batches)
    with kept_producer(options) as producer:
        stream = producer.write(batches)
        return Written(stream.records, stream.bytes)


def write_part(options: SinkOptions, opened: Opened, batches: Iterator[pa.RecordBatch]) -> Written:
    """Writes a task's rows of a micro-batch in a transaction, which the driver commits. See exactly_once.py.

    All rows are read even if they are not to be written: operators before the sink store their state only after the
    last row, and the rows have to be counted.
    """
    settle()
    context = TaskContext.get()
    assert context is not None, "write_part runs in a Spark task"
    batches = _sink_rows(options, batches)
    number = context.partitionId()
    batch = _batch_of(options, context)
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for piece in batches:
            if piece.num_rows:
                rows += piece.num_rows
                yield piece

    before = rows_before(opened, batch, number)
    if before is not None:
        for _ in counted():
            pass
        check_rows(opened, number, before, rows)
        return Written(0, 0, Part(opened, batch, is_left_out=True))
    pieces = counted()
    first = next(pieces, None)
    if first is None:
        return Written(0, 0, Part(opened, batch))
    with kept_producer(options, transactional=True) as producer:
        transaction = producer.begin(task_id(opened.prefix, number), opened.timeout_ms)
        try:
            stream = producer.write(chain([first], pieces))
            transactions = Transactions(producer.client)
            prepared = mark(transactions, transaction, batch, number, rows, stream.ends)
        except BrokerError as error:
            _abort(producer, transaction)
            if error.code in LOST:
                raise TransactionLost(transaction.transactional_id, str(error)) from error
            raise
        except (BrokerUnavailable, TransactionLost):
            raise
        except BaseException:
            _abort(producer, transaction)
            raise
    return Written(stream.records, stream.bytes, Part(opened, batch, prepared))


def _abort(producer: Producer, transaction: TxnProducer) -> None:
    """Aborts the transaction of a failed task, so that readers need not wait for its timeout."""
    with suppress(ClientError):
        Transactions(producer.client).end(transaction, commit=False)


def _batch_of(options: SinkOptions, context: TaskContext) -> Batch:
    if options.batch is not None:
        return Batch(*options.batch)
    query = context.getLocalProperty("sql.streaming.queryId")
    number = context.getLocalProperty("streaming.sql.batchId")
    assert query is not None, "Spark sets the query's id in tasks"
    assert number is not None, "Spark sets the micro-batch's number in tasks"
    return Batch(query, int(number))


def open_sink(options: SinkOptions) -> Opened | None:
    """Begins a micro-batch in the driver; returns None for a query that writes at least once. Raises OptionError when
    exactly once is requested, but the query has no unique name."""
    if options.exactly_once is False:
        return None
    prefix = prefix_of(options)
    if prefix is None:
        if options.exactly_once:
            raise OptionError(
                "exactlyOnce=true needs to know the query: set the option checkpointLocation, or kafka.transactional.id "
                "to a name that no other query has"
            )
        return None
    return open_batch(shared_client(options.client), prefix, options.transaction_timeout_ms)


def _parts(messages: Iterable[WriterCommitMessage | None]) -> list[Part]:
    return [m.part for m in messages if isinstance(m, Written) and m.part is not None]


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("barnabas")`. For the batches of `foreachBatch` see `write_each_batch`."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        if options.batch is None and options.exactly_once:
            raise OptionError(
                "exactlyOnce=true is for streaming queries; in foreachBatch use barnabas.pipelines.write_each_batch"
            )
        self.opened = None if options.batch is None else open_sink(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self.opened is None:
            return write_batches(self.options, iterator)
        return write_part(self.options, self.opened, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.options.batch is not None:
            commit_batch(shared_client(self.options.client), _parts(messages), self.options.batch[1])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_batch(shared_client(self.options.client), _parts(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("barnabas")`, append mode. For update mode see `write_each_batch`.

    For each micro-batch Spark makes one in the driver and sends it to the tasks (is_planned), and another to commit it.
    """

    def __init__(self, options: SinkOptions, *, is_planned: bool) -> None:
        settle()
        self.options = options
        self.opened = open_sink(options) if is_planned else None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self.opened is None:
            return write_batches(self.options, iterator)
        return write_part(self.options, self.opened, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit_batch(shared_client(self.options.client), _parts(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        abort_batch(shared_client(self.options.client), _parts(messages))
