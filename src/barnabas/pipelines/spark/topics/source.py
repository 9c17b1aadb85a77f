"""The Spark data source `barnabas`, which reads and writes topics as Arrow record batches.

    from barnabas.pipelines import register
    register(spark)
    spark.readStream.format("barnabas").option("kafka.bootstrap.servers", "localhost:9092") \\
        .option("subscribe", "events").load()

Columns and option names are those of Spark's own Kafka source (`options.SOURCE_NAMES` has the list). One Spark task
reads one range of a topic partition, or several with few records. It fetches raw batches, which the compiled decoder
lays out for Arrow, so that no Python object is made per record. The executors need this package, either installed or
shipped (see shipping.py). Each query starts processes, so modules that only some queries need (schemas, writing) are
imported by those.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from barnabas.client.blocking import BlockingClient
from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.fetching import OffsetOutOfRange
from barnabas.pipelines.formats.columns import arrow_schema, ddl_schema, record_batches
from barnabas.pipelines.spark.topics.connections import shared_client
from barnabas.pipelines.spark.topics.first import kept_offset
from barnabas.pipelines.spark.topics.offsets import (
    DataLost,
    Planner,
    Range,
    StreamOffset,
    gather,
    parse_offset,
)
from barnabas.pipelines.spark.topics.options import SourceOptions, batch_options, source_options
from barnabas.pipelines.spark.workers import settle
from barnabas.records.columnar import AbortedTransactions, decode
from barnabas.records.units import Offset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """The ranges that one task reads: one, or several with few records."""

    def __init__(self, value: tuple[Range, ...]) -> None:
        super().__init__(value)


def read_task(options: SourceOptions, parts: tuple[Range, ...]) -> Iterator[pa.RecordBatch]:
    """The records of a task's ranges, one range after the other. Raises DataLost."""
    settle()
    for part in parts:
        batches = read_range(options, part)
        if options.direct is None:
            yield from batches
            continue
        from barnabas.pipelines.direct.parcels import packer

        pack = packer(options.direct)
        for rows in batches:
            yield from pack.packed(rows, part.topic, part.partition)


def read_range(options: SourceOptions, part: Range) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow record batches, in order of offsets.

    Raises DataLost when records are deleted while they are read and the policy is to stop.
    """
    client = shared_client(options.client)
    schema = arrow_schema(options.read_columns)
    if options.schemas:
        from barnabas.pipelines.spark.topics.typed import decoded_rows
    start = part.start
    while start < part.end:
        try:
            for batch, reached in _read_from(client, options, part, start, schema):
                begun, start = start, reached
                for rows in batch:
                    yield (
                        decoded_rows(options, rows, f"{part.topic}-{part.partition} offset {begun}")
                        if options.schemas
                        else rows
                    )
            return
        except OffsetOutOfRange as error:
            if options.data_loss == "stop" or error.log_start < 0:
                raise DataLost(f"{error}: records {start} to {part.end - 1} cannot be read") from error
            log.warning("records are gone", extra={"topic": part.topic, "partition": part.partition})
            start = part.end if options.data_loss == "latest" else Offset(max(error.log_start, start + 1))


def _read_from(
    client: BlockingClient, options: SourceOptions, part: Range, start: Offset, schema: pa.Schema
) -> Iterator[tuple[Iterator[pa.RecordBatch], Offset]]:
    """Decoded pieces with the offset reached after each."""
    pieces = client.read(
        part.topic,
        part.partition,
        start,
        part.end,
        read_committed=options.read_committed,
        max_bytes=options.fetch_bytes,
    )
    for piece in pieces:
        aborted = AbortedTransactions(piece.aborted) if options.read_committed else None
        position, at = 0, piece.start
        while True:
            decoded = decode(
                piece.records,
                at,
                part.end,
                position=position,
                headers="headers" in schema.names,
                aborted=aborted,
                check_crcs=options.check_crcs,
            )
            yield (
                record_batches(decoded, part.topic, part.partition, schema, options.rows_per_batch),
                Offset(decoded.next_offset),
            )
            if decoded.position == position or decoded.next_offset >= part.end:
                break
            position, at = decoded.position, Offset(decoded.next_offset)


def tasks_of(ranges: list[Range], options: SourceOptions) -> list[tuple[Range, ...]]:
    """The ranges of each task: at least two tasks if there are two ranges, because two small tasks run in parallel."""
    return gather(ranges, max(options.partitions_min, 2))


def _tasks(ranges: list[Range], options: SourceOptions) -> list[InputPartition]:
    return [RangePartition(parts) for parts in tasks_of(ranges, options)]


def rows_ddl(options: SourceOptions) -> str | StructType:
    """The schema of the rows, for Spark. options: if they name schemas, from `typed.looked_up`."""
    if options.direct is not None:
        from barnabas.pipelines.direct.parcels import PARCEL_DDL

        return f"{ddl_schema(options.columns)}, {PARCEL_DDL}"
    if not options.schemas:
        return ddl_schema(options.columns)
    from barnabas.pipelines.spark.topics.typed import source_schema

    return source_schema(options)


class BatchReader(DataSourceReader):
    """`spark.read`: a range per partition, fixed when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        planner = Planner(self.options)
        try:
            return _tasks(planner.batch_ranges(), self.options)
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark passes one partition of None if there are none
            return iter(())
        return read_task(self.options, partition.value)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream`. The driver's object lives as long as the query; tasks get a pickled copy."""

    def __init__(self, options: SourceOptions, planner: Planner | None = None) -> None:
        """planner: None makes one on first use: only the driver needs it."""
        self.options = options
        self._planner = planner
        self._target: StreamOffset | None = None
        self._newest: StreamOffset | None = None
        self._committed: StreamOffset | None = None
        self.triggered_s = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        nothing = dict.fromkeys(("_planner", "_target", "_newest", "_committed"))
        return {"options": self.options, "_triggered": 0.0, **nothing}

    @property
    def planner(self) -> Planner:
        """The planner of this query."""
        if self._planner is None:
            self._planner = Planner(self.options)
        return self._planner

    def initialOffset(self) -> StreamOffset:
        if self.options.first is not None:
            first: StreamOffset = json.loads(self.options.first)
            return first
        if self.options.checkpoint is not None:
            return kept_offset(self.options, self.planner)
        return self.planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self.options.rows_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.planner.newest()

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        reached = self.looked(start, limit)
        if reached != start:
            self.planner.note_news()
        elif self.is_patient() and self.planner.await_news(start, self._is_stopped):
            reached = self.looked(start, limit)
        return reached

    def looked(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        """Where the next micro-batch ends; `start` if there is nothing new. Does not wait."""
        # Spark calls this only when all records before `start` are processed. It calls `commit` for them one
        # micro-batch later, and never for the last micro-batch of a run, so they are committed here.
        self.commit(start)
        return start if self._is_stopped() else self._looked(start, limit)

    def is_patient(self) -> bool:
        """Whether the query may wait here for new records."""
        return self._target is None and self.options.rows_per_trigger_min is None and not self._is_stopped()

    def _is_stopped(self) -> bool:
        return self.options.stop_file is not None and os.path.exists(self.options.stop_file)

    def _looked(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        self._newest = target = self.planner.newest() if self._target is None else self._target
        if self._target is None and self.holds_back(start, target):
            return start
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.planner.advance(start, target, rows_max)

    def holds_back(self, start: StreamOffset, target: StreamOffset) -> bool:
        """Whether the micro-batch has to wait for more records (minOffsetsPerTrigger); notes when it begins."""
        rows_min = self.options.rows_per_trigger_min
        if rows_min is None:
            return False
        now = time.monotonic()
        begun, _ = parse_offset(start)
        ends, _ = parse_offset(target)
        waiting = sum(end - begun.get(pair, 0) for pair, end in ends.items())
        if waiting >= rows_min or now - self.triggered_s >= self.options.trigger_delay_s:
            self.triggered_s = now
            return False
        return True

    def reportLatestOffset(self) -> StreamOffset | None:
        return self._newest

    def partitions(self, start: StreamOffset, end: StreamOffset) -> Sequence[InputPartition]:
        return _tasks(self.planner.ranges(start, end), self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.options, partition.value)

    def commit(self, end: StreamOffset) -> None:
        if end == self._committed:
            return
        try:
            self.planner.commit(end)
            self._committed = end
        except (ClientError, BrokerError) as error:
            # The query depends only on the checkpoint; the group shows progress. The next micro-batch commits again.
            log.warning("progress was not committed", extra={"reason": str(error)})

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None


class BarnabasSource(DataSource):
    """The data source that is registered in Spark as `barnabas`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._is_shipped = False
        self._read: SourceOptions | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_is_shipped": True}

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> str | StructType:
        return rows_ddl(self._source_options())

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(batch_options(self._source_options()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self._source_options())

    def _source_options(self) -> SourceOptions:
        """The checked options with their schemas. They are looked up once: this object is pickled after `schema`."""
        if self._read is None:
            options = source_options(self.options)
            if options.schemas:
                from barnabas.pipelines.spark.topics.typed import looked_up

                options = looked_up(options)
            self._read = options
        return self._read

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from barnabas.pipelines.spark.topics.sink import BatchWriter, check_schema
        from barnabas.pipelines.spark.topics.typed import with_schemas

        return BatchWriter(with_schemas(check_schema(self.options, schema), schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from barnabas.pipelines.spark.topics.sink import StreamWriter, check_schema
        from barnabas.pipelines.spark.topics.typed import with_schemas

        # To plan a micro-batch, Spark makes a new data source; to commit it, it unpickles that of the query's start.
        options = check_schema(self.options, schema)
        if not self._is_shipped:
            options = with_schemas(options, schema)
        return StreamWriter(options, is_planned=not self._is_shipped)


def register(spark: SparkSession) -> None:
    """Registers the format `barnabas` in a session. Raises PipelineError if the Python of a Spark Connect server cannot
    load it."""
    from barnabas.pipelines.spark.connect import is_remote, try_server

    spark.dataSource.register(BarnabasSource)
    if is_remote(spark):
        try_server(spark)
