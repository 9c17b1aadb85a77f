"""Codecs: Java's framings, leniency where Java is lenient, and the bound on what is unpacked."""

from __future__ import annotations

import gzip
import struct

import cramjam
import pytest
from aiokafka import codec as aio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records.compression import Codec, CompressionError, codec_of, compress, decompress
from tests.support.examples import examples

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(b"a line with the number %d\n" % i for i in range(8000))


@given(st.binary(max_size=3000), st.sampled_from(list(Codec)))
@settings(max_examples=60, deadline=None)
def test_round_trip(data: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", PACKED)
def test_more_than_the_bound_is_refused_without_being_unpacked(codec: Codec) -> None:
    bomb = compress(codec, bytes(50_000_000))
    with pytest.raises(CompressionError, match="bound"):
        decompress(codec, bomb, 1 << 20)
    assert len(decompress(codec, compress(codec, TEXT), len(TEXT))) == len(TEXT)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken(codec: Codec, view: type) -> None:
    assert decompress(codec, view(compress(codec, view(TEXT)))) == TEXT


@pytest.mark.parametrize("codec", PACKED)
def test_damage_is_an_error_of_ours(codec: Codec) -> None:
    good = compress(codec, TEXT)
    for bad in (good[:-3], good[: len(good) // 2], b"", b"\x00", good[:10] + b"\xff" * 30 + good[40:]):
        try:
            assert decompress(codec, bad) != TEXT or bad == good
        except CompressionError:
            pass


def test_snappy_is_framed_as_java_frames_it() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (first_block,) = struct.unpack_from(">i", packed, 16)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first_block]) == 32 * 1024
    assert aio.snappy_decode(packed) == TEXT


def test_snappy_without_framing_and_streams_in_a_row_are_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT
    twice = compress(Codec.SNAPPY, TEXT) * 2
    assert decompress(Codec.SNAPPY, twice) == TEXT * 2


def test_lz4_frames_are_those_that_java_reads() -> None:
    """Java takes only independent blocks of at most 64 KB ... 4 MB, and no dictionary."""
    packed = compress(Codec.LZ4, TEXT)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    flags, block = packed[4], packed[5]
    assert flags >> 6 == 1
    assert flags & 0x20, "blocks must be independent"
    assert not flags & 0x01, "no dictionary"
    assert block >> 4 & 7 == 4
    assert aio.lz4_decode(packed) == TEXT
    assert decompress(Codec.LZ4, aio.lz4_encode(TEXT)) == TEXT


def test_gzip_members_in_a_row_are_read() -> None:
    assert decompress(Codec.GZIP, gzip.compress(TEXT) + gzip.compress(b"more")) == TEXT + b"more"
    assert gzip.decompress(compress(Codec.GZIP, TEXT)) == TEXT


def test_zstd_without_a_declared_size_is_read() -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(TEXT * 40)
    assert decompress(Codec.ZSTD, bytes(stream.finish())) == TEXT * 40


@pytest.mark.parametrize(
    ("codec", "empty"),
    [
        (Codec.GZIP, gzip.compress(b"", mtime=0)),
        (Codec.LZ4, bytes(cramjam.lz4.compress(b""))),
        (Codec.ZSTD, bytes.fromhex("28b52ffd2000010000")),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_empty_frames_are_read_over(codec: Codec, empty: bytes) -> None:
    """A frame that declares 0 bytes says nothing about the ones behind it."""
    assert decompress(codec, empty) == decompress(codec, empty * 3) == b""
    packed = compress(codec, TEXT)
    assert decompress(codec, empty + packed) == decompress(codec, packed + empty) == TEXT
    assert decompress(codec, empty * 9_000 + packed) == TEXT
    for cut in (1, 4):
        with pytest.raises(CompressionError):
            decompress(codec, empty + packed[:-cut])


@given(st.sampled_from([codec for codec in Codec if codec]), st.data())
@settings(max_examples=examples(300), deadline=None)
def test_reading_ends_whatever_is_read(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, data.draw(st.sampled_from([b"", b"a", TEXT]))))
    for _ in range(data.draw(st.integers(0, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    packed += data.draw(st.sampled_from([b"", bytes(packed), b"\0\0\0"]))
    try:
        assert len(decompress(codec, packed, 1 << 15)) <= 1 << 15
    except CompressionError:
        pass


def test_levels_are_taken() -> None:
    for codec, level in ((Codec.GZIP, 1), (Codec.LZ4, 12), (Codec.ZSTD, 19)):
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT


def test_names() -> None:
    assert codec_of("zstd") is Codec.ZSTD
    assert codec_of("uncompressed") is Codec.NONE
    with pytest.raises(ValueError, match="use none, gzip"):
        codec_of("lzo")
