"""Batches of any message format, looked at in one way.

Kafka's log dirs may still hold messages of magic 0 and 1. They are served as they are stored and rewritten as
magic 2 only by compaction. Here they get a header like that of a batch, so that recovery, indexes and time
look-ups need not know the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.records.batch import MAGIC_POS, BatchHeader, CorruptBatch, Record, check_batch, records_of
from barnabas.records.compression import DEFAULT_LIMIT_BYTES
from barnabas.records.units import LeaderEpoch, Offset, Position, ProducerEpoch


class Damaged(Exception):
    """At byte `position` of a segment there is no batch header that can be."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"{why} at byte {position}")
        self.position = position


class Found(NamedTuple):
    """One batch's place in a segment."""

    position: Position
    size_bytes: int
    magic: int
    base_offset: Offset
    last_offset: Offset


def verify(view: memoryview) -> BatchHeader:
    """The header of the one batch or message in `view`, whose length, magic and checksum hold.

    For magic 0 and 1 it is made up: the offset is the message's own (a wrapper's last), the record count that
    of the outer messages, and there is no epoch and no producer. Raises CorruptBatch.
    """
    if len(view) <= MAGIC_POS or view[MAGIC_POS] == 2:
        return check_batch(view)
    from barnabas.records.message_set import messages

    for end, message in messages(view):
        if end != len(view):
            break
        return BatchHeader(
            base_offset=Offset(message.offset),
            batch_length=len(view) - 12,
            partition_leader_epoch=LeaderEpoch(-1),
            magic=message.magic,
            crc=0,
            attributes=message.attributes & 0x0F,
            last_offset_delta=0,
            base_timestamp=message.timestamp,
            max_timestamp=message.timestamp,
            producer_id=-1,
            producer_epoch=ProducerEpoch(-1),
            base_sequence=-1,
            record_count=1,
        )
    raise CorruptBatch("a message does not fill its place")


def records_in(
    view: memoryview, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Record]:
    """The records of a verified batch or message. Raises CorruptBatch."""
    if header.magic == 2:
        yield from records_of(view, 0, header, limit_bytes)
        return
    from barnabas.records.message_set import UnsupportedCodec, read_message_set

    try:
        yield from read_message_set(view, limit_bytes)
    except UnsupportedCodec as error:
        raise CorruptBatch(str(error)) from error
