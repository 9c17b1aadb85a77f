"""How far behind a group is in time: the age of the first record that it has not read.

A partition that is read to its end has no lag: 0. Otherwise the lag is now minus the timestamp of the first
record at or after the committed offset: how long the next record has been waiting. With timestamps of producers
(CreateTime) it is as accurate as their clocks. Unlike a count of records, it does not become 0 when producers stop,
and not large after a burst.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.client.blocking import EARLIEST, BlockingClient
from barnabas.client.errors import BrokerError, UnknownTopic
from barnabas.client.fetching import OffsetOutOfRange
from barnabas.records.batch import CorruptBatch, batches, records_of

ONE_BATCH: Final = 1
"""A fetch of one byte: the broker sends the first batch whole all the same."""
TRIES_MAX: Final = 20
"""At most so many batches are searched for a record: transaction markers and batches that compaction emptied have
none.
"""


def first_timestamp(client: BlockingClient, topic: str, partition: int, offset: int) -> int | None:
    """Timestamp in ms of the first record at or after `offset`; None when there is none, or it cannot be read."""
    for _ in range(TRIES_MAX):
        try:
            found = client.fetch_raw(topic, partition, offset, max_bytes=ONE_BATCH, max_wait_ms=0)
        except OffsetOutOfRange:
            start = client.list_offsets({(topic, partition): EARLIEST})[topic, partition].offset
            if offset >= start:
                return None
            offset = start  # retention has deleted what the group had not read
            continue
        except (BrokerError, UnknownTopic):
            return None
        try:
            for at, header in batches(found.records):
                for record in [] if header.is_control else records_of(found.records, at, header):
                    if record.offset >= offset:
                        return record.timestamp
        except CorruptBatch:
            return None
        if found.next_offset <= offset:
            return None
        offset = found.next_offset
    return None


def add_seconds(client: BlockingClient, rows: list[dict[str, Any]], now_ms: int) -> None:
    """Give each row of `group describe` its lag in seconds, after its lag in records; None where it is not known."""
    for row in rows:
        seconds: float | None = None
        if row["lag"] == 0:
            seconds = 0.0
        elif row["lag"]:
            stamp = first_timestamp(client, row["topic"], row["partition"], row["committed"])
            seconds = None if stamp is None else round(max(now_ms - stamp, 0) / 1000, 1)
        row["lag_seconds"] = seconds


def worst(rows: list[Mapping[str, Any]] | list[dict[str, Any]]) -> float | None:
    """The lag of a group: that of its slowest partition; None when none is known."""
    return max((row["lag_seconds"] for row in rows if row["lag_seconds"] is not None), default=None)
