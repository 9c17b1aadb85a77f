"""What sinks into tables of files share: records are collected, and committed with their offsets."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import pyarrow as pa

from barnabas.connect.connectors import SinkConnector, SinkContext, TopicPartition
from barnabas.connect.errors import ConnectError, DataError
from barnabas.connect.lake.columns import require_row, table_of
from barnabas.connect.options import Config
from barnabas.connect.records import SinkRecord

log = logging.getLogger("barnabas.connect")

RECORDS_MAX: Final = 50_000
"""So many are committed before the worker asks for it."""
Offsets = Mapping[TopicPartition, int]


class LakeSink(SinkConnector):
    """Commits are made when the worker flushes (`offset.flush.interval.ms`), or when there are many records.

    A commit has the offsets up to which a table has the records of a partition; records before them are left out when they
    come again.
    """

    not_in_pipelines: ClassVar[str] = "keeps offsets of its own in the table"

    def start(self, config: Config, context: SinkContext) -> None:
        """See SinkConnector."""
        super().start(config, context)
        self._waiting: dict[str, list[SinkRecord]] = {}
        self._stored: dict[str, dict[TopicPartition, int]] = {}
        self._warned_about: set[tuple[str, str, int]] = set()

    def names(self, record: SinkRecord) -> Sequence[str]:
        """The tables of a record. Raises DataError."""
        raise NotImplementedError

    def stored(self, name: str) -> dict[TopicPartition, int]:
        """The offsets in a table's commits. Raises ConnectError."""
        raise NotImplementedError

    def commit(self, name: str, rows: pa.Table, offsets: Offsets) -> None:
        """Adds rows and offsets in one commit. Raises ConnectError."""
        raise NotImplementedError

    def put(self, records: Sequence[SinkRecord]) -> None:
        """See SinkConnector. All that may fail comes first: a call that is repeated must not add its records twice."""
        if sum(map(len, self._waiting.values())) >= RECORDS_MAX:
            self._store()
        wanted: list[tuple[str, SinkRecord]] = []
        refused: list[tuple[SinkRecord, DataError]] = []
        for record in records:
            if record.value is None:
                continue  # nothing can be deleted by its key in a table that is only added to
            try:
                require_row(record)
                names = self.names(record)
            except DataError as error:
                refused.append((record, error))
                continue
            for name in names:
                if record.offset >= self._next(name, record):
                    wanted.append((name, record))
                else:
                    self._left_out(name, record)
        for record, reason in refused:
            self.context.report(record, reason)
        for name, record in wanted:
            self._waiting.setdefault(name, []).append(record)

    def _left_out(self, name: str, record: SinkRecord) -> None:
        """Says once for each partition that the table has its records already: a topic may have been created anew."""
        place = (name, record.original_topic, record.original_partition)
        if place in self._warned_about:
            return
        self._warned_about.add(place)
        log.warning(
            "records are in the table already, and left out",
            extra={
                "connector": self.context.name,
                "table": name,
                "topic": record.original_topic,
                "partition": record.original_partition,
                "until_offset": self._next(name, record),
                "remedy": "if the topic was created anew, use another name for the connector",
            },
        )

    def _next(self, name: str, record: SinkRecord) -> int:
        ends = self._stored.get(name)
        if ends is None:
            ends = self._stored[name] = self.stored(name)
        return ends.get((record.original_topic, record.original_partition), 0)

    def flush(self, offsets: Offsets) -> None:
        """See SinkConnector."""
        self._store()

    def _store(self) -> None:
        for name in list(self._waiting):
            records = self._waiting[name]
            ends: dict[TopicPartition, int] = {}
            for record in records:
                ends[record.original_topic, record.original_partition] = record.offset + 1
            self.commit(name, self._rows(name, records), ends)
            self._stored[name] |= ends
            del self._waiting[name]

    def _rows(self, name: str, records: Sequence[SinkRecord]) -> pa.Table:
        try:
            return table_of(records)
        except ConnectError as error:
            raise ConnectError(f"table {name}: {error}") from error

    def open(self, partitions: Sequence[TopicPartition]) -> None:
        """Another task may have written to these partitions meanwhile."""
        self._waiting.clear()
        self._stored.clear()

    def close(self, partitions: Sequence[TopicPartition]) -> None:
        """What is not committed comes again."""
        self._waiting.clear()
        self._stored.clear()
