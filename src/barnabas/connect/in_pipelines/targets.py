"""A sink connector as the target of a pipeline: each Spark task has a task of it for the time of a micro-batch.

What the connector has put is flushed before Spark goes on, so nothing is in flight between micro-batches; records that it
gives back go to the dead letters of the pipeline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import pyarrow as pa

from barnabas.connect.connectors import SinkConnector, SinkContext, TopicPartition
from barnabas.connect.errors import ConnectError, DataError, RetriableError
from barnabas.connect.in_pipelines.checking import OWN_TOPIC, TOPICS, loaded_sink, sink_options
from barnabas.connect.in_pipelines.rows import Rows
from barnabas.connect.records import SinkRecord
from barnabas.connect.schemas import Schema
from barnabas.connect.transforms.chain import make_chain
from barnabas.connect.worker.converting import chosen_converter
from barnabas.pipelines.kinds.targets.base import DeliveryError, Refused, Task

DEADLINE_S: Final = 120.0
PAUSE_S: Final = 0.3
PAUSE_MAX_S: Final = 10.0
Place = tuple[str, int, int]


def deliver(
    config: Mapping[str, str], task: Task, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[pa.RecordBatch, list[Refused]]]:
    """See `Connectors`. Raises DeliveryError."""
    part: _Part | None = None
    try:
        for batch in batches:
            if batch.num_rows and part is None:
                part = _Part(config, task)
            yield batch, [] if part is None or not batch.num_rows else part.put(batch)
    except ConnectError as error:
        raise DeliveryError(f"{config['connector.class']}: {error}") from error
    finally:
        if part is not None:
            part.stop()


class _Part:
    """The connector's task. refused: what it gave back of the batch in progress, by place."""

    def __init__(self, config: Mapping[str, str], task: Task) -> None:
        loaded = loaded_sink(config)
        (topic,) = loaded.config[TOPICS]
        self._converter = chosen_converter(sink_options(), loaded.config, "key.converter")
        self._decoders: dict[str, Any] = {}
        self._rows = Rows(task, None if topic == OWN_TOPIC and TOPICS not in config else topic, self._key)
        self._steps = make_chain(loaded.config)
        self._refused: dict[Place, str] = {}
        self._read: set[TopicPartition] = set()
        self._stopping = threading.Event()
        self._sink = cast(SinkConnector, loaded.kind())
        context = SinkContext(task.query, task.part, self._stopping, report=self._report)
        try:
            self._sink.start(loaded.config, context)
        except Exception:
            self._sink.stop()
            raise

    def _key(self, topic: str, raw: bytes | None) -> tuple[Schema | None, Any]:
        decoder = self._decoders.get(topic)
        if decoder is None:
            decoder = self._decoders[topic] = self._converter.decoder(topic)
        return cast(tuple[Schema | None, Any], decoder(raw, []))

    def _report(self, record: SinkRecord, error: Exception) -> None:
        self._refused[_place(record)] = str(error)

    def put(self, batch: pa.RecordBatch) -> list[Refused]:
        """Stores a batch; the rows that the connector will never store. Raises ConnectError, DeliveryError."""
        self._refused = {}
        records = self._rows.records(batch)
        places = {_place(record): row for row, record in enumerate(records)}
        records_left = [
            transformed for record in records if (transformed := self._transformed(record)) is not None
        ]
        self._open(records)
        self._tried(lambda: self._sink.put(records_left))
        ends: dict[TopicPartition, int] = {}
        for record in records:
            ends[_pair(record)] = max(ends.get(_pair(record), 0), record.offset + 1)
        durable = self._tried(lambda: self._sink.flush(dict(ends)))
        if durable is not None and any(durable.get(pair, 0) < end for pair, end in ends.items()):
            raise DeliveryError("it has not stored all records of the micro-batch at its end")
        return [Refused(places[place], reason) for place, reason in self._refused.items() if place in places]

    def _transformed(self, record: SinkRecord) -> SinkRecord | None:
        transformed: Any = record
        for step in self._steps:
            try:
                transformed = step(transformed)
            except DataError as error:
                self._report(record, error)
                return None
            if transformed is None:
                return None
        return cast(SinkRecord, transformed)

    def _open(self, records: Sequence[SinkRecord]) -> None:
        read = self._read | {_pair(record) for record in records}
        if read != self._read:
            self._read = read
            if self._sink.open(sorted(read)):
                raise DeliveryError("it keeps offsets of its own, which a pipeline has in its checkpoint")

    def _tried(self, work: Any) -> Any:
        """What work returns, which is repeated while the other side is busy. Raises RetriableError after DEADLINE_S."""
        give_up, pause_s = time.monotonic() + DEADLINE_S, PAUSE_S
        while True:
            try:
                return work()
            except RetriableError:
                if time.monotonic() + pause_s > give_up:
                    raise
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def stop(self) -> None:
        """Closes what is open."""
        self._stopping.set()
        try:
            self._sink.close(sorted(self._read))
        finally:
            self._sink.stop()


def _pair(record: SinkRecord) -> TopicPartition:
    return record.original_topic, record.original_partition


def _place(record: SinkRecord) -> Place:
    return record.original_topic, record.original_partition, record.offset
