"""The five codecs of Kafka's record batches, with a limit on the decompressed size.

Written as Java writes them, read as leniently as Java reads them:
* gzip: RFC 1952, several members in a row allowed.
* snappy: written in the framing of xerial's SnappyOutputStream (Java), 32 KB blocks; both that and a bare
  snappy block (librdkafka, Go) are read.
* lz4: the frame format with independent 64 KB blocks, the only kind that Java's reader takes.
* zstd: one frame.

The codec libraries are imported on first use: a broker passes batches through untouched.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from types import ModuleType
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

DEFAULT_LIMIT_BYTES: Final = 1 << 28
"""Limit on the decompressed size of a batch if the caller gives none."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024
SNAPPY_BYTES_MAX: Final = (1 << 32) - 1
"""The largest size that a block can state."""

LZ4_FRAME_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
"""Magic number; flags for independent blocks only; 64 KB blocks; checksum of the two bytes before."""
LZ4_BLOCK_BYTES: Final = 64 * 1024
LZ4_END: Final = bytes(4)

_INT32 = struct.Struct(">i")
_UINT32_LE = struct.Struct("<I")
_LZ4_STORED_BIT: Final = 1 << 31
_first_guess_ratio: Final = 6
ROOM_BYTES_MIN: Final = 4096
GZIP_FED_BYTES: Final = 1 << 16
"""How many bytes gzip gets at once. What follows a member is copied each time: a megabyte can hold 50,000 members."""


class Codec(IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(Exception):
    """The compressed bytes are damaged, or decompress to more than the limit."""


class OverLimit(CompressionError):
    """The compressed bytes decompress to more than the limit."""


def _cramjam() -> ModuleType:
    import cramjam

    return cramjam


def codec_of(name: str) -> Codec:
    """The codec called `name` in configuration; `uncompressed` and `none` are the same.

    Raises ValueError that lists the names.
    """
    if name == "uncompressed":
        return Codec.NONE
    try:
        return Codec[name.upper()]
    except KeyError:
        raise ValueError(f"unknown codec {name!r}: use none, gzip, snappy, lz4 or zstd") from None


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed with `codec`; `level` None means Kafka's default (gzip 6, lz4 9, zstd 3)."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        import zlib

        packer = zlib.compressobj(6 if level is None or level < 0 else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data, level)
    return bytes(_cramjam().zstd.compress(data, 3 if level is None else level))


def decompress(codec: Codec, data: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """`data` decompressed. Raises CompressionError for damaged data and for more than `limit_bytes` of output.

    Never uses more than about twice the limit in memory, whatever size the data claims to have.
    """
    if codec == Codec.NONE:
        if len(data) > limit_bytes:
            raise OverLimit(f"{len(data)} bytes are over the bound of {limit_bytes}")
        return bytes(data)
    if codec == Codec.GZIP:
        return _decompress_gzip(data, limit_bytes)
    cramjam = _cramjam()
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, limit_bytes)
    if codec == Codec.LZ4:
        return _decompress_growing(cramjam, cramjam.lz4.decompress_into, data, limit_bytes, None)
    if codec == Codec.ZSTD:
        size = zstd_content_bytes(data)
        return _decompress_growing(cramjam, cramjam.zstd.decompress_into, data, limit_bytes, size)
    raise CompressionError(f"no codec has the number {codec}")


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        out += snappy_packed(view[start : start + XERIAL_BLOCK_BYTES])
    return bytes(out)


def snappy_packed(block: Buffer) -> bytes:
    """At most XERIAL_BLOCK_BYTES as a block in xerial's framing."""
    packed = bytes(_cramjam().snappy.compress_raw(block))
    return _INT32.pack(len(packed)) + packed


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """A frame as Java writes it, without checksums of blocks or content.

    Assembled here from bare blocks: frames written by the library have block checksums, which lz4 4.1.17 for Go (used by
    sarama 1.38) takes for wrong.
    """
    view = memoryview(data)
    out = bytearray(LZ4_FRAME_HEADER)
    for start in range(0, len(view), LZ4_BLOCK_BYTES):
        out += lz4_packed(view[start : start + LZ4_BLOCK_BYTES], level)
    out += LZ4_END
    return bytes(out)


def lz4_packed(block: Buffer, level: int | None) -> bytes:
    """At most LZ4_BLOCK_BYTES as a block of a frame."""
    # Level 9 is Kafka's default and selects its fast compressor; only other levels select the slow one.
    options = {} if level is None or level == 9 else {"mode": "high_compression", "compression": level}
    packed = bytes(_cramjam().lz4.compress_block(block, store_size=False, **options))
    if len(packed) < len(block):
        return _UINT32_LE.pack(len(packed)) + packed
    return _UINT32_LE.pack(len(block) | _LZ4_STORED_BIT) + bytes(block)


def lz4_unpacked(frame: Buffer, out: bytearray) -> int:
    """Unpack a whole frame into `out`; returns how many bytes it has. Raises CompressionError."""
    cramjam = _cramjam()
    try:
        return int(cramjam.lz4.decompress_into(frame, out))
    except cramjam.DecompressionError as error:
        raise CompressionError(f"lz4: {error}") from error


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    return b"".join(snappy_blocks(data, limit_bytes))


def snappy_blocks(data: Buffer, limit_bytes: int = SNAPPY_BYTES_MAX) -> Iterator[bytes]:
    """The blocks of xerial's framing, or the bare block, unpacked. Raises CompressionError.

    limit_bytes: of all of them; unpacked, snappy is at most 22 times as large as packed.
    """
    cramjam = _cramjam()
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield _snappy_block(cramjam, view, limit_bytes)
        return
    pos, left = len(XERIAL_HEADER), limit_bytes
    while pos < len(view):
        if bytes(view[pos : pos + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            pos += len(XERIAL_HEADER)  # concatenated streams keep their headers
            continue
        if pos + 4 > len(view):
            raise CompressionError("snappy: a block length is cut off")
        (size,) = _INT32.unpack_from(view, pos)
        pos += 4
        if size < 0 or pos + size > len(view):
            raise CompressionError(f"snappy: a block of {size} bytes goes past the end")
        block = _snappy_block(cramjam, view[pos : pos + size], left)
        left -= len(block)
        yield block
        pos += size


def _snappy_block(cramjam: ModuleType, view: memoryview, limit_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(view)
        if size > limit_bytes:
            raise OverLimit(f"snappy: unfolds to {size} bytes, over the bound of {limit_bytes}")
        return bytes(cramjam.snappy.decompress_raw(view))
    except cramjam.DecompressionError as error:
        raise CompressionError(f"snappy: {error}") from error


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    import zlib

    view, at, left = memoryview(data), 0, limit_bytes
    parts = []
    while at < len(view):
        unpacker = zlib.decompressobj(31)
        while not unpacker.eof:
            if at == len(view):
                raise CompressionError("gzip: the stream is cut off")
            fed = view[at : at + GZIP_FED_BYTES]
            try:
                part = unpacker.decompress(fed, left + 1)
            except zlib.error as error:
                raise CompressionError(f"gzip: {error}") from error
            if len(part) > left:
                raise OverLimit(f"gzip: unfolds to more than the bound of {limit_bytes} bytes")
            parts.append(part)
            left -= len(part)
            at += len(fed) - len(unpacker.unused_data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_growing(
    cramjam: ModuleType,
    unpack_into: Callable[[Buffer, bytearray], int],
    data: Buffer,
    limit_bytes: int,
    size: int | None,
) -> bytes:
    """Decompress into a buffer of the declared size, or of a guessed size that grows up to the limit."""
    name = unpack_into.__module__ or "lz4"
    if size is not None and size > limit_bytes:
        raise OverLimit(f"{name}: unfolds to {size} bytes, over the bound of {limit_bytes}")
    # A frame may declare 0 bytes, and another one may follow it.
    room = min(max(ROOM_BYTES_MIN, _first_guess_ratio * len(data) if size is None else size), limit_bytes)
    while True:
        out = bytearray(room)
        try:
            used = unpack_into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise CompressionError(f"{name}: {error}") from error
            if room >= limit_bytes:
                raise OverLimit(f"{name}: unfolds to over the bound of {limit_bytes}") from error
            room = min(room * 8, limit_bytes)
            continue
        return bytes(memoryview(out)[:used])


def zstd_content_bytes(data: Buffer) -> int | None:
    """The content size declared by a zstd frame, None if it declares none (RFC 8878, 3.1.1.1)."""
    view = memoryview(data)
    if len(view) < 6 or bytes(view[:4]) != b"\x28\xb5\x2f\xfd":
        return None
    descriptor = view[4]
    size_flag, single, dictionary = descriptor >> 6, descriptor >> 5 & 1, descriptor & 3
    pos = 5 + (0 if single else 1) + (0, 1, 2, 4)[dictionary]
    width = (1 if single else 0, 2, 4, 8)[size_flag]
    if width == 0 or pos + width > len(view):
        return None
    size = int.from_bytes(view[pos : pos + width], "little")
    return size + 256 if width == 2 else size
