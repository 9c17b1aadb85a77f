"""Decompression in slices: a bomb costs the time to unpack it, never the memory, and holds up nobody.

`slices` is the way to unpack whatever a client has sent, however large it unpacks: each step returns about a megabyte at
most and releases the interpreter's lock while it works, so that a thread can unpack gigabytes beside the event loop, and
whoever looks for a single record stops where it is. What is compressed can be unpacked without a limit, as in Kafka, which
has none; a caller that keeps the result states a limit.

Two kinds of data come in larger pieces, because their formats have no smaller ones: a bare snappy block (at most 22 times
its compressed size), and lz4 frames whose blocks depend on each other, which Java does not read (`DEFAULT_LIMIT_BYTES`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final

from barnabas.records.compression import (
    DEFAULT_LIMIT_BYTES,
    GZIP_FED_BYTES,
    LZ4_BLOCK_BYTES,
    LZ4_END,
    LZ4_FRAME_HEADER,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    Buffer,
    Codec,
    CompressionError,
    OverLimit,
    decompress,
    lz4_packed,
    lz4_unpacked,
    snappy_blocks,
    snappy_packed,
    zstd_content_bytes,
)
from barnabas.records.xxhash import xxh32

SLICE_BYTES: Final = 1 << 20
FIRST_SLICE_BYTES: Final = 1 << 16
"""Of zstd, whose reader takes memory for as many bytes as it is asked for: most batches are small."""

LZ4_MAGIC: Final = 0x184D2204
LZ4_SKIPPABLE: Final = range(0x184D2A50, 0x184D2A60)
LZ4_INDEPENDENT: Final = 0x20
LZ4_BLOCK_CHECKSUM: Final = 0x10
LZ4_CONTENT_SIZE: Final = 0x08
LZ4_CONTENT_CHECKSUM: Final = 0x04
LZ4_DICTIONARY: Final = 0x01
LZ4_STORED_BIT: Final = 1 << 31
_UINT32_LE: Final = struct.Struct("<I")


def slices(codec: Codec, data: Buffer, limit_bytes: int | None = None) -> Iterator[Buffer]:
    """`data` decompressed, in pieces in order; none is valid after the next one was asked for.

    limit_bytes: of all pieces together. Raises CompressionError for damaged data, OverLimit for more than the limit. A zstd
    frame that is cut off looks like one that ends, unless it states its size: the caller counts the records.
    """
    pieces = _PIECES[codec](data)
    return pieces if limit_bytes is None else _limited(codec, pieces, limit_bytes)


def _limited(codec: Codec, pieces: Iterator[Buffer], limit_bytes: int) -> Iterator[Buffer]:
    left = limit_bytes
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise OverLimit(f"{codec.name.lower()}: unfolds to more than the bound of {limit_bytes} bytes")
        yield piece


def _plain(data: Buffer) -> Iterator[Buffer]:
    yield data


def _gzip(data: Buffer) -> Iterator[Buffer]:
    view, at = memoryview(data), 0
    while at < len(view):
        unpacker = zlib.decompressobj(31)
        while not unpacker.eof:
            if at == len(view):
                raise CompressionError("gzip: the stream is cut off")
            fed = view[at : at + GZIP_FED_BYTES]
            compressed: Buffer = fed
            while True:
                try:
                    part = unpacker.decompress(compressed, SLICE_BYTES)
                except zlib.error as error:
                    raise CompressionError(f"gzip: {error}") from error
                if part:
                    yield part
                compressed = unpacker.unconsumed_tail
                if unpacker.eof or (not compressed and len(part) < SLICE_BYTES):
                    break
            at += len(fed) - len(unpacker.unused_data)


def _lz4(data: Buffer) -> Iterator[Buffer]:
    view, at = memoryview(data), 0
    while at < len(view):
        if at + 7 > len(view):
            raise CompressionError("lz4: a frame is cut off")
        (magic,) = _UINT32_LE.unpack_from(view, at)
        if magic in LZ4_SKIPPABLE:
            at += 8 + int.from_bytes(view[at + 4 : at + 8], "little")
            continue
        if magic != LZ4_MAGIC:
            raise CompressionError(f"lz4: {magic:#x} begins no frame")
        if not view[at + 4] & LZ4_INDEPENDENT:
            yield decompress(Codec.LZ4, view[at:], DEFAULT_LIMIT_BYTES)
            return
        at = yield from _lz4_frame(view, at)


def _lz4_frame(view: memoryview, at: int) -> Generator[Buffer, None, int]:
    """The blocks of the frame at `at`, which do not depend on each other; returns where the frame ends.

    Each block is handed to the library as a frame of its own, so that it checks the block's checksum. That of the whole
    content is not checked, as in Kafka; a batch has its own.
    """
    flags, sizes = view[at + 4], view[at + 5]
    if flags >> 6 != 1 or flags & LZ4_DICTIONARY or flags & 2 or not 4 <= sizes >> 4 & 7 <= 7 or sizes & 0x8F:
        raise CompressionError(f"lz4: no frame has the flags {flags:#x} {sizes:#x}")
    end = at + 6 + (8 if flags & LZ4_CONTENT_SIZE else 0)
    if end >= len(view) or view[end] != xxh32(bytes(view[at + 4 : end])) >> 8 & 0xFF:
        raise CompressionError("lz4: the checksum of a frame's header is wrong")
    at = end + 1
    block_bytes_max = 1 << 8 + 2 * (sizes >> 4)
    checksum_bytes = 4 if flags & LZ4_BLOCK_CHECKSUM else 0
    plain = bytes((0x40 | LZ4_INDEPENDENT | flags & LZ4_BLOCK_CHECKSUM, sizes))
    head = b"%b%b%c" % (LZ4_FRAME_HEADER[:4], plain, xxh32(plain) >> 8 & 0xFF)
    out = bytearray(block_bytes_max)
    while True:
        if at + 4 > len(view):
            raise CompressionError("lz4: a frame is cut off")
        (size,) = _UINT32_LE.unpack_from(view, at)
        at += 4
        if size == 0:
            return at + (4 if flags & LZ4_CONTENT_CHECKSUM else 0)
        after = at + (size & ~LZ4_STORED_BIT) + checksum_bytes
        if size & ~LZ4_STORED_BIT > block_bytes_max or after > len(view):
            raise CompressionError(f"lz4: a block of {size & ~LZ4_STORED_BIT} bytes goes past the end")
        if size & LZ4_STORED_BIT and not checksum_bytes:
            yield view[at:after]
        else:
            used = lz4_unpacked(b"".join((head, view[at - 4 : after], LZ4_END)), out)
            yield memoryview(out)[:used]
        at = after


def _zstd(data: Buffer) -> Iterator[Buffer]:
    import zstandard

    declared = zstd_content_bytes(data)
    total, wanted = 0, min(max(declared or 0, FIRST_SLICE_BYTES), SLICE_BYTES)
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        while piece := reader.read(wanted):
            total += len(piece)
            yield piece
            wanted = SLICE_BYTES
    except zstandard.ZstdError as error:
        raise CompressionError(f"zstd: {error}") from error
    if declared is not None and total < declared:
        raise CompressionError("zstd: a frame is cut off")


_PIECES: Final = {
    Codec.NONE: _plain,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: snappy_blocks,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}


# ---------------------------------------------------------------------------------------------- packing


def repacked(
    codec: Codec, pieces: Iterable[Buffer], level: int | None = None, limit_bytes: int | None = None
) -> bytes:
    """`pieces` compressed with `codec` as `compress` does, in bounded memory besides the result.

    limit_bytes: of the result. Raises OverLimit as soon as it has more, so that a bomb is not written out.
    """
    compress, flush = _packer(codec, level)
    out = bytearray()
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(view), SLICE_BYTES):
            out += compress(view[at : at + SLICE_BYTES])
            _require_room(codec, out, limit_bytes)
    out += flush()
    _require_room(codec, out, limit_bytes)
    return bytes(out)


def _require_room(codec: Codec, out: bytearray, limit_bytes: int | None) -> None:
    if limit_bytes is not None and len(out) > limit_bytes:
        raise OverLimit(f"{codec.name.lower()}: packs to more than {limit_bytes} bytes")


def _packer(codec: Codec, level: int | None) -> tuple[Callable[[Buffer], bytes], Callable[[], bytes]]:
    """(takes a piece, ends): what both return belongs to the result."""
    if codec == Codec.NONE:
        return bytes, bytes
    if codec == Codec.GZIP:
        gzip = zlib.compressobj(6 if level is None or level < 0 else level, zlib.DEFLATED, 31)
        return gzip.compress, gzip.flush
    if codec == Codec.ZSTD:
        import zstandard

        zstd = zstandard.ZstdCompressor(level=3 if level is None else level).compressobj()
        return zstd.compress, zstd.flush
    if codec == Codec.SNAPPY:
        blocks = _Blocks(XERIAL_HEADER, XERIAL_BLOCK_BYTES, snappy_packed, b"")
    else:
        blocks = _Blocks(LZ4_FRAME_HEADER, LZ4_BLOCK_BYTES, lambda block: lz4_packed(block, level), LZ4_END)
    return blocks.compress, blocks.flush


class _Blocks:
    """Packs blocks of a fixed size, as snappy and lz4 do."""

    def __init__(self, head: bytes, block_bytes: int, pack: Callable[[Buffer], bytes], end: bytes) -> None:
        self._head, self._block_bytes, self._pack, self._end = head, block_bytes, pack, end
        self._rest = bytearray()

    def compress(self, data: Buffer) -> bytes:
        out = bytearray(self._head)
        self._head = b""
        self._rest += data
        whole = len(self._rest) - len(self._rest) % self._block_bytes
        for at in range(0, whole, self._block_bytes):
            out += self._pack(bytes(self._rest[at : at + self._block_bytes]))
        del self._rest[:whole]
        return bytes(out)

    def flush(self) -> bytes:
        return self._head + (self._pack(bytes(self._rest)) if self._rest else b"") + self._end
