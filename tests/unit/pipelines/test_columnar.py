"""The compiled batch codec against kafka-python's own record builder and reader, and against damage."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from tests.support.examples import examples

from barnabas.pipelines.formats.columns import BASE_COLUMNS, append_batch, arrow_schema, record_batches
from barnabas.records.batch import CorruptBatch
from barnabas.records.checksum import crc32c
from barnabas.records.columnar import AbortedTransactions, Decoded, decode
from barnabas.records.columnar_encoder import BatchEncoder, murmur2

SCHEMA = arrow_schema((*BASE_COLUMNS, "headers"))

small = st.binary(max_size=40) | st.none()
headers = st.lists(st.tuples(st.text(max_size=8), small), max_size=3)
record = st.tuples(small, small, headers, st.integers(0, 1 << 41))


def foreign_batch(rows, base_offset=0, codec=0, producer_id=-1, transactional=False):
    """A batch built by kafka-python, moved to `base_offset`."""
    builder = DefaultRecordBatchBuilder(
        2,
        codec,
        transactional,
        producer_id,
        0 if producer_id >= 0 else -1,
        0 if producer_id >= 0 else -1,
        1 << 30,
    )
    for i, (key, value, heads, timestamp) in enumerate(rows):
        assert builder.append(i, timestamp, key, value, heads) is not None
    data = bytearray(builder.build())
    data[0:8] = base_offset.to_bytes(8, "big")
    return bytes(data)


def rows_of(decoded: Decoded, topic="t", partition=3):
    out = []
    for batch in record_batches(decoded, topic, partition, SCHEMA, 7):
        batch.validate(full=True)
        out += batch.to_pylist()
    return out


def expected(rows, base_offset=0):
    return [
        {
            "key": key,
            "value": value,
            "topic": "t",
            "partition": 3,
            "offset": base_offset + i,
            "timestamp": timestamp,
            "timestampType": 0,
            "headers": [{"key": k, "value": v} for k, v in heads] or None,
        }
        for i, (key, value, heads, timestamp) in enumerate(rows)
    ]


def plain(rows):
    return [{**row, "timestamp": int(row["timestamp"].timestamp() * 1000 + 0.5)} for row in rows]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(record, min_size=1, max_size=20), max_size=4), st.sampled_from([0, 1, 2, 3, 4]))
def test_decodes_what_kafka_python_built(batches, codec):
    if codec in (2, 3, 4):  # kafka-python needs optional packages for these; ours are proven below
        codec = 1
    data, want, offset = b"", [], 10
    for rows in batches:
        data += foreign_batch(rows, offset, codec)
        want += expected(rows, offset)
        offset += len(rows)
    decoded = decode(data, 10, headers=True)
    assert plain(rows_of(decoded)) == want
    assert decoded.next_offset == offset
    assert decoded.position == len(data)


@settings(max_examples=40, deadline=None)
@given(st.lists(record, min_size=1, max_size=30), st.integers(0, 35), st.integers(0, 35))
def test_respects_start_and_end_offsets(rows, start, end):
    decoded = decode(foreign_batch(rows), start, end, headers=True)
    assert plain(rows_of(decoded)) == [row for row in expected(rows) if start <= row["offset"] < end]


def encode(rows, partitions=3, **options):
    encoder = BatchEncoder(partitions, **options)
    table = pa.RecordBatch.from_pylist(
        [
            {
                "key": key,
                "value": value,
                "timestamp": timestamp,
                "headers": [{"key": k, "value": v} for k, v in heads] or None,
            }
            for key, value, heads, timestamp in rows
        ],
        schema=pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("timestamp", pa.timestamp("ms", tz="UTC")),
                ("headers", SCHEMA.field("headers").type),
            ]
        ),
    )
    half = len(rows) // 2  # slices: Arrow offsets that do not begin at 0
    append_batch(encoder, table.slice(0, half), 0)
    append_batch(encoder, table.slice(half), 0)
    return encoder.take() + encoder.flush()


@settings(max_examples=60, deadline=None)
@given(st.lists(record, min_size=1, max_size=40), st.sampled_from([0, 1]), st.sampled_from([100, 10_000]))
def test_kafka_python_reads_what_we_encode(rows, codec, batch_bytes_max):
    batches = encode(rows, producer_id=7, producer_epoch=1, codec=codec, batch_bytes_max=batch_bytes_max)
    got = []
    sequences = {}
    for batch in batches:
        reader = MemoryRecords(bytes(batch.data)).next_batch()
        assert reader.validate_crc()
        assert (reader.producer_id, reader.producer_epoch) == (7, 1)
        assert reader.base_sequence == sequences.get(batch.partition, 0)
        read = list(reader)
        sequences[batch.partition] = reader.base_sequence + len(read)
        assert len(read) == batch.records
        got += [(r.key, r.value, list(r.headers), r.timestamp) for r in read]
        assert max(r.timestamp for r in read) == reader.max_timestamp
        for r in read:
            if r.key is not None:
                assert (murmur2(r.key) & 0x7FFFFFFF) % 3 == batch.partition
    assert sorted(got, key=repr) == sorted(rows, key=repr)


@pytest.mark.parametrize("codec", range(5))
def test_round_trip_in_every_codec(codec):
    rows = [(b"k%d" % (i % 5), b"value %d " % i * 9, [("h", None)], 1000 + i) for i in range(500)]
    batches = encode(rows, partitions=1, codec=codec, batch_bytes_max=9000)
    data, offset = b"", 0
    for batch in batches:
        data += offset.to_bytes(8, "big") + bytes(batch.data)[8:]
        offset += batch.records
    assert plain(rows_of(decode(data, 0, headers=True))) == expected(rows)


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0, 1, 3, 4]))
def test_damage_is_refused_and_never_read_past(seed, codec):
    chance = random.Random(seed)
    rows = [(b"k", b"v" * chance.randrange(50), [("h", b"x")], i) for i in range(chance.randrange(1, 20))]
    data = bytearray(bytes(encode(rows, partitions=1, codec=codec)[0].data))
    for _ in range(chance.randrange(1, 6)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    for cut in (len(data), chance.randrange(len(data))):
        for check_crcs in (True, False):
            try:
                decoded = decode(
                    bytes(data[:cut]), 0, headers=True, check_crcs=check_crcs, batch_bytes_max=1 << 20
                )
            except CorruptBatch:
                continue
            batches = list(record_batches(decoded, "t", 3, SCHEMA, 7))
            for batch in batches:
                batch.validate(full=True)
            assert sum(batch.num_rows for batch in batches) == decoded.rows


@pytest.mark.parametrize(
    "body",
    [
        b"\x80" * 20,  # a varint that never ends
        b"\xfe\xff\xff\xff\x0f" + b"\0" * 20,  # a record longer than the batch
        b"\x0e\0\0\0\xfe\xff\xff\xff\x0f\0\0\0",  # a key longer than its record
        b"\x0e\0\0\0\x01\x01\xfe\xff\xff\x0f\0",  # more headers than bytes
        b"",
    ],
)
def test_hostile_records(body):
    data = bytearray(foreign_batch([(None, b"", [], 0)]))[:61] + body
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[57:61] = (0x7FFFFFFF if not body else 1).to_bytes(4, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    with pytest.raises(CorruptBatch):
        decode(bytes(data), 0, headers=True)


def test_wrong_crc_and_cut_off_batches():
    first, second = foreign_batch([(None, b"a", [], 0)]), foreign_batch([(None, b"b", [], 0)], 1)
    decoded = decode(first + second[:-1], 0)
    assert (decoded.rows, decoded.next_offset, decoded.position) == (1, 1, len(first))
    with pytest.raises(CorruptBatch, match="CRC"):
        decode(first + second[:-1] + b"c", 0)


def marker(producer_id, offset, kind):
    """An end-transaction marker: 0 abort, 1 commit."""
    data = bytearray(
        foreign_batch([(b"\0\0\0" + bytes([kind]), b"\0\0\0\0\0\0", [], 0)], offset, 0, producer_id, True)
    )
    data[21:23] = (0x30).to_bytes(2, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def test_aborted_transactions_and_markers_give_no_records():
    data = (
        foreign_batch([(None, b"aborted", [], 0)], 0, 0, 5, True)
        + foreign_batch([(None, b"other", [], 0)], 1, 0, 6, True)
        + foreign_batch([(None, b"plain", [], 0)], 2)
        + marker(5, 3, 0)
        + foreign_batch([(None, b"kept", [], 0)], 4, 0, 5, True)
        + marker(5, 5, 1)
    )
    decoded = decode(data, 0, aborted=AbortedTransactions([(5, 0)]), headers=True)
    assert [row["value"] for row in rows_of(decoded)] == [b"other", b"plain", b"kept"]
    assert decoded.next_offset == 6
    uncommitted = decode(data, 0, headers=True)
    assert [row["offset"] for row in rows_of(uncommitted)] == [0, 1, 2, 4]


def test_large_input_comes_in_pieces():
    data = b"".join(foreign_batch([(None, bytes(1000), [], 0)] * 10, i * 10) for i in range(20))
    position, offset, rows = 0, 0, 0
    while position < len(data):
        decoded = decode(data, offset, position=position, rows_bytes_max=25_000)
        assert 0 < decoded.rows <= 30
        position, offset, rows = decoded.position, decoded.next_offset, rows + decoded.rows
    assert (rows, offset) == (200, 200)


def test_partitions_and_sticky_batches():
    encoder = BatchEncoder(4, batch_bytes_max=1000, first_sticky=2)
    batch = pa.record_batch(
        {"value": pa.array([bytes(90)] * 40), "partition": pa.array([None] * 39 + [1], pa.int32())}
    )
    append_batch(encoder, batch, 123)
    batches = encoder.take() + encoder.flush()
    assert sum(b.records for b in batches) == 40
    assert {b.partition for b in batches} == {0, 1, 2, 3}
    bad = pa.record_batch({"value": pa.array([b""]), "partition": pa.array([4], pa.int32())})
    with pytest.raises(ValueError, match="asks for partition 4; the topic has 4"):
        append_batch(encoder, bad, 0)


def test_buffers_too_short_are_refused():
    encoder = BatchEncoder(1)
    with pytest.raises(ValueError, match="too short"):
        encoder.append(3, (b"\0" * 8, b"", None, 0, 4), now_ms=0)
    with pytest.raises(ValueError, match="row 0"):
        encoder.append(1, (b"\0\0\0\0\x05\0\0\0", b"abc", None, 0, 4), now_ms=0)
