"""The first record in fetched batches that a reader would get."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.records.batch import batches, records_of
from barnabas.records.batch_header import NO_TIMESTAMP
from barnabas.records.columnar import AbortedTransactions
from barnabas.records.compression import Buffer


class Unread(NamedTuple):
    """A record that has not been read. timestamp_ms: None if it has none (formats before Kafka 0.10)."""

    offset: int
    timestamp_ms: int | None


def first_unread(records: Buffer, offset: int, aborted: Iterable[tuple[int, int]]) -> Unread | None:
    """The first record at or after `offset`; None if these batches have none.

    Markers of transactions, records of aborted transactions and what compaction has emptied are not records for readers.
    aborted: (producer id, first offset), as the fetch that returned the batches names them. Unpacks no more than the batch
    with the record, up to the record. Raises CorruptBatch.
    """
    dropping = AbortedTransactions(aborted)
    for at, header in batches(records):
        if header.is_control:
            dropping.marker(header.producer_id)
            continue
        if header.is_transactional and dropping.drops(header.producer_id, header.last_offset):
            continue
        if header.last_offset < offset:
            continue
        for record in records_of(records, at, header):
            if record.offset >= offset:
                stamp = record.timestamp
                return Unread(record.offset, None if stamp == NO_TIMESTAMP else stamp)
    return None


def newest_timestamp(records: Buffer) -> int | None:
    """The greatest timestamp, in ms, of these batches; None if they have none."""
    stamps = [header.max_timestamp for _, header in batches(records) if header.magic == 2]
    return max((stamp for stamp in stamps if stamp != NO_TIMESTAMP), default=None)
