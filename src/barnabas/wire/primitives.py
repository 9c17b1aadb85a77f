"""Small parts of the protocol for which no code is generated: varints, tag skipping, UUIDs, the error.

Layouts: "Protocol primitive types" of Kafka's protocol guide; tagged fields: KIP-482.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

Buffer = bytes | bytearray | memoryview

INT16_MAX: Final = 0x7FFF
UVARINT_BYTES_MAX: Final = 5
SPLICE_BYTES_MIN: Final = 16 * 1024
"""Record bytes of at least this length remain a separate part in `encode_parts`, so that they are not copied."""


class WireError(Exception):
    """Bytes that are not a valid message, or a message that its version cannot carry."""


class UnsupportedVersion(WireError):
    """A message does not have the requested version."""


def _encode_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


UVARINTS: Final = tuple(_encode_uvarint(value) for value in range(512))
"""The encodings of small numbers: nearly every length and count is one of these."""


def encode_uvarint(value: int) -> bytes:
    """Unsigned varint of 0..2**32-1. Raises WireError for a negative value."""
    if value < 0:
        raise WireError(f"unsigned varint cannot be negative: {value}")
    return UVARINTS[value] if value < 512 else _encode_uvarint(value)


def encode_string_length(value: int) -> bytes:
    """Compact length (already + 1) of a string. Raises WireError past the 32767 bytes Kafka allows."""
    if value > INT16_MAX + 1:
        raise WireError(f"string of {value - 1} bytes; Kafka's limit is {INT16_MAX}")
    return encode_uvarint(value)


def decode_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Value and next position. Raises IndexError past the end, WireError past five bytes."""
    value = buf[pos]
    if value < 0x80:
        return value, pos + 1
    return decode_uvarint_rest(buf, pos + 1, value)


def decode_uvarint_rest(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Like `decode_uvarint`, after the first byte (with its high bit set) has been read."""
    value = first & 0x7F
    for shift in range(7, 7 * UVARINT_BYTES_MAX, 7):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise WireError(f"varint at byte {pos} is longer than {UVARINT_BYTES_MAX} bytes")


def encode_varint(value: int) -> bytes:
    """Signed (zigzag) varint."""
    return _encode_uvarint((value << 1) ^ (value >> 63))


def decode_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Signed (zigzag) varint of at most 32 bits: value and next position. Errors as `decode_uvarint`."""
    raw, pos = decode_uvarint(buf, pos)
    return (raw >> 1) ^ -(raw & 1), pos


TAGGED_FIELDS_MAX: Final = 1000
"""Of one struct. Kafka declares fewer than ten; without a limit, a small message could hold the loop for long."""


def require_tag_count(count: int) -> None:
    """Raises WireError for more tagged fields than a struct may have."""
    if count > TAGGED_FIELDS_MAX:
        raise WireError(f"a struct with {count} tagged fields; at most {TAGGED_FIELDS_MAX} are read")


def skip_tags(buf: Buffer, pos: int, end: int) -> int:
    """The position after a tagged section in which no tag is known. Raises WireError or IndexError."""
    count, pos = decode_uvarint(buf, pos)
    require_tag_count(count)
    for _ in range(count):
        _tag, pos = decode_uvarint(buf, pos)
        size, pos = decode_uvarint(buf, pos)
        pos += size
        if pos > end:
            raise WireError(f"tagged field passes the end of the message by {pos - end} bytes")
    return pos


ZERO_UUID: Final = UUID(int=0)
_UUIDS_MAX: Final = 4096
_uuids: dict[bytes, UUID] = {bytes(16): ZERO_UUID}


def decode_uuid(raw: bytes) -> UUID:
    """The UUID of 16 bytes. Topic ids repeat in every fetch, so the last few thousand are cached."""
    uuid = _uuids.get(raw)
    if uuid is None:
        if len(_uuids) >= _UUIDS_MAX:
            _uuids.clear()
        uuid = _uuids[raw] = UUID(bytes=raw)
    return uuid


def length_error(field: str, length: int, end: int, next_pos: int) -> WireError:
    """The error for a refused length."""
    if length < 0:
        return WireError(f"{field} is null, which this version does not allow")
    if next_pos > end:
        return WireError(f"{field} of length {length} ends {next_pos - end} bytes past the message's end")
    return WireError(f"{field} has length {length}; Kafka's limit is {INT16_MAX}")
