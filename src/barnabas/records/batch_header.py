"""The header of a record batch: its fields, its byte layout, and the meaning of its numbers. See batch.py for the batch.

header_codec.pyx reads, checks and patches headers, for every produced batch.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas.records.compression import Codec
from barnabas.records.units import LeaderEpoch, Offset, ProducerEpoch

HEADER_BYTES: Final = 61
LOG_OVERHEAD: Final = 12
"""Base offset and batch length, which `batch_length` does not include."""
MAGIC_POS: Final = 16
CRC_POS: Final = 17
ATTRIBUTES_POS: Final = 21
MIN_BATCH_LENGTH: Final = HEADER_BYTES - LOG_OVERHEAD
RECORD_BYTES_MIN: Final = 7
"""Of a record without key, value and headers: seven fields of at least a byte."""

NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

HEADER: Final = struct.Struct(">qiibIhiqqqhii")


class TimestampType(IntEnum):
    """Who set the records' timestamps: their producer, or the broker on append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class CorruptBatch(Exception):
    """The bytes are not a whole and intact batch."""


class BatchTooLarge(CorruptBatch):
    """The records decompress to more bytes than the caller allows."""


class BatchHeader(NamedTuple):
    """The header's fields in their order on the wire."""

    base_offset: Offset
    batch_length: int
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> Codec:
        """The codec. Raises CorruptBatch for the unassigned numbers 5 to 7."""
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise CorruptBatch(f"the batch at offset {self.base_offset} names the unknown codec {number}")
        return Codec(number)

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(self.attributes >> 3 & 1)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When a compaction may drop this batch's tombstones and markers; None before it was set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; numbers wrap from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, including the header."""
        return self.batch_length + LOG_OVERHEAD


def add_sequence(sequence: int, count: int) -> int:
    """`sequence` advanced by `count`, wrapping from 2^31-1 to 0 like Kafka's sequence numbers."""
    return (sequence + count) & 0x7FFFFFFF
