"""Conversion between message sets and batches: nothing is lost but what the older format cannot say."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records.batch import (
    CorruptBatch,
    Record,
    TimestampType,
    build_batch,
    check_batch,
    patch_max_timestamp,
    read_header,
    read_records,
    rebuild_batch,
)
from barnabas.records.compression import Codec, compress
from barnabas.records.control import build_marker
from barnabas.records.message_set import (
    InvalidMessageSet,
    UnsupportedCodec,
    append_message,
    build_message_set,
    messages,
    read_message_set,
)
from barnabas.records.message_set_convert import InvalidTimestamp, MessageTooLarge, convert_down, convert_up

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
TIME = 1_700_000_000_000
ALL = 1 << 30

fields = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), fields), max_size=2).map(tuple)
times = st.integers(-1, 1 << 45)
rows = st.lists(st.builds(Record, st.just(0), times, fields, fields, headers), min_size=1, max_size=15).map(
    lambda records: [row._replace(offset=n) for n, row in enumerate(records)]
)


def plain(row: Record, magic: int) -> Record:
    """What of a record the old format can say."""
    return row._replace(headers=(), timestamp=row.timestamp if magic else -1)


def at(row: Record, offset: int) -> Record:
    return row._replace(offset=offset)


def lines(count: int, first: int = 0, size: int = 10) -> list[Record]:
    return [Record(first + n, TIME + n, b"k%d" % n, b"v" * size) for n in range(count)]


# --- up ------------------------------------------------------------------------------------------------


@given(sent=rows, magic=st.sampled_from([0, 1]), codec=st.sampled_from(OLD_CODECS))
@settings(deadline=None)
def test_up_gives_one_batch_of_the_same_codec(sent: list[Record], magic: int, codec: Codec) -> None:
    sent = [plain(row, magic) for row in sent]
    built = build_message_set(sent, magic=magic, codec=codec)
    (batch,), count = convert_up(built, max_batch_bytes=ALL)
    header = check_batch(batch)
    assert list(read_records(batch)) == sent
    assert (header.codec, header.record_count, count) == (codec, len(sent), len(sent))
    assert header.max_timestamp == max(row.timestamp for row in sent)
    assert (header.producer_id, header.base_sequence) == (-1, -1)


@given(sent=rows, magic=st.sampled_from([0, 1]), bound=st.integers(120, 400))
@settings(deadline=None)
def test_up_parts_what_is_too_large_for_one_batch(sent: list[Record], magic: int, bound: int) -> None:
    sent = [plain(row, magic) for row in sent]
    batches, _ = convert_up(build_message_set(sent, magic=magic), max_batch_bytes=bound)
    assert [record._replace(offset=0) for batch in batches for record in read_records(batch)] == [
        at(row, 0) for row in sent
    ]
    assert all(len(batch) <= bound or read_header(batch).record_count == 1 for batch in batches)


def test_up_takes_offsets_as_clients_really_write_them() -> None:
    """All zero (sarama), counting within the wrapper (Java), or a wrapper at 0 (kafka-python): order counts."""
    inner = bytearray()
    for value in (b"a", b"b", b"c"):
        append_message(inner, 0, 1, 0, TIME, None, value)
    outer = bytearray()
    append_message(outer, 0, 1, Codec.GZIP, 0, None, compress(Codec.GZIP, inner))
    (batch,), _ = convert_up(outer, max_batch_bytes=ALL)
    assert [(record.offset, record.value, record.timestamp) for record in read_records(batch)] == [
        (0, b"a", TIME), (1, b"b", TIME), (2, b"c", TIME),
    ]  # fmt: skip


def test_up_joins_several_wrappers() -> None:
    first = build_message_set(lines(3), magic=1, codec=Codec.SNAPPY)
    second = build_message_set(lines(2, first=3), magic=1, codec=Codec.SNAPPY)
    (batch,), count = convert_up(first + second, max_batch_bytes=ALL)
    assert count == 5
    assert [record.offset for record in read_records(batch)] == [0, 1, 2, 3, 4]


def test_up_refuses_what_would_be_lost_or_lied() -> None:
    whole = build_message_set(lines(2), magic=1)
    for cut in (whole[:-1], whole[:50], b"", b"\0" * 5):
        with pytest.raises(CorruptBatch):
            convert_up(cut, max_batch_bytes=ALL)
    stamped = build_message_set(lines(1), magic=1, timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(InvalidTimestamp, match="broker's"):
        convert_up(stamped, max_batch_bytes=ALL)
    with pytest.raises(InvalidTimestamp, match="1970"):
        convert_up(build_message_set([Record(0, -2, None, b"x")], magic=1), max_batch_bytes=ALL)
    hollow = bytearray()
    append_message(hollow, 0, 1, Codec.GZIP, TIME, None, compress(Codec.GZIP, b""))
    with pytest.raises(InvalidMessageSet):
        convert_up(hollow, max_batch_bytes=ALL)


def test_up_refuses_a_message_larger_than_a_batch_may_be() -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        built = build_message_set([Record(0, TIME, None, bytes(range(256)))], magic=1, codec=codec)
        with pytest.raises(MessageTooLarge):
            convert_up(built, max_batch_bytes=200)


def test_up_bounds_what_all_wrappers_together_unfold_to() -> None:
    one = build_message_set([Record(0, TIME, None, bytes(60_000))], magic=1, codec=Codec.GZIP)
    assert convert_up(one, max_batch_bytes=ALL, limit_bytes=100_000)[1] == 1
    with pytest.raises(CorruptBatch, match="bound"):
        convert_up(one + one, max_batch_bytes=ALL, limit_bytes=100_000)


# --- down ----------------------------------------------------------------------------------------------


@given(
    parts=st.lists(st.tuples(rows, st.sampled_from(OLD_CODECS)), min_size=1, max_size=4),
    magic=st.sampled_from([0, 1]),
)
@settings(deadline=None)
def test_down_keeps_all_but_headers(parts: list[tuple[list[Record], Codec]], magic: int) -> None:
    log = b""
    wanted = []
    offset = 0
    for sent, codec in parts:
        log += build_batch(sent, base_offset=offset, codec=codec)
        wanted += [at(plain(row, magic), offset + n) for n, row in enumerate(sent)]
        offset += len(sent)
    converted = convert_down(log, magic=magic, from_offset=0, max_bytes=ALL)
    assert list(read_message_set(converted.data)) == wanted
    assert (converted.records, converted.next_offset) == (len(wanted), offset)
    codecs = [message.attributes & 7 for _, message in messages(converted.data)]
    assert codecs == [codec for sent, codec in parts for _ in (sent if not codec else [0])]


@given(
    parts=st.lists(st.tuples(rows, st.sampled_from(OLD_CODECS)), min_size=1, max_size=4),
    magic=st.sampled_from([0, 1]),
    max_bytes=st.integers(1, 600),
)
@settings(deadline=None)
def test_a_reader_in_small_steps_sees_every_record_once(
    parts: list[tuple[list[Record], Codec]], magic: int, max_bytes: int
) -> None:
    """Reads as old consumers do: from their own position, letting go what lies below it."""
    log = b""
    wanted = []
    end = 0
    for sent, codec in parts:
        log += build_batch(sent, base_offset=end, codec=codec)
        wanted += [at(plain(row, magic), end + n) for n, row in enumerate(sent)]
        end += len(sent)
    seen: list[Record] = []
    position = 0
    while position < end:
        converted = convert_down(log, magic=magic, from_offset=position, max_bytes=max_bytes)
        fresh = [row for row in read_message_set(converted.data) if row.offset >= position]
        assert fresh
        assert len(converted.data) <= max_bytes or sum(1 for _ in messages(converted.data)) == 1
        seen += fresh
        position = fresh[-1].offset + 1
        assert converted.next_offset >= position
    assert seen == wanted


def test_down_starts_inside_a_plain_batch_but_at_the_front_of_a_packed_one() -> None:
    for codec, first in ((Codec.NONE, 4), (Codec.GZIP, 0)):
        batch = build_batch(lines(6), codec=codec)
        converted = convert_down(batch, magic=1, from_offset=4, max_bytes=ALL)
        assert [row.offset for row in read_message_set(converted.data)] == list(range(first, 6))


def test_down_skips_markers_and_emptied_batches() -> None:
    emptied = build_batch(lines(3), base_offset=0)
    log = (
        rebuild_batch(read_header(emptied), [])
        + build_marker(
            commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=TIME, base_offset=3
        )
        + build_batch(lines(2), base_offset=4)
    )
    converted = convert_down(log, magic=1, from_offset=0, max_bytes=ALL)
    assert [row.offset for row in read_message_set(converted.data)] == [4, 5]
    nothing = convert_down(log[: len(log) - 20], magic=1, from_offset=0, max_bytes=ALL)
    assert (nothing.data, nothing.records, nothing.next_offset) == (b"", 0, 4)


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_gaps_of_a_compacted_batch_stay(codec: Codec) -> None:
    whole = build_batch(lines(8), base_offset=100, codec=codec)
    kept = [row for row in read_records(whole) if row.offset in (102, 105)]
    batch = rebuild_batch(read_header(whole), kept)
    for magic in (0, 1):
        converted = convert_down(batch, magic=magic, from_offset=100, max_bytes=ALL)
        assert [row.offset for row in read_message_set(converted.data)] == [102, 105]
        assert converted.next_offset == 108


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_append_time_is_kept(codec: Codec) -> None:
    batch = bytearray(build_batch(lines(3), codec=codec))
    patch_max_timestamp(batch, 0, TimestampType.LOG_APPEND_TIME, TIME + 500)
    converted = convert_down(bytes(batch), magic=1, from_offset=0, max_bytes=ALL)
    assert {message.timestamp_type for _, message in messages(converted.data)} == {
        TimestampType.LOG_APPEND_TIME
    }
    assert {row.timestamp for row in read_message_set(converted.data)} == {TIME + 500}


def test_zstd_cannot_go_down() -> None:
    packed = build_batch(lines(3), base_offset=2, codec=Codec.ZSTD)
    with pytest.raises(UnsupportedCodec):
        convert_down(packed, magic=1, from_offset=2, max_bytes=ALL)
    converted = convert_down(build_batch(lines(2)) + packed, magic=1, from_offset=0, max_bytes=ALL)
    assert (converted.records, converted.next_offset) == (2, 2)


def test_damage_is_not_sealed_in() -> None:
    batch = bytearray(build_batch(lines(3)))
    batch[-3] ^= 1
    with pytest.raises(CorruptBatch):
        convert_down(batch, magic=1, from_offset=0, max_bytes=ALL)
    good = build_batch(lines(2))
    assert convert_down(good + batch, magic=1, from_offset=0, max_bytes=ALL).records == 2


def test_a_cut_off_batch_is_left_out() -> None:
    log = build_batch(lines(2)) + build_batch(lines(2), base_offset=2)
    converted = convert_down(log[:-1], magic=0, from_offset=0, max_bytes=ALL)
    assert converted.next_offset == 2


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_an_old_log_is_read_as_it_is_or_one_magic_lower(codec: Codec) -> None:
    """Logs that Kafka wrote before 0.11 and somebody carried over."""
    log = build_message_set(lines(2), magic=1, codec=codec) + build_batch(lines(2), base_offset=2)
    same = convert_down(log, magic=1, from_offset=0, max_bytes=ALL)
    assert log.startswith(same.data[: len(log) - len(build_batch(lines(2)))])
    assert [row.offset for row in read_message_set(same.data)] == [0, 1, 2, 3]
    lower = convert_down(log, magic=0, from_offset=0, max_bytes=ALL)
    assert {message.magic for _, message in messages(lower.data)} == {0}
    assert [row.offset for row in read_message_set(lower.data)] == [0, 1, 2, 3]


@given(st.binary(max_size=200))
def test_any_bytes_are_converted_or_refused(data: bytes) -> None:
    for magic in (0, 1):
        try:
            convert_down(data, magic=magic, from_offset=0, max_bytes=ALL)
        except (CorruptBatch, UnsupportedCodec):
            pass
    try:
        convert_up(data, max_batch_bytes=ALL)
    except (CorruptBatch, UnsupportedCodec):
        pass


def test_a_length_that_cannot_be_is_refused() -> None:
    with pytest.raises(CorruptBatch):
        convert_down(struct.pack(">qi", 0, -5) + bytes(80), magic=1, from_offset=0, max_bytes=ALL)
