"""What a fetch from another cluster brings: whole batches with right checksums, up to the first of a new leader epoch."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.broker.links.session import Asked
from barnabas.records.batch import (
    CODEC_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_POS,
    Record,
    build_batch_at,
    check_batch,
)
from barnabas.records.compression import Codec
from barnabas.records.message_set import codec_of, messages, unpack
from barnabas.records.units import LeaderEpoch

NEWEST_FORMAT: Final = 2
OFFSET_MAX: Final = (1 << 63) - 1
UNFOLDED_BYTES_MAX: Final = 1 << 27
"""The size up to which one message is decompressed."""
LOOSE_BYTES_MAX: Final = 1 << 17
"""Messages that are not compressed are put together in batches of about this size."""


class Arrived(NamedTuple):
    """records: whole batches, perhaps none. needs_epoch: the epoch of the first batch that was left out because its epoch is
    above the partition's; -1 if there is none."""

    records: memoryview
    needs_epoch: int
    max_timestamp: int


def in_old_format(records: memoryview) -> bool:
    """Whether the records are messages of format 0 or 1."""
    return len(records) > MAGIC_POS and records[MAGIC_POS] < NEWEST_FORMAT


def _bounds(records: memoryview) -> tuple[int, int]:
    """Where the last whole batch or message begins, and where it ends: brokers cut an answer in the middle of one."""
    begin = end = 0
    while end + LOG_OVERHEAD <= len(records):
        size = int.from_bytes(records[end + 8 : end + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        if size <= LOG_OVERHEAD or end + size > len(records):
            break
        begin, end = end, end + size
    return begin, end


def end_of(records: memoryview, leader_epoch: int) -> Asked | None:
    """How the copy will end with these records; None where only their checks can tell."""
    begin, end = _bounds(records)
    if end - begin < HEADER_BYTES or in_old_format(records) or in_old_format(records[begin:]):
        return None
    base_offset, _, epoch, _, _, _, last_offset_delta, *_ = HEADER.unpack_from(records, begin)
    after = base_offset + last_offset_delta + 1
    return Asked(after, epoch) if 0 <= base_offset < after <= OFFSET_MAX and epoch <= leader_epoch else None


def whole_batches(records: memoryview, leader_epoch: int) -> Arrived:
    """The batches that can be appended while the partition is in `leader_epoch`. Raises CorruptBatch."""
    end, place, timestamp = _bounds(records)[1], 0, -1
    while place < end:
        header = check_batch(records[place:end])
        if header.partition_leader_epoch > leader_epoch:
            return Arrived(records[:place], header.partition_leader_epoch, timestamp)
        timestamp = max(timestamp, header.max_timestamp)
        place += header.size_bytes
    return Arrived(records[:end], -1, timestamp)


def upgraded(records: memoryview, leader_epoch: LeaderEpoch) -> memoryview:
    """Messages of format 0 or 1 as batches with the same offsets. May take long. Raises CorruptBatch, UnsupportedCodec.

    leader_epoch: written into the batches, since old messages have none.
    """
    parts = bytearray()
    loose: list[Record] = []
    loose_bytes = place = 0

    def pack(records_here: list[Record], codec: Codec, last_offset: int) -> None:
        if records_here:
            parts.extend(
                build_batch_at(records_here, last_offset=last_offset, codec=codec, leader_epoch=leader_epoch)
            )

    for after, message in messages(records[: _bounds(records)[1]]):
        if message.attributes & CODEC_MASK:
            pack(loose, Codec.NONE, loose[-1].offset if loose else -1)
            loose, loose_bytes = [], 0
            unpacked = unpack(message, UNFOLDED_BYTES_MAX)
            pack(unpacked, codec_of(message), message.offset)
        else:
            key, value = message.key, message.value
            loose.append(
                Record(
                    message.offset,
                    message.timestamp,
                    None if key is None else bytes(key),
                    None if value is None else bytes(value),
                )
            )
            loose_bytes += after - place
            if loose_bytes >= LOOSE_BYTES_MAX:
                pack(loose, Codec.NONE, loose[-1].offset)
                loose, loose_bytes = [], 0
        place = after
    pack(loose, Codec.NONE, loose[-1].offset if loose else -1)
    return memoryview(parts)
