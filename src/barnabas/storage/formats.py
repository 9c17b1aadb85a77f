"""A uniform view of batches in any message format.

Kafka's log dirs may still contain messages of magic 0 and 1. They are served as they are stored; only compaction
rewrites them as magic 2. Here they get a header like that of a batch, so that recovery, indexes and time look-ups
need not distinguish the formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.records.batch import MAGIC_POS, BatchHeader, CorruptBatch, Record, check_batch, records_of
from barnabas.records.compression import DEFAULT_LIMIT_BYTES
from barnabas.records.units import LeaderEpoch, Offset, Position, ProducerEpoch


class Damaged(Exception):
    """There is no valid batch header at byte `position` of a segment."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"{why} at byte {position}")
        self.position = position


class FoundBatch(NamedTuple):
    """The place of one batch in a segment."""

    position: Position
    size_bytes: int
    magic: int
    base_offset: Offset
    last_offset: Offset


def verify(view: memoryview) -> BatchHeader:
    """The header of the single batch or message in `view`, after checking its length, magic and checksum.

    For magic 0 and 1 the header is synthesized: the offset is that of the message (of a wrapper: its last one), the record
    count is that of the outer messages, and there is no epoch and no producer. Raises CorruptBatch.
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
