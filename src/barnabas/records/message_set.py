"""Message sets, magic 0 and 1: the record format of clients before 0.11.

A set is a sequence of messages without a count; in a fetched set the last message may be incomplete:

    offset int64 | size int32 | CRC-32 uint32 | magic int8 | attributes int8 | [magic 1: timestamp int64]
    | key length int32, key | value length int32, value            (length -1: null)

The checksum covers everything after itself. The lowest three attribute bits are the codec; a message with a codec is a
wrapper whose value is a compressed set. It has the offset of its last inner message; inner offsets are absolute in
magic 0 and count from 0 in magic 1, so that a broker can assign offsets without recompressing. Attribute bit 3
(magic 1) says that the timestamp is the broker's append time; in a wrapper it applies to all inner messages.

Clients of magic 0 compute the header checksum of lz4 frames over the frame's magic number, too. Such frames are accepted,
and for readers of magic 0, which expect the wrong checksum, they are written that way.
Sources: Kafka's message format documentation; KIP-31, KIP-32 and KIP-57.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from barnabas.records.batch import CODEC_MASK, LOG_APPEND_TIME_BIT, CorruptBatch, Record, TimestampType
from barnabas.records.compression import (
    DEFAULT_LIMIT_BYTES,
    Buffer,
    Codec,
    CompressionError,
    compress,
)
from barnabas.records.slices import slices
from barnabas.records.xxhash import xxh32

ENTRY_OVERHEAD: Final = 12
"""Offset and size fields, which a message's size does not include."""
MESSAGE_BYTES_MIN: Final = (14, 22)
"""By magic: the size of a message whose key and value are null or empty."""
NO_TIMESTAMP: Final = -1

_HEAD: Final = struct.Struct(">qiIbb")
_PLACE: Final = struct.Struct(">qiI")
_BODY_0: Final = struct.Struct(">bbi")
_BODY_1: Final = struct.Struct(">bbqi")
_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_NULL: Final = _INT32.pack(-1)


class InvalidMessageSet(CorruptBatch):
    """The checksums are right, but the structure of the set is not allowed."""


class UnsupportedCodec(Exception):
    """The message format has no such codec."""


class Message(NamedTuple):
    """One message of a set; a wrapper is not unpacked. Key and value are views of the set."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(self.attributes >> 3 & 1)


# ---------------------------------------------------------------------------------------------- reading


def messages(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, Message]]:
    """(position after it, message) of each whole message from `pos` on; an incomplete last one is left out.

    Verifies lengths, magic and checksum. Raises CorruptBatch.
    """
    view = memoryview(buf)
    size_all = len(view)
    while pos + ENTRY_OVERHEAD <= size_all:
        (size,) = _INT32.unpack_from(view, pos + 8)
        if size < MESSAGE_BYTES_MIN[0]:
            raise CorruptBatch(f"a message of {size} bytes at byte {pos}; the smallest has 14")
        end = pos + ENTRY_OVERHEAD + size
        if end > size_all:
            return
        yield end, _message(view, pos, end)
        pos = end


def _message(view: memoryview, pos: int, end: int) -> Message:
    offset, _, crc, magic, attributes = _HEAD.unpack_from(view, pos)
    if not 0 <= magic <= 1:
        raise CorruptBatch(f"magic {magic} where 0 or 1 was expected")
    if crc32(view[pos + 16 : end]) != crc:
        raise CorruptBatch(f"the checksum of the message at offset {offset} does not hold")
    at = pos + 18
    timestamp = NO_TIMESTAMP
    try:
        if magic == 1:
            (timestamp,) = _INT64.unpack_from(view, at)
            at += 8
        key, at = _field(view, at, end)
        value, at = _field(view, at, end)
    except struct.error:
        at = -1
    if at != end:
        raise CorruptBatch(f"the fields of the message at offset {offset} do not fill its size")
    return Message(offset, magic, attributes, timestamp, key, value)


def _field(view: memoryview, at: int, end: int) -> tuple[memoryview | None, int]:
    (length,) = _INT32.unpack_from(view, at)
    at += 4
    if length < 0:
        return None, at
    after = at + length
    if after > end:
        raise struct.error
    return view[at:after], after


def codec_of(message: Message) -> Codec:
    """The message's codec; raises UnsupportedCodec for zstd and the unknown numbers."""
    number = message.attributes & CODEC_MASK
    if number > Codec.LZ4:
        raise UnsupportedCodec(f"message format {message.magic} has no codec with the number {number}")
    return Codec(number)


def unpack(wrapper: Message, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> list[Record]:
    """The records inside a wrapper, in order, with their absolute offsets.

    Raises CorruptBatch, UnsupportedCodec.
    """
    codec = codec_of(wrapper)
    packed: Buffer = wrapper.value if wrapper.value is not None else b""
    if wrapper.magic == 0 and codec == Codec.LZ4:
        packed = set_lz4_checksum(packed, with_magic=False)
    try:
        block = bytearray()
        for piece in slices(codec, packed, limit_bytes):
            block += piece
        inner = [message for _, message in messages(block)]
    except CompressionError as error:
        raise CorruptBatch(f"the wrapper at offset {wrapper.offset}: {error}") from error
    if not inner:
        raise InvalidMessageSet(f"the wrapper at offset {wrapper.offset} holds no message")
    for message in inner:
        if message.attributes & CODEC_MASK:
            raise InvalidMessageSet(f"the wrapper at offset {wrapper.offset} holds another wrapper")
        if message.magic != wrapper.magic:
            raise InvalidMessageSet(
                f"a message of magic {message.magic} in the wrapper of magic {wrapper.magic} at offset {wrapper.offset}"
            )
    # Magic 1: the wrapper has the offset of its last message; inner numbers are relative.
    base = 0 if wrapper.magic == 0 else wrapper.offset - inner[-1].offset
    append_time = wrapper.timestamp if wrapper.attributes & LOG_APPEND_TIME_BIT else None
    return [_record(message, base, append_time) for message in inner]


def _record(message: Message, base: int, append_time: int | None) -> Record:
    key, value = message.key, message.value
    return Record(
        base + message.offset,
        message.timestamp if append_time is None or message.magic == 0 else append_time,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
    )


def read_message_set(buf: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """The records of a set in order, wrappers unpacked; an incomplete last message is left out.

    limit_bytes: limit on the decompressed size of one wrapper. Records of magic 0 have the timestamp -1. Raises
    CorruptBatch, UnsupportedCodec.
    """
    for _, message in messages(buf):
        if message.attributes & CODEC_MASK:
            yield from unpack(message, limit_bytes)
        else:
            yield _record(message, 0, None)


# ---------------------------------------------------------------------------------------------- writing


def append_message(
    out: bytearray,
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
) -> None:
    """Append one message to `out`; magic 0 does not store the timestamp."""
    length = -1 if key is None else len(key)
    if magic == 0:
        body = _BODY_0.pack(0, attributes, length)
    else:
        body = _BODY_1.pack(1, attributes, timestamp, length)
    if key is not None:
        body += key
    # For the checksum, a large value is not copied to join it with the rest.
    body += _NULL if value is None else _INT32.pack(len(value))
    crc = crc32(body) if value is None else crc32(value, crc32(body))
    size = 4 + len(body) + (0 if value is None else len(value))
    out += _PLACE.pack(offset, size, crc)
    out += body
    if value is not None:
        out += value


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    level: int | None = None,
) -> bytes:
    """A set of `records` at their own offsets, in one wrapper if `codec` compresses; headers are dropped.

    Offsets must ascend, gaps are allowed. With LogAppendTime all records have the same timestamp. Raises
    UnsupportedCodec for zstd, ValueError for another magic.
    """
    if magic not in (0, 1):
        raise ValueError(f"message sets have magic 0 or 1, not {magic}")
    if codec > Codec.LZ4:
        raise UnsupportedCodec(f"message format {magic} cannot carry {codec.name.lower()}")
    bits = LOG_APPEND_TIME_BIT if magic and timestamp_type == TimestampType.LOG_APPEND_TIME else 0
    out = bytearray()
    base = -1
    last = -1
    timestamp = NO_TIMESTAMP
    for record in records:
        last = record.offset
        if base < 0:
            base = last if magic and codec else 0
        if record.timestamp > timestamp:
            timestamp = record.timestamp
        append_message(out, last - base, magic, bits, record.timestamp, record.key, record.value)
    if not codec or not out:
        return bytes(out)
    packed = compress(codec, out, level)
    if magic == 0 and codec == Codec.LZ4:
        packed = set_lz4_checksum(packed, with_magic=True)
    wrapper = bytearray()
    append_message(wrapper, last, magic, bits | codec, timestamp, None, packed)
    return bytes(wrapper)


# ------------------------------------------------------------------------------------- lz4 frame headers

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_BIT: Final = 0x08
_LZ4_DICTIONARY_BIT: Final = 0x01


def set_lz4_checksum(frame: Buffer, *, with_magic: bool) -> bytes:
    """The lz4 frame with the checksum byte of its header set: to the right value, or to that of magic 0 clients.

    with_magic: include the frame's magic number, as those clients do. Data that is not an lz4 frame is returned unchanged,
    and the decompressor will refuse it.
    """
    data = bytes(frame)
    if len(data) < 7 or not data.startswith(_LZ4_MAGIC):
        return data
    at = 6
    if data[4] & _LZ4_CONTENT_SIZE_BIT:
        at += 8
    if data[4] & _LZ4_DICTIONARY_BIT:
        at += 4
    if at >= len(data):
        return data
    checksum = xxh32(data[0 if with_magic else 4 : at]) >> 8 & 0xFF
    return b"%b%c%b" % (data[:at], checksum, data[at + 1 :])
