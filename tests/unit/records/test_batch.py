"""Batches against the two Python clients' own encoders, and against themselves under random damage."""

from __future__ import annotations

import struct

import crc32c
import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from barnabas.records.batch import (
    HEADER_BYTES,
    CorruptBatch,
    Record,
    TimestampType,
    add_sequence,
    batches,
    build_batch,
    check_batch,
    patch,
    patch_max_timestamp,
    read_header,
    read_records,
    rebuild_batch,
    recompress,
    records_block,
)
from barnabas.records.compression import Codec

small = st.one_of(st.none(), st.binary(max_size=60))
headers = st.lists(st.tuples(st.text(max_size=8), small), max_size=3).map(tuple)
records = st.lists(
    st.builds(
        Record, st.just(0), st.integers(0, 1 << 45), small, st.one_of(small, st.just(b"v" * 5000)), headers
    ),
    min_size=1,
    max_size=12,
).map(lambda rows: [row._replace(offset=i) for i, row in enumerate(rows)])
codecs = st.sampled_from(list(Codec))

THREE = [
    Record(0, 1_700_000_000_000, b"k", b"v" * 300, (("h", b"x"), ("n", None))),
    Record(1, 1_700_000_000_005, None, b"", ()),
    Record(2, 1_699_999_999_999, b"", None, ()),
]


@given(records, codecs)
@settings(max_examples=60, deadline=None)
def test_what_is_built_is_read_back(rows: list[Record], codec: Codec) -> None:
    batch = build_batch(rows, codec=codec)
    header = check_batch(batch)
    assert list(read_records(batch)) == rows
    assert header.record_count == len(rows)
    assert header.max_timestamp == max(row.timestamp for row in rows)
    assert header.size_bytes == len(batch)
    assert header.codec == codec
    assert recompress(batch, 0, Codec.NONE) == build_batch(rows)


@given(records, codecs)
@settings(max_examples=40, deadline=None)
def test_aiokafka_reads_what_we_build(rows: list[Record], codec: Codec) -> None:
    theirs = AioBatch(build_batch(rows, codec=codec))
    assert theirs.validate_crc()
    got = [Record(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in theirs]
    assert got == rows


@pytest.mark.parametrize("codec", list(Codec))
def test_we_read_what_aiokafka_builds(codec: Codec) -> None:
    builder = AioBuilder(2, int(codec), 1, 77, 3, 9, 1 << 20)
    for row in THREE:
        builder.append(row.offset, row.timestamp, row.key, row.value, list(row.headers))
    batch = bytes(builder.build())
    header = check_batch(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 9)
    assert header.is_transactional
    assert header.last_sequence == 11
    assert list(read_records(batch)) == THREE
    assert recompress(batch, 0, Codec.NONE) == build_batch(
        THREE, producer_id=77, producer_epoch=3, base_sequence=9, transactional=True
    )


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_kafka_python_and_we_read_each_other(codec: Codec) -> None:
    builder = KafkaPythonBuilder(2, int(codec), False, -1, -1, -1, 1 << 20)
    for row in THREE:
        builder.append(row.offset, row.timestamp, row.key, row.value, list(row.headers))
    assert list(read_records(bytes(builder.build()))) == THREE
    theirs = KafkaPythonBatch(build_batch(THREE, codec=codec))
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in theirs] == [row[:4] for row in THREE]


def test_the_bytes_of_one_batch_are_what_kafka_writes() -> None:
    """Written down once from the format's documentation, so that a slip in both directions shows."""
    batch = build_batch([Record(5, 1000, b"a", b"b", (("h", b"c"),))], base_offset=5, leader_epoch=7)
    record = bytes.fromhex("18 00 00 00 02 61 02 62 02 02 68 02 63")
    tail = struct.pack(">hiqqqhii", 0, 0, 1000, 1000, -1, -1, -1, 1) + record
    head = struct.pack(">qiib", 5, 9 + len(tail), 7, 2)
    assert batch == head + struct.pack(">I", crc32c.crc32c(tail)) + tail


def test_offset_and_epoch_are_patched_without_a_new_checksum() -> None:
    batch = bytearray(build_batch(THREE))
    crc = read_header(batch).crc
    patch(batch, 0, 1234, 9)
    header = check_batch(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.crc) == (1234, 9, crc)
    assert [r.offset for r in read_records(batch)] == [1234, 1235, 1236]


def test_append_time_replaces_all_timestamps() -> None:
    batch = bytearray(build_batch(THREE))
    patch_max_timestamp(batch, 0, TimestampType.LOG_APPEND_TIME, 42)
    assert check_batch(batch).timestamp_type == TimestampType.LOG_APPEND_TIME
    assert [r.timestamp for r in read_records(batch)] == [42, 42, 42]


@given(st.integers(0, 10_000), st.integers(0, 7))
@settings(max_examples=80, deadline=None)
def test_every_flipped_bit_is_noticed(byte: int, bit: int) -> None:
    good = build_batch(THREE, codec=Codec.ZSTD)
    bad = bytearray(good)
    byte %= len(bad)
    bad[byte] ^= 1 << bit
    if byte < 8 or 12 <= byte < 16:
        check_batch(bad)  # base offset and leader epoch lie outside the checksum
        return
    with pytest.raises(CorruptBatch):
        check_batch(bad)


def test_a_cut_batch_is_refused_at_every_length() -> None:
    good = build_batch(THREE)
    for size in range(len(good)):
        with pytest.raises(CorruptBatch):
            check_batch(good[:size])
        assert list(batches(good[:size])) == []


@given(st.binary(max_size=200))
@settings(max_examples=80, deadline=None)
def test_garbage_in_the_records_is_corrupt_and_nothing_else(block: bytes) -> None:
    from barnabas.records.batch import NEW_HEADER, assemble

    batch = assemble(NEW_HEADER._replace(last_offset_delta=2, record_count=3), block)
    try:
        assert len(list(read_records(batch))) == 3
    except CorruptBatch:
        pass


def test_a_rebuilt_batch_keeps_its_place_and_producer() -> None:
    rows = [row._replace(offset=100 + row.offset) for row in THREE]
    batch = build_batch(
        rows, base_offset=100, codec=Codec.LZ4, producer_id=5, producer_epoch=1, base_sequence=8
    )
    header = read_header(batch)
    kept = rebuild_batch(header, [rows[1]])
    after = check_batch(kept)
    assert (after.base_offset, after.last_offset, after.last_sequence) == (100, 102, 10)
    assert list(read_records(kept)) == [rows[1]]
    assert after.max_timestamp == rows[1].timestamp
    emptied = check_batch(rebuild_batch(header, []))
    assert (emptied.record_count, emptied.last_offset, emptied.size_bytes) == (0, 102, 61)
    horizon = rebuild_batch(header, rows, delete_horizon_ms=1_700_000_100_000)
    assert check_batch(horizon).delete_horizon_ms == 1_700_000_100_000
    assert list(read_records(horizon)) == rows


def test_sequences_wrap_after_the_largest_int() -> None:
    assert add_sequence(0x7FFFFFFF, 1) == 0
    batch = build_batch(THREE, producer_id=1, producer_epoch=0, base_sequence=0x7FFFFFFE)
    assert read_header(batch).last_sequence == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_records_that_are_unpacked_in_several_pieces_are_all_there(codec: Codec) -> None:
    rows = [Record(i, 1, b"key-%d" % i, b"%d" % i * 40) for i in range(20_000)]
    packed = memoryview(build_batch(rows, codec=codec))
    plain = build_batch(rows)
    assert records_block(packed, 0, read_header(packed, 0)) == plain[HEADER_BYTES:]
