"""Message sets of magic 0 and 1: what other libraries write and read, and what must be refused."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AioSet
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from barnabas.records.batch import CorruptBatch, Record, TimestampType
from barnabas.records.compression import Codec, compress
from barnabas.records.message_set import (
    InvalidMessageSet,
    UnsupportedCodec,
    append_message,
    build_message_set,
    messages,
    read_message_set,
    set_lz4_checksum,
    xxh32,
)

CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
ROWS: tuple[tuple[bytes | None, bytes | None], ...] = (
    (b"key", b"value"), (None, b"no key"), (b"no value", None), (None, None), (b"", b""), (b"k" * 300, b"v" * 5000),
)  # fmt: skip
TIME = 1_700_000_000_000

fields = st.none() | st.binary(max_size=40)
offsets = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20, unique=True).map(sorted)


def rows(magic: int, first: int = 0) -> list[Record]:
    return [Record(first + n, TIME + n if magic else -1, key, value) for n, (key, value) in enumerate(ROWS)]


def with_crc(entry: bytes) -> bytes:
    """One message with the checksum that its bytes ask for."""
    return entry[:12] + struct.pack(">I", zlib.crc32(entry[16:])) + entry[16:]


def wrapper(magic: int, codec: int, value: bytes, *, offset: int = 0, timestamp: int = TIME) -> bytes:
    out = bytearray()
    append_message(out, offset, magic, codec, timestamp, None, value)
    return bytes(out)


# --- against two other libraries -----------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("builder", [AioBuilder, KafkaPythonBuilder], ids=["aiokafka", "kafka-python"])
def test_plain_sets_have_the_bytes_of_other_libraries(builder: Any, magic: int) -> None:
    theirs = builder(magic=magic, compression_type=0, batch_size=1 << 20)
    for row in rows(magic):
        theirs.append(row.offset, row.timestamp if magic else None, row.key, row.value)
    assert build_message_set(rows(magic), magic=magic) == bytes(theirs.build())


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("magic", [0, 1])
def test_packed_sets_of_aiokafka_are_read(magic: int, codec: Codec) -> None:
    skip_what_aiokafka_lacks(magic, codec)
    theirs = AioBuilder(magic, codec, 1 << 20)
    for row in rows(magic):
        theirs.append(row.offset, row.timestamp if magic else None, row.key, row.value)
    records = list(read_message_set(bytes(theirs.build())))
    # Producers leave the wrapper's offset at 0, for the broker to set: the last message of magic 1 is there.
    base = 0 if magic == 0 else -(len(ROWS) - 1)
    assert records == [row._replace(offset=row.offset + base) for row in rows(magic)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_aiokafka_reads_our_sets(magic: int, codec: Codec) -> None:
    skip_what_aiokafka_lacks(magic, codec)
    ours = build_message_set(rows(magic, first=700), magic=magic, codec=codec)
    records = []
    start = 0
    for end, _ in messages(ours):
        batch = AioSet(bytearray(ours[start:end]), magic)
        assert batch.validate_crc()
        records += [(row.offset, row.timestamp, row.key, row.value) for row in batch]
        start = end
    assert records == [
        (row.offset, row.timestamp if magic else None, row.key, row.value) for row in rows(magic, first=700)
    ]


def skip_what_aiokafka_lacks(magic: int, codec: Codec) -> None:
    if magic == 0 and codec == Codec.LZ4:
        pytest.skip("aiokafka has no lz4 for magic 0")


# --- what goes in comes out ----------------------------------------------------------------------------


@given(magic=st.sampled_from([0, 1]), codec=st.sampled_from(CODECS), at=offsets, data=st.data())
def test_round_trip(magic: int, codec: Codec, at: list[int], data: st.DataObject) -> None:
    sent = [
        Record(
            offset,
            data.draw(st.integers(0, 1 << 45)) if magic else -1,
            data.draw(fields),
            data.draw(fields),
        )
        for offset in at
    ]
    built = build_message_set(sent, magic=magic, codec=codec)
    assert list(read_message_set(built)) == sent


@given(cut=st.integers(0, 400), magic=st.sampled_from([0, 1]))
def test_a_cut_off_last_message_is_left_out(cut: int, magic: int) -> None:
    sent = [Record(n, TIME if magic else -1, b"k", b"x" * 30) for n in range(6)]
    built = build_message_set(sent, magic=magic)
    size = len(built) // 6
    kept = built[: max(0, len(built) - cut)]
    assert list(read_message_set(kept)) == sent[: len(kept) // size]


@given(position=st.integers(0), flip=st.integers(1, 255), magic=st.sampled_from([0, 1]))
def test_a_changed_byte_is_never_taken_for_another_record(position: int, flip: int, magic: int) -> None:
    sent = [Record(n, TIME if magic else -1, b"key", b"value-%d" % n) for n in range(3)]
    built = bytearray(build_message_set(sent, magic=magic))
    at = position % len(built)
    built[at] ^= flip
    try:
        records = list(read_message_set(built))
    except CorruptBatch:
        return
    # Only offsets lie outside the checksum; a grown size may swallow the rest as a cut-off message.
    wanted = [(message.key, message.value, message.timestamp) for message in sent]
    assert [(item.key, item.value, item.timestamp) for item in records] == wanted[: len(records)]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        list(read_message_set(data))
    except (CorruptBatch, UnsupportedCodec):
        pass


@given(st.sampled_from([0, 1]), st.sampled_from([1, 2, 3]), st.binary(max_size=200))
def test_any_bytes_in_a_wrapper_are_read_or_refused(magic: int, codec: int, data: bytes) -> None:
    for value in (data, compress(Codec(codec), data)):
        try:
            list(read_message_set(wrapper(magic, codec, value), limit_bytes=1 << 16))
        except CorruptBatch:
            pass


# --- wrappers ------------------------------------------------------------------------------------------


def test_the_wrapper_has_the_offset_of_its_last_message() -> None:
    sent = [Record(offset, TIME + offset, None, b"x") for offset in (40, 42, 47)]
    ((_, message),) = messages(build_message_set(sent, magic=1, codec=Codec.GZIP))
    assert (message.offset, message.timestamp) == (47, TIME + 47)
    assert message.value is not None
    inner = [one.offset for _, one in messages(zlib.decompress(message.value, 31))]
    assert inner == [0, 2, 7]


def test_inner_offsets_of_magic_0_are_absolute() -> None:
    sent = [Record(offset, -1, None, b"x") for offset in (40, 42, 47)]
    ((_, message),) = messages(build_message_set(sent, magic=0, codec=Codec.GZIP))
    assert message.offset == 47
    assert message.value is not None
    assert [one.offset for _, one in messages(zlib.decompress(message.value, 31))] == [40, 42, 47]


def test_append_time_of_a_wrapper_holds_for_all_inside() -> None:
    sent = [Record(offset, TIME, None, b"x") for offset in range(3)]
    built = build_message_set(sent, magic=1, codec=Codec.SNAPPY, timestamp_type=TimestampType.LOG_APPEND_TIME)
    ((_, message),) = messages(built)
    assert message.timestamp_type == TimestampType.LOG_APPEND_TIME
    inner = bytearray()
    append_message(inner, 0, 1, 0, 5, None, b"given by the producer")
    stamped = wrapper(1, Codec.GZIP | 8, compress(Codec.GZIP, inner), timestamp=TIME)
    assert [row.timestamp for row in read_message_set(stamped)] == [TIME]


def test_what_a_wrapper_may_not_hold() -> None:
    inner = build_message_set([Record(0, TIME, None, b"x")], magic=1)
    packed = wrapper(1, Codec.GZIP, compress(Codec.GZIP, inner))
    with pytest.raises(InvalidMessageSet, match="another wrapper"):
        list(read_message_set(wrapper(1, Codec.GZIP, compress(Codec.GZIP, packed))))
    with pytest.raises(InvalidMessageSet, match="magic 1 in the wrapper of magic 0"):
        list(read_message_set(wrapper(0, Codec.GZIP, compress(Codec.GZIP, inner))))
    with pytest.raises(InvalidMessageSet, match="holds no message"):
        list(read_message_set(wrapper(1, Codec.GZIP, compress(Codec.GZIP, b""))))
    with pytest.raises(CorruptBatch):
        list(read_message_set(wrapper(1, Codec.GZIP, b"not gzip")))
    with pytest.raises(UnsupportedCodec):
        list(read_message_set(wrapper(1, Codec.ZSTD, compress(Codec.ZSTD, inner))))
    with pytest.raises(UnsupportedCodec):
        build_message_set([Record(0, TIME, None, b"x")], magic=1, codec=Codec.ZSTD)


def test_a_wrapper_unfolds_to_no_more_than_the_bound() -> None:
    built = build_message_set([Record(0, TIME, None, bytes(1 << 20))], magic=1, codec=Codec.GZIP)
    assert len(built) < 5000
    with pytest.raises(CorruptBatch, match="bound"):
        list(read_message_set(built, limit_bytes=1 << 16))


def test_sizes_and_magic_that_cannot_be() -> None:
    good = build_message_set([Record(0, TIME, b"k", b"v")], magic=1)
    with pytest.raises(CorruptBatch, match="smallest"):
        list(messages(good[:8] + struct.pack(">i", 3) + good[12:]))
    with pytest.raises(CorruptBatch, match="magic 2"):
        list(messages(with_crc(good[:16] + b"\x02" + good[17:])))
    with pytest.raises(CorruptBatch, match="do not fill"):
        list(messages(with_crc(good[:26] + struct.pack(">i", 9) + good[30:])))
    with pytest.raises(CorruptBatch, match="checksum"):
        list(messages(good[:-1] + b"w"))


# --- the lz4 checksum of magic 0 -----------------------------------------------------------------------


def test_xxh32_gives_the_published_values() -> None:
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"abc") == 0x32D153FF
    assert xxh32(b"Nobody inspects the spammish repetition") == 0xE2293B2F


def test_the_right_lz4_checksum_is_the_one_that_the_library_wrote() -> None:
    frame = compress(Codec.LZ4, b"something to pack" * 9)
    assert set_lz4_checksum(frame, with_magic=False) == frame
    wrong = set_lz4_checksum(frame, with_magic=True)
    assert wrong != frame
    assert set_lz4_checksum(wrong, with_magic=False) == frame


def test_magic_0_takes_either_checksum_and_writes_the_wrong_one() -> None:
    inner = build_message_set([Record(3, -1, None, b"x" * 99)], magic=0)
    frame = compress(Codec.LZ4, inner)
    for value in (frame, set_lz4_checksum(frame, with_magic=True)):
        assert [row.value for row in read_message_set(wrapper(0, Codec.LZ4, value))] == [b"x" * 99]
    ((_, message),) = messages(build_message_set([Record(3, -1, None, b"x" * 99)], magic=0, codec=Codec.LZ4))
    assert message.value is not None
    assert bytes(message.value) == set_lz4_checksum(frame, with_magic=True)


def test_magic_1_refuses_the_wrong_lz4_checksum() -> None:
    inner = build_message_set([Record(0, TIME, None, b"x" * 99)], magic=1)
    wrong = set_lz4_checksum(compress(Codec.LZ4, inner), with_magic=True)
    with pytest.raises(CorruptBatch):
        list(read_message_set(wrapper(1, Codec.LZ4, wrong)))
