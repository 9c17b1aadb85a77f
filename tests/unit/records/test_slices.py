"""Decompression in slices gives the same bytes as decompression at once, and holds none of them."""

from __future__ import annotations

import random
import tracemalloc
from itertools import islice

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records import walk
from barnabas.records.batch import CorruptBatch, Record, build_batch, check_batch, recompress, record_slices
from barnabas.records.compression import Codec, CompressionError, OverLimit, compress, decompress
from barnabas.records.slices import SLICE_BYTES, repacked, slices
from barnabas.records.xxhash import xxh32

BOMB_BYTES = 64 << 20
PIECE_BYTES_MAX = 4 << 20
T0_MS = 1_700_000_000_000


def mixed(seed: int, size: int) -> bytes:
    """Bytes of which half can be compressed."""
    chance = random.Random(seed)
    return b"".join(chance.randbytes(500) + bytes(500) for _ in range(size // 1000 + 1))[:size]


SIZES = (0, 1, 1000, 64 * 1024, 64 * 1024 + 1, SLICE_BYTES, 3 * SLICE_BYTES + 17)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", SIZES)
def test_the_pieces_are_the_whole(codec: Codec, size: int) -> None:
    data = mixed(size, size)
    pieces = [bytes(piece) for piece in slices(codec, compress(codec, data))]
    assert b"".join(pieces) == data
    assert repacked(codec, [data]) == compress(codec, data) or codec == Codec.ZSTD
    assert decompress(codec, repacked(codec, [data[:7], data[7:]])) == data


FRAMES = {
    "several gzip members": (Codec.GZIP, lambda data: compress(Codec.GZIP, data) * 3, 3),
    "several zstd frames": (Codec.ZSTD, lambda data: bytes(cramjam.zstd.compress(data, 3)) * 3, 3),
    "zstd without a stated size": (
        Codec.ZSTD,
        lambda data: (packer := zstandard.ZstdCompressor().compressobj()).compress(data) + packer.flush(),
        1,
    ),
    "a zstd frame behind an empty one": (
        Codec.ZSTD,
        lambda data: bytes(cramjam.zstd.compress(b"", 3)) + bytes(cramjam.zstd.compress(data, 3)),
        1,
    ),
    "a bare snappy block": (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data)), 1),
    "lz4 blocks that depend on each other": (
        Codec.LZ4,
        lambda data: lz4.frame.compress(data, block_linked=True),
        1,
    ),
    "large lz4 blocks with checksums and a size": (
        Codec.LZ4,
        lambda data: lz4.frame.compress(
            data, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False, block_checksum=True,
            content_checksum=True, store_size=True,
        ),
        1,
    ),
    "two lz4 frames": (Codec.LZ4, lambda data: compress(Codec.LZ4, data) * 2, 2),
    "a skippable lz4 frame": (
        Codec.LZ4,
        lambda data: b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + compress(Codec.LZ4, data),
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_every_form_in_which_clients_write_is_read(name: str) -> None:
    codec, pack, times = FRAMES[name]
    data = mixed(5, 5 * SLICE_BYTES + 5)
    assert b"".join(bytes(piece) for piece in slices(codec, pack(data))) == data * times


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_unpacked_in_bounded_memory(codec: Codec) -> None:
    packed = compress(codec, bytes(BOMB_BYTES))
    assert len(packed) < BOMB_BYTES / 200
    tracemalloc.start()
    try:
        sizes = [len(piece) for piece in slices(codec, packed)]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(sizes) == BOMB_BYTES
    assert max(sizes) <= PIECE_BYTES_MAX
    assert peak_bytes < 4 * PIECE_BYTES_MAX


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_whoever_stops_early_has_unpacked_little(codec: Codec) -> None:
    broken_end = compress(codec, bytes(BOMB_BYTES))[:-20] + b"no codec would accept this"
    assert sum(len(piece) for piece in islice(slices(codec, broken_end), 3)) <= 3 * PIECE_BYTES_MAX


@pytest.mark.parametrize("codec", Codec)
def test_a_limit_holds_for_all_pieces_together(codec: Codec) -> None:
    data = bytes(3 * SLICE_BYTES)
    packed = compress(codec, data)
    assert sum(map(len, slices(codec, packed, len(data)))) == len(data)
    with pytest.raises(OverLimit):
        list(slices(codec, packed, len(data) - 1))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_damage_is_an_error_or_other_bytes_and_never_another_exception(
    codec: Codec, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, mixed(1, 3000)))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))]
    try:
        for piece in slices(codec, packed, 1 << 20):
            assert len(piece) <= PIECE_BYTES_MAX
    except CompressionError:
        pass


def test_the_checksum_of_an_lz4_header_is_verified() -> None:
    frame = bytearray(compress(Codec.LZ4, b"abc"))
    assert frame[6] == xxh32(bytes(frame[4:6])) >> 8 & 0xFF
    frame[6] ^= 1
    with pytest.raises(CompressionError, match="checksum"):
        list(slices(Codec.LZ4, frame))


# ------------------------------------------------------------------------------------- walking over pieces


def rows(seed: int, count: int) -> list[Record]:
    chance = random.Random(seed)
    return [
        Record(
            number,
            T0_MS + chance.randrange(1000),
            None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 5, 300))),
            None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 9, 400))),
            tuple((f"name{n}", chance.choice((None, b"", b"value" * 9))) for n in range(chance.randrange(3))),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 64, 1000])
def test_records_may_lie_across_pieces(cut: int) -> None:
    records = rows(cut, 40)
    batch = build_batch(records)
    header = check_batch(batch)
    block = b"".join(bytes(piece) for piece in record_slices(batch, 0, header))
    pieces = [block[at : at + cut] for at in range(0, len(block), cut)]
    whole = (header.record_count, header.base_timestamp)
    assert walk.faults(pieces, *whole, True, T0_MS + 300, T0_MS + 700) == (
        [n for n, record in enumerate(records) if record.key is None],
        [n for n, record in enumerate(records) if record.timestamp < T0_MS + 300],
        [n for n, record in enumerate(records) if record.timestamp > T0_MS + 700],
    )
    for time_ms, offset in ((T0_MS, 0), (T0_MS + 500, 11), (T0_MS + 2000, 0)):
        wanted = [(r.timestamp, r.offset) for r in records if r.timestamp >= time_ms and r.offset >= offset]
        assert walk.first_at_or_after(pieces, *whole, 0, time_ms, offset) == (wanted or [None])[0]
    best = max(records[20:], key=lambda record: (record.timestamp, -record.offset))
    assert walk.greatest(pieces, *whole, 0, 20) == (best.timestamp, best.offset)
    assert b"".join(walk.counted(pieces, header.record_count)) == block


@pytest.mark.parametrize("cut", [1, 5, 64])
def test_damage_is_found_across_pieces_as_within_one(cut: int) -> None:
    batch = build_batch(rows(1, 12))
    header = check_batch(batch)
    block = b"".join(bytes(piece) for piece in record_slices(batch, 0, header))
    chance = random.Random(2)
    for _ in range(400):
        broken = bytearray(block)
        broken[chance.randrange(len(broken))] = chance.randrange(256)
        args = (header.record_count, header.base_timestamp, True, T0_MS, T0_MS)
        outcomes = []
        for pieces in ([broken], [broken[at : at + cut] for at in range(0, len(broken), cut)]):
            try:
                outcomes.append(walk.faults(pieces, *args))
            except CorruptBatch:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1]
    for count, pieces in ((11, [block]), (13, [block]), (12, [block[:-1]]), (12, [block, b"x"]), (1, [])):
        with pytest.raises(CorruptBatch):
            walk.faults(pieces, count, header.base_timestamp, True, T0_MS, T0_MS)
        with pytest.raises(CorruptBatch):
            list(walk.counted(pieces, count))


def test_the_first_record_is_found_without_the_rest_of_a_bomb() -> None:
    """64 KB of zstd cost 600 MB and 0.7 s of CPU for each ListOffsets by time."""
    batch = build_batch([Record(0, T0_MS, None, bytes(BOMB_BYTES))], codec=Codec.ZSTD)
    header = check_batch(batch)
    tracemalloc.start()
    try:
        pieces = record_slices(batch, 0, header, None)
        assert walk.first_at_or_after(pieces, 1, T0_MS, 0, T0_MS, 0) == (T0_MS, 0)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * PIECE_BYTES_MAX


@pytest.mark.parametrize("codec", Codec)
def test_recompressing_a_bomb_holds_neither_form_and_stops_at_the_limit(codec: Codec) -> None:
    bomb = build_batch([Record(0, T0_MS, b"k", bytes(BOMB_BYTES))], codec=Codec.GZIP)
    tracemalloc.start()
    try:
        with pytest.raises(OverLimit):
            recompress(bomb, 0, codec, packed_bytes_max=1000)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * PIECE_BYTES_MAX
