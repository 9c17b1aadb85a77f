"""Reads a few records of topics in the driver, as an Arrow table or as Spark rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from barnabas.client.blocking import EARLIEST, LATEST, BlockingClient
from barnabas.pipelines.formats.columns import BASE_COLUMNS, arrow_schema, ddl_schema, record_batches
from barnabas.records.columnar import decode
from barnabas.records.units import Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TopicPartition = tuple[str, int]
COLUMNS: Final = (*BASE_COLUMNS, "headers")
ROWS_PER_BATCH: Final = 10_000


def read_ranges(client: BlockingClient, ranges: Mapping[TopicPartition, tuple[Offset, Offset]]) -> pa.Table:
    """The records with offsets start..end-1 of each partition, in order. Raises ClientError."""
    schema = arrow_schema(COLUMNS)
    batches: list[pa.RecordBatch] = []
    for (topic, partition), (start, end) in sorted(ranges.items()):
        for piece in client.read(topic, partition, start, end):
            position, at = 0, piece.start
            while True:
                decoded = decode(piece.records, at, end, position=position, headers=True)
                batches += record_batches(decoded, topic, partition, schema, ROWS_PER_BATCH)
                if decoded.position == position or decoded.next_offset >= end:
                    break
                position, at = decoded.position, Offset(decoded.next_offset)
    return pa.Table.from_batches(batches, schema=schema)


def last_records(client: BlockingClient, topics: Iterable[str], count: int) -> pa.Table:
    """The newest `count` records of these topics by timestamp, oldest first."""
    pairs = [(topic, partition) for topic in topics for partition in client.partitions(topic)]
    starts = client.list_offsets(dict.fromkeys(pairs, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(pairs, LATEST))
    table = read_ranges(
        client, {p: (Offset(max(starts[p].offset, ends[p].offset - count)), ends[p].offset) for p in pairs}
    )
    order = [("timestamp", "descending"), ("offset", "descending")]
    return table.take(pa.compute.sort_indices(table, order)[:count]).sort_by(
        [
            ("timestamp", "ascending"),
            ("topic", "ascending"),
            ("partition", "ascending"),
            ("offset", "ascending"),
        ]
    )


def first_records(client: BlockingClient, topics: Iterable[str], count: int) -> pa.Table:
    """The oldest `count` records of these topics, partition by partition."""
    pairs = [(topic, partition) for topic in topics for partition in client.partitions(topic)]
    starts = client.list_offsets(dict.fromkeys(pairs, EARLIEST))
    ends = client.list_offsets(dict.fromkeys(pairs, LATEST))
    table = read_ranges(
        client, {p: (starts[p].offset, Offset(min(ends[p].offset, starts[p].offset + count))) for p in pairs}
    )
    return table.slice(0, count)


def made_records(
    rows: Iterable[tuple[str, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]],
) -> pa.Table:
    """Records that are in no topic yet: topic, offset, key, value, headers, and milliseconds since 1970."""
    schema = arrow_schema(COLUMNS)
    rows_made = [
        {
            "topic": topic,
            "partition": 0,
            "offset": offset,
            "key": key,
            "value": value,
            "timestamp": datetime.fromtimestamp(at_ms / 1000, UTC),
            "headers": [{"key": name, "value": data} for name, data in headers] or None,
        }
        for topic, offset, key, value, headers, at_ms in rows
    ]
    return pa.Table.from_pylist(rows_made, schema=schema)


def as_rows(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The table as a data frame with the columns of the source."""
    rows: list[Any] = [
        tuple(
            None if value is None else [(h["key"], h["value"]) for h in value] if name == "headers" else value
            for name, value in row.items()
        )
        for row in table.to_pylist()
    ]
    return spark.createDataFrame(rows, ddl_schema(COLUMNS))
