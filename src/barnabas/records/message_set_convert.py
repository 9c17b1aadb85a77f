"""Converts between message sets (magic 0 and 1) and record batches (magic 2).

Up, for producers before 0.11, since the log stores only magic 2. Records of magic 0 have no timestamp and get -1. Down, for
consumers before 0.11: headers are dropped, control batches skipped, offsets kept. Both directions verify checksums before
they write new ones, which would otherwise hide damage. Source: how Kafka 2.x converts (KIP-98, KIP-283).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    MAGIC_POS,
    CorruptBatch,
    Record,
    TimestampType,
    build_batch,
    check_batch,
    records_of,
)
from barnabas.records.compression import DEFAULT_LIMIT_BYTES, Buffer, Codec
from barnabas.records.message_set import (
    ENTRY_OVERHEAD,
    NO_TIMESTAMP,
    InvalidMessageSet,
    UnsupportedCodec,
    append_message,
    build_message_set,
    codec_of,
    messages,
    unpack,
)

_PLACE: Final = struct.Struct(">qi")


class InvalidTimestamp(InvalidMessageSet):
    """A producer's message has a timestamp type that only a broker may set, or an impossible timestamp."""


class MessageTooLarge(Exception):
    """One message or wrapper is larger than the maximum size of a batch."""


# ------------------------------------------------------------------------------------------------- up


def convert_up(
    buf: Buffer, *, max_batch_bytes: int, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> tuple[list[bytes], int]:
    """A producer's message set as record batches, and the number of records in them.

    One batch, compressed with the set's own codec; several only if one would exceed `max_batch_bytes` and the set can be
    divided. limit_bytes: limit on the decompressed size of the whole set. Unlike in a fetched set, an incomplete message is
    an error: it would be acknowledged and lost. Raises MessageTooLarge for a single message or wrapper of more than
    `max_batch_bytes`, CorruptBatch, InvalidTimestamp, UnsupportedCodec.
    """
    codec = Codec.NONE
    records: list[Record] = []
    end = 0
    left_bytes = limit_bytes
    for after, message in messages(buf):
        if after - end > max_batch_bytes:
            raise MessageTooLarge(f"a message has {after - end} bytes; {max_batch_bytes} are allowed")
        if message.attributes & CODEC_MASK:
            codec = codec_of(message)
            unpacked = unpack(message, left_bytes)
            left_bytes -= sum(len(item.key or b"") + len(item.value or b"") for item in unpacked)
            records += unpacked
        else:
            key, value = message.key, message.value
            records.append(
                Record(
                    message.offset,
                    message.timestamp,
                    None if key is None else bytes(key),
                    None if value is None else bytes(value),
                )
            )
        if message.magic and message.timestamp_type == TimestampType.LOG_APPEND_TIME:
            raise InvalidTimestamp("a producer may not say that its timestamps are the broker's")
        end = after
    if end != len(buf) or not records:
        raise CorruptBatch(f"the message set ends in the middle of a message, {len(buf) - end} bytes of it")
    for record in records:
        if record.timestamp < NO_TIMESTAMP:
            raise InvalidTimestamp(f"the timestamp {record.timestamp} lies before 1970")
    return list(_batches_of(records, codec, max_batch_bytes)), len(records)


def _batches_of(records: list[Record], codec: Codec, max_batch_bytes: int) -> Iterator[bytes]:
    batch = build_batch(records, codec=codec)
    if len(batch) <= max_batch_bytes or len(records) == 1:
        yield batch
        return
    middle = len(records) // 2
    yield from _batches_of(records[:middle], codec, max_batch_bytes)
    yield from _batches_of(records[middle:], codec, max_batch_bytes)


# ----------------------------------------------------------------------------------------------- down


class Converted(NamedTuple):
    """`data` is a message set with `records` converted records; reading continues at `next_offset`.

    If data is empty and `next_offset` is above the requested offset, there was nothing to show in between.
    """

    data: bytes
    records: int
    next_offset: int


def convert_down(
    buf: Buffer, *, magic: int, from_offset: int, max_bytes: int, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Converted:
    """The stored batches in `buf` as a message set of `magic` from `from_offset` on; an incomplete one is left out.

    Stops before exceeding `max_bytes`, but returns at least one message or wrapper if there is any; a wrapper begins with
    the batch's first record, as in the log. Data that is stored in magic 0 or 1, in an old log, is returned unchanged if the
    reader knows its magic. limit_bytes: limit on the decompressed size of one batch. If a later batch has an error, the
    conversion ends before it. Raises CorruptBatch, UnsupportedCodec.
    """
    down = _Down(magic, from_offset, max_bytes, limit_bytes)
    pos = 0
    more = True
    while more and pos + ENTRY_OVERHEAD <= len(buf):
        base_offset, length = _PLACE.unpack_from(buf, pos)
        end = pos + ENTRY_OVERHEAD + length
        if length <= MAGIC_POS - ENTRY_OVERHEAD:
            raise CorruptBatch(f"a batch of {length} bytes at offset {base_offset}")
        if end > len(buf):
            break
        try:
            if buf[pos + MAGIC_POS] == 2:
                more = down.add_batch(buf, pos)
            else:
                more = down.add_message(memoryview(buf)[pos:end])
        except (CorruptBatch, UnsupportedCodec):
            if not down.out:
                raise
            break
        pos = end
    return Converted(bytes(down.out), down.records, down.next_offset)


class _Down:
    """A conversion in progress. The methods that add return whether there may be room for more."""

    def __init__(self, magic: int, from_offset: int, max_bytes: int, limit_bytes: int) -> None:
        self.out = bytearray()
        self.records = 0
        self.next_offset = from_offset
        self._magic = magic
        self._max_bytes = max_bytes
        self._limit_bytes = limit_bytes

    def _take(self, data: Buffer, records: int, next_offset: int) -> bool:
        if self.out and len(self.out) + len(data) > self._max_bytes:
            return False
        self.out += data
        self.records += records
        self.next_offset = next_offset
        return len(self.out) < self._max_bytes

    def add_batch(self, buf: Buffer, pos: int) -> bool:
        header = check_batch(buf, pos)
        if header.is_control or header.last_offset < self.next_offset or not header.record_count:
            self.next_offset = max(self.next_offset, header.next_offset)
            return True
        records = records_of(buf, pos, header, self._limit_bytes)
        if header.codec == Codec.NONE:
            return self._add_plain(records, header.timestamp_type, header.next_offset)
        data = build_message_set(
            records, magic=self._magic, codec=header.codec, timestamp_type=header.timestamp_type
        )
        return self._take(data, header.record_count, header.next_offset)

    def _add_plain(self, records: Iterator[Record], timestamp_type: TimestampType, next_offset: int) -> bool:
        """Add separate messages, so that a set may end between any two of them."""
        bits = LOG_APPEND_TIME_BIT if self._magic and timestamp_type else 0
        for record in records:
            if record.offset < self.next_offset:
                continue
            one = bytearray()
            append_message(one, record.offset, self._magic, bits, record.timestamp, record.key, record.value)
            if not self._take(one, 1, record.offset + 1):
                return False
        self.next_offset = next_offset
        return True

    def add_message(self, entry: memoryview) -> bool:
        """Add one message or wrapper of an old log."""
        _, message = next(messages(entry))
        if message.offset < self.next_offset:
            return True
        if message.magic <= self._magic:
            return self._take(entry, 0, message.offset + 1)
        codec = codec_of(message)
        if codec:
            data: Buffer = build_message_set(
                unpack(message, self._limit_bytes), magic=self._magic, codec=codec
            )
        else:
            data = bytearray()
            append_message(data, message.offset, self._magic, 0, NO_TIMESTAMP, message.key, message.value)
        return self._take(data, 1, message.offset + 1)
