"""Drives a connector in a test, without a broker and in milliseconds.

def test_numbers():
    with run_source(Numbers, {"topic": "numbers"}) as source:
        assert [record.value for record in source.poll()] == [0, 1, 2]
        source.restart()                                    # as after kill -9, from what was committed
        assert source.poll()[0].value == 3

def test_sink():
    with run_sink(MySink, {"url": "..."}) as sink:
        sink.put([sink.record("events", {"id": 1})])
        assert sink.flush() == {("events", 0): 1}
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from barnabas.connect.connectors import (
    Batch,
    SinkConnector,
    SinkContext,
    SourceConnector,
    SourceContext,
    TopicPartition,
)
from barnabas.connect.errors import OptionError
from barnabas.connect.records import Json, SinkRecord, SourceRecord
from barnabas.connect.schemas import Schema


def _parsed(kind: type[SourceConnector] | type[SinkConnector], texts: Mapping[str, Any]) -> dict[str, Any]:
    """Raises OptionError, with what `check` finds as well."""
    values = kind.definition().parse(texts)
    wrong = kind.check(values)
    if wrong:
        name, complaint = next(iter(wrong.items()))
        raise OptionError(complaint if isinstance(complaint, str) else "; ".join(complaint), name)
    return values


class DrivenSource:
    """A source under test. offsets: what is committed, by partition as JSON. records: all that was polled."""

    def __init__(
        self,
        kind: type[SourceConnector],
        config: Mapping[str, Any],
        offsets: Mapping[str, Json] | None = None,
    ) -> None:
        self._kind, self._config = kind, _parsed(kind, config)
        self.offsets: dict[str, Json] = dict(offsets or {})
        self.records: list[SourceRecord] = []
        self._begin()

    def _begin(self) -> None:
        self.context = SourceContext(offsets=lambda wanted: [self.offset(p) for p in wanted])
        self.connector = self._kind()
        self.connector.start(self._config, self.context)

    def offset(self, partition: Json) -> Json | None:
        """What is committed for a partition."""
        return self.offsets.get(json.dumps(partition, sort_keys=True))

    def poll(self, *, commit: bool = True) -> list[SourceRecord]:
        """Polls each partition once. commit: False as if the worker were killed before its transaction."""
        records: list[SourceRecord] = []
        for partition in self.connector.partitions():
            polled = self.connector.poll(partition, self.offset(partition))
            batch = polled if isinstance(polled, Batch) else Batch(list(polled))
            records += batch.records
            if commit:
                self._commit(partition, batch)
        self.records += records if commit else []
        return records

    def _commit(self, polled: Json, batch: Batch) -> None:
        ends: dict[str, tuple[Json, Json]] = {}
        for record in batch.records:
            if record.source_offset is not None:
                partition = record.source_partition if record.source_partition is not None else polled
                ends[json.dumps(partition, sort_keys=True)] = (partition, record.source_offset)
        if batch.offset is not None:
            ends[json.dumps(polled, sort_keys=True)] = (polled, batch.offset)
        for name, (partition, offset) in ends.items():
            self.offsets[name] = json.loads(json.dumps(offset))
            self.connector.committed(partition, offset)

    def poll_until(self, count: int, polls: int = 100) -> list[SourceRecord]:
        """Polls until there are so many records. Raises AssertionError after so many polls."""
        records: list[SourceRecord] = []
        for _ in range(polls):
            records += self.poll()
            if len(records) >= count:
                return records
        raise AssertionError(f"{len(records)} records after {polls} polls, not {count}")

    def restart(self) -> None:
        """Goes on in a new object from what is committed."""
        self.connector.stop()
        self._begin()


class DrivenSink:
    """A sink under test. reported: records that it gave back, with the errors."""

    def __init__(
        self,
        kind: type[SinkConnector],
        config: Mapping[str, Any],
        partitions: Sequence[TopicPartition] = (("events", 0),),
    ) -> None:
        self._kind, self._config = kind, _parsed(kind, config)
        self.reported: list[tuple[SinkRecord, Exception]] = []
        self._next: dict[TopicPartition, int] = defaultdict(int)
        self._ends: dict[TopicPartition, int] = {}
        self.partitions = partitions
        self._begin()

    def _begin(self) -> None:
        self.context = SinkContext(report=lambda record, error: self.reported.append((record, error)))
        self.connector = self._kind()
        self.connector.start(self._config, self.context)
        self.resumes_at = dict(self.connector.open(self.partitions) or {})

    def record(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        value_schema: Schema | None = None,
        key_schema: Schema | None = None,
        partition: int = 0,
        **more: Any,
    ) -> SinkRecord:
        """A record with the next offset of its partition."""
        offset = self._next[topic, partition]
        self._next[topic, partition] += 1
        return SinkRecord(
            topic,
            value,
            key,
            value_schema,
            key_schema,
            partition=partition,
            offset=offset,
            original_topic=topic,
            original_partition=partition,
            **more,
        )

    def put(self, records: Sequence[SinkRecord]) -> None:
        """As the worker does."""
        self.connector.put(records)
        for record in records:
            self._ends[record.original_topic, record.original_partition] = record.offset + 1

    def flush(self) -> dict[TopicPartition, int]:
        """The offsets that would be committed."""
        offsets = self.connector.flush(dict(self._ends))
        return dict(self._ends if offsets is None else offsets)

    def restart(self) -> None:
        """Goes on in a new object."""
        self.connector.stop()
        self._begin()


@contextmanager
def run_source(
    kind: type[SourceConnector], config: Mapping[str, Any], offsets: Mapping[str, Json] | None = None
) -> Iterator[DrivenSource]:
    """A source that is started, and stopped at the end. Raises OptionError as the worker would refuse the options."""
    driven = DrivenSource(kind, config, offsets)
    try:
        yield driven
    finally:
        driven.context.stopping.set()
        driven.connector.stop()


@contextmanager
def run_sink(
    kind: type[SinkConnector],
    config: Mapping[str, Any],
    partitions: Sequence[TopicPartition] = (("events", 0),),
) -> Iterator[DrivenSink]:
    """A sink that is started with these partitions, and stopped at the end. Raises OptionError."""
    driven = DrivenSink(kind, config, partitions)
    try:
        yield driven
    finally:
        driven.context.stopping.set()
        driven.connector.close(driven.partitions)
        driven.connector.stop()
