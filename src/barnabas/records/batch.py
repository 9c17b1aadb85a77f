"""Record batches, magic 2: the unit that is produced, stored, replicated and fetched.

A batch is a 61-byte header and a block of records that may be compressed as a whole:

    base offset int64 | batch length int32 | partition leader epoch int32 | magic int8 | CRC-32C uint32
    | attributes int16 | last offset delta int32 | base timestamp int64 | max timestamp int64
    | producer id int64 | producer epoch int16 | base sequence int32 | record count int32 | records

The checksum covers everything from the attributes on, so that a broker can set a batch's offset and
leader epoch in place. Source: Kafka's message format documentation and KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from barnabas.records.batch_header import (
    ATTRIBUTES_POS as ATTRIBUTES_POS,
)
from barnabas.records.batch_header import (
    CODEC_MASK as CODEC_MASK,
)
from barnabas.records.batch_header import (
    CONTROL_BIT as CONTROL_BIT,
)
from barnabas.records.batch_header import (
    CRC_POS as CRC_POS,
)
from barnabas.records.batch_header import (
    DELETE_HORIZON_BIT as DELETE_HORIZON_BIT,
)
from barnabas.records.batch_header import (
    HEADER as HEADER,
)
from barnabas.records.batch_header import (
    HEADER_BYTES as HEADER_BYTES,
)
from barnabas.records.batch_header import (
    LOG_APPEND_TIME_BIT as LOG_APPEND_TIME_BIT,
)
from barnabas.records.batch_header import (
    LOG_OVERHEAD as LOG_OVERHEAD,
)
from barnabas.records.batch_header import (
    MAGIC_POS as MAGIC_POS,
)
from barnabas.records.batch_header import (
    MIN_BATCH_LENGTH as MIN_BATCH_LENGTH,
)
from barnabas.records.batch_header import (
    NO_PRODUCER_ID as NO_PRODUCER_ID,
)
from barnabas.records.batch_header import (
    NO_SEQUENCE as NO_SEQUENCE,
)
from barnabas.records.batch_header import (
    NO_TIMESTAMP as NO_TIMESTAMP,
)
from barnabas.records.batch_header import (
    TRANSACTIONAL_BIT as TRANSACTIONAL_BIT,
)
from barnabas.records.batch_header import (
    BatchHeader as BatchHeader,
)
from barnabas.records.batch_header import (
    BatchTooLarge as BatchTooLarge,
)
from barnabas.records.batch_header import (
    CorruptBatch as CorruptBatch,
)
from barnabas.records.batch_header import (
    TimestampType as TimestampType,
)
from barnabas.records.batch_header import (
    add_sequence as add_sequence,
)
from barnabas.records.checksum import crc32c
from barnabas.records.compression import (
    DEFAULT_LIMIT_BYTES,
    Buffer,
    Codec,
    CompressionError,
    OverLimit,
    compress,
)
from barnabas.records.header_codec import check_batch as check_batch
from barnabas.records.header_codec import patch as patch
from barnabas.records.header_codec import read_header as read_header
from barnabas.records.slices import repacked, slices
from barnabas.records.units import LeaderEpoch, Offset, ProducerEpoch

_BEFORE_ATTRIBUTES: Final = struct.Struct(">qiibI")
_FROM_ATTRIBUTES: Final = struct.Struct(">hiqqqhii")
FROM_ATTRIBUTES: Final = BatchHeader._fields.index("attributes")
"""The fields from here on are those that the CRC covers, with the records."""
MAGIC: Final = 2
NEW_HEADER: Final = BatchHeader(
    base_offset=Offset(0),
    batch_length=0,
    partition_leader_epoch=LeaderEpoch(-1),
    magic=MAGIC,
    crc=0,
    attributes=0,
    last_offset_delta=0,
    base_timestamp=NO_TIMESTAMP,
    max_timestamp=NO_TIMESTAMP,
    producer_id=NO_PRODUCER_ID,
    producer_epoch=ProducerEpoch(-1),
    base_sequence=NO_SEQUENCE,
    record_count=0,
)
"""The header of a batch of nobody's, to begin with."""
VARINT_BYTES_MAX: Final = 10
_INT64: Final = struct.Struct(">q")
_UINT32: Final = struct.Struct(">I")
_INT16: Final = struct.Struct(">h")


class Record(NamedTuple):
    """One record; `offset` counts records in the partition, `timestamp` is in ms since 1970."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RecordLike(Protocol):
    """What `build_batch` takes: anything with these four fields."""

    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


def batches(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch from `pos` on, unchecked; an incomplete last one is left out.

    Raises CorruptBatch for an impossible length.
    """
    size = len(buf)
    while pos + HEADER_BYTES <= size:
        header = BatchHeader._make(HEADER.unpack_from(buf, pos))
        if header.magic == 2 and header.batch_length < MIN_BATCH_LENGTH:
            raise CorruptBatch(f"batch length {header.batch_length} at byte {pos}")
        end = pos + header.batch_length + LOG_OVERHEAD
        if end > size:
            return
        yield pos, header
        pos = end


def patch_max_timestamp(
    buf: bytearray | memoryview, pos: int, timestamp_type: TimestampType, max_timestamp: int
) -> None:
    """Set the max timestamp and its type (LogAppendTime), and update the checksum."""
    header = read_header(buf, pos)
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
    _INT16.pack_into(buf, pos + ATTRIBUTES_POS, attributes)
    _INT64.pack_into(buf, pos + 35, max_timestamp)
    end = pos + header.size_bytes
    _UINT32.pack_into(buf, pos + CRC_POS, crc32c(memoryview(buf)[pos + ATTRIBUTES_POS : end]))


# ---------------------------------------------------------------------------------------------- reading


def read_records(buf: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """The records of one or more batches in order, including control records; an incomplete last batch is left out.

    Does not verify checksums (`check_batch` does). Raises CorruptBatch.
    """
    for pos, header in batches(buf):
        yield from records_of(buf, pos, header, limit_bytes)


def record_slices(
    buf: Buffer, pos: int, header: BatchHeader, limit_bytes: int | None = DEFAULT_LIMIT_BYTES
) -> Iterator[Buffer]:
    """The encoded records of one batch, decompressed, in pieces of about a megabyte (`slices`). limit_bytes: of all pieces;
    None for callers that keep none of them. Raises CorruptBatch."""
    block = memoryview(buf)[pos + HEADER_BYTES : pos + header.size_bytes]
    codec = header.codec
    try:
        yield from slices(codec, block, limit_bytes)
    except CompressionError as error:
        kind = BatchTooLarge if isinstance(error, OverLimit) else CorruptBatch
        raise kind(f"the batch at offset {header.base_offset}: {error}") from error


def records_block(
    buf: Buffer, pos: int, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes | bytearray:
    """The encoded records of one batch, decompressed. Raises CorruptBatch.

    Piece by piece: to copy all at once, a thread would hold the interpreter's lock for a tenth of a second.
    """
    pieces = record_slices(buf, pos, header, limit_bytes)
    first = bytes(next(pieces, b""))  # copied before the next one, which may be in the same memory
    second = next(pieces, None)
    if second is None:
        return first
    block = bytearray(first)
    block += second
    for piece in pieces:
        block += piece
    return block


def records_of(
    buf: Buffer, pos: int, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Record]:
    """The records of the batch at `pos`, unpacked as far as they are asked for. Raises CorruptBatch if they do not agree
    with the header."""
    if header.magic != 2:
        raise CorruptBatch(f"magic {header.magic} where 2 was expected")
    pieces = record_slices(buf, pos, header, limit_bytes)
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    block = bytes(next(pieces, b""))
    at = 0
    try:
        for _ in range(header.record_count):
            if len(block) - at < VARINT_BYTES_MAX:
                block, at = _with_more(block, at, VARINT_BYTES_MAX, pieces), 0
            length, at = _read_varint(block, at)
            if length > len(block) - at:
                block, at = _with_more(block, at, length, pieces), 0
            end = at + length
            if length < 0 or end > len(block):
                raise CorruptBatch(f"a record of {length} bytes in a batch at offset {header.base_offset}")
            yield _read_record(block, at, end, header.base_offset, header.base_timestamp, append_time)
            at = end
    except (IndexError, UnicodeDecodeError) as error:
        raise CorruptBatch(f"a record in the batch at offset {header.base_offset}: {error}") from error
    left = len(block) - at + sum(len(piece) for piece in pieces)
    if left:
        raise CorruptBatch(f"{left} bytes after the last record at offset {header.base_offset}")


def _with_more(block: bytes, at: int, wanted: int, pieces: Iterator[Buffer]) -> bytes:
    """block[at:] and what follows, at least `wanted` bytes unless that is the end."""
    kept = [block[at:]]
    size = len(block) - at
    while size < wanted:
        piece = next(pieces, None)
        if piece is None:
            break
        kept.append(bytes(piece))
        size += len(piece)
    return b"".join(kept)


def _read_record(
    block: bytes, at: int, end: int, base_offset: int, base_timestamp: int, append_time: int | None
) -> Record:
    at += 1  # record attributes: unused so far
    timestamp_delta, at = _read_varint(block, at)
    offset_delta, at = _read_varint(block, at)
    size, at = _read_varint(block, at)
    key = None
    if size >= 0:
        key = block[at : at + size]
        at += size
    size, at = _read_varint(block, at)
    value = None
    if size >= 0:
        value = block[at : at + size]
        at += size
    count, at = _read_varint(block, at)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if count > 0:
        pairs = []
        for _ in range(count):
            size, at = _read_varint(block, at)
            if size < 0:
                raise CorruptBatch("a record header without a name")
            name = block[at : at + size].decode()
            at += size
            size, at = _read_varint(block, at)
            pairs.append((name, block[at : at + size] if size >= 0 else None))
            at += max(size, 0)
        headers = tuple(pairs)
    if at != end or count < 0:
        raise CorruptBatch("a record's fields do not fill its length")
    timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
    return Record(base_offset + offset_delta, timestamp, key, value, headers)


def _read_varint(block: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes at `at` -> (value, next position)."""
    byte = block[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    value = byte & 0x7F
    shift = 7
    while True:
        byte = block[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint of more than ten bytes")


# ---------------------------------------------------------------------------------------------- writing


def build_batch(
    records: Sequence[RecordLike],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """A batch of `records` (at least one), with consecutive offsets from `base_offset` on.

    Records with LogAppendTime all get the largest timestamp among them.
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    base_timestamp = records[0].timestamp
    block = bytearray()
    max_timestamp = base_timestamp
    for delta, record in enumerate(records):
        timestamp = record.timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        append_record(block, delta, timestamp - base_timestamp, record)
    header = BatchHeader(
        Offset(base_offset),
        0,
        LeaderEpoch(leader_epoch),
        MAGIC,
        0,
        attributes_of(codec, timestamp_type, transactional, control),
        len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        ProducerEpoch(producer_epoch),
        base_sequence,
        len(records),
    )
    return assemble(header, block, level)


def rebuild_batch(
    header: BatchHeader,
    records: Iterable[Record],
    *,
    codec: Codec | None = None,
    level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """The batch of `header` with only `records`, a subset of its own; written by compaction.

    Base offset, last offset, sequence and producer are kept, so that duplicates are still detected, and the last offset is
    known even if no record is left. The max timestamp becomes that of the remaining records (or stays as it was if there is
    none). `delete_horizon_ms` is stored in place of the base timestamp, as in Kafka.
    """
    kept = list(records)
    if not kept:
        return empty_batch(header)
    append_time = header.timestamp_type == TimestampType.LOG_APPEND_TIME
    horizon = delete_horizon_ms if delete_horizon_ms is not None else header.delete_horizon_ms
    if horizon is not None:
        base_timestamp = horizon
    else:
        base_timestamp = kept[0].timestamp
    block = bytearray()
    for record in kept:
        append_record(block, record.offset - header.base_offset, record.timestamp - base_timestamp, record)
    max_timestamp = header.max_timestamp
    if not append_time:
        max_timestamp = max(record.timestamp for record in kept)
    attributes = header.attributes if codec is None else header.attributes & ~CODEC_MASK | codec
    rebuilt = header._replace(
        record_count=len(kept),
        attributes=attributes | (DELETE_HORIZON_BIT if horizon is not None else 0),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
    )
    return assemble(rebuilt, block, level)


def empty_batch(header: BatchHeader) -> bytes:
    """The batch of `header` without its records: compaction uses it to keep a last offset or sequence."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return assemble(header._replace(record_count=0, attributes=attributes, base_timestamp=NO_TIMESTAMP), b"")


def build_batch_at(
    records: Sequence[Record], *, last_offset: int, codec: Codec = Codec.NONE, leader_epoch: int = -1
) -> bytes:
    """A batch of `records` (at least one) at their own offsets, which may have gaps; it ends at `last_offset`."""
    base_offset, base_timestamp = records[0].offset, records[0].timestamp
    block = bytearray()
    for record in records:
        append_record(block, record.offset - base_offset, record.timestamp - base_timestamp, record)
    header = NEW_HEADER._replace(
        base_offset=Offset(base_offset),
        partition_leader_epoch=LeaderEpoch(leader_epoch),
        attributes=int(codec),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        record_count=len(records),
    )
    return assemble(header, block)


def recompress(
    buf: Buffer,
    pos: int,
    codec: Codec,
    level: int | None = None,
    *,
    unpacked_bytes_max: int | None = None,
    packed_bytes_max: int | None = None,
) -> bytes:
    """The batch at `pos` recompressed with `codec`, in bounded memory besides the result; its records are counted.

    Raises CorruptBatch if the records do not agree with the header or unpack to more than `unpacked_bytes_max`, OverLimit as
    soon as they are packed to more than `packed_bytes_max`.
    """
    from barnabas.records.walk import counted

    header = read_header(buf, pos)
    pieces = record_slices(buf, pos, header, unpacked_bytes_max)
    packed = repacked(codec, counted(pieces, header.record_count), level, packed_bytes_max)
    return sealed(header._replace(attributes=header.attributes & ~CODEC_MASK | codec), packed)


def attributes_of(codec: Codec, timestamp_type: TimestampType, transactional: bool, control: bool) -> int:
    """The attribute bits of a new batch."""
    bits = int(codec)
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        bits |= LOG_APPEND_TIME_BIT
    if transactional:
        bits |= TRANSACTIONAL_BIT
    if control:
        bits |= CONTROL_BIT
    return bits


def assemble(header: BatchHeader, block: Buffer, level: int | None = None) -> bytes:
    """A whole batch from its encoded records, which are compressed with the header's codec.

    The header's length and CRC are computed here; what they were does not matter.
    """
    # A batch without records is not compressed: Kafka writes just the header.
    if not block:
        return sealed(header._replace(attributes=header.attributes & ~CODEC_MASK), block)
    codec = header.codec
    return sealed(header, compress(codec, block, level) if codec else block)


def sealed(header: BatchHeader, packed: Buffer) -> bytes:
    """A whole batch from its records, which are compressed as the header says."""
    tail = _FROM_ATTRIBUTES.pack(*header[FROM_ATTRIBUTES:])
    return b"".join(
        (
            _BEFORE_ATTRIBUTES.pack(
                header.base_offset,
                MIN_BATCH_LENGTH + len(packed),
                header.partition_leader_epoch,
                MAGIC,
                crc32c(packed, crc32c(tail)),
            ),
            tail,
            packed,
        )
    )


def append_record(block: bytearray, offset_delta: int, timestamp_delta: int, record: RecordLike) -> None:
    """Append one encoded record to `block`."""
    key, value, headers = record.key, record.value, record.headers
    body = bytearray(1)
    _add_varint(body, timestamp_delta)
    _add_varint(body, offset_delta)
    if key is None:
        body.append(1)
    else:
        _add_varint(body, len(key))
        body += key
    if value is None:
        body.append(1)
    else:
        _add_varint(body, len(value))
        body += value
    _add_varint(body, len(headers))
    for name, data in headers:
        encoded = name.encode()
        _add_varint(body, len(encoded))
        body += encoded
        if data is None:
            body.append(1)
        else:
            _add_varint(body, len(data))
            body += data
    _add_varint(block, len(body))
    block += body


def _add_varint(out: bytearray, value: int) -> None:
    """Append a zigzag varint."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
