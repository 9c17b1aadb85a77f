"""Compaction, case by case: what goes, what stays, for how long, and what a crash leaves."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.records.batch import Record, batches, build_batch, check_batch, read_records
from barnabas.records.compression import Codec
from barnabas.records.message_set import build_message_set
from barnabas.storage import compaction
from barnabas.storage.cleaning import copying
from barnabas.storage.cleaning.cleaner import cleanable
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log, open_log
from barnabas.storage.throttle import Throttle
from tests.unit.storage.building import T0_MS, append, files, read_all, rows
from tests.unit.storage.cleaning import COMPACT, NAME, clean, cleaner_of, end_txn, new_log, pairs, put


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return new_log(tmp_path)


def test_the_product_inventory(log: Log) -> None:
    """The example that explains compaction: the last count of each product is what a new reader needs."""
    for key, value in (
        (b"123", b'{"NB":"2"}'), (b"456", b'{"PAD":"7"}'), (b"789", b'{"TV":"10"}'), (b"123", b'{"NB":"8"}'),
        (b"456", b'{"PAD":"5"}'), (b"789", b'{"TV":"13"}'),
    ):  # fmt: skip
        put(log, (key, value))
    log.roll(T0_MS)
    put(log, (b"123", b'{"NB":"9"}'))
    put(log, (b"456", b'{"PAD":"4"}'))
    clean(log, roll=False)
    assert pairs(log) == [
        (3, b"123", b'{"NB":"8"}'),
        (4, b"456", b'{"PAD":"5"}'),
        (5, b"789", b'{"TV":"13"}'),
        (6, b"123", b'{"NB":"9"}'),
        (7, b"456", b'{"PAD":"4"}'),
    ]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_compacted_in_kind(log: Log, codec: Codec) -> None:
    for i in range(30):
        put(log, (b"a", b"%d" % i), (b"b-%d" % (i % 5), b"x" * 50), (b"c", b"%d" % i), codec=codec)
    before = {record.offset: record for record in read_all(log)}
    clean(log)
    got = read_all(log)
    assert [record.key for record in got] == [b"b-%d" % i for i in range(4)] + [b"a", b"b-4", b"c"]
    assert all(before[record.offset] == record for record in got)
    part = log.read(0, 1 << 20)
    assert part is not None
    codecs = {header.codec for _, header in batches(part.read()) if header.record_count}
    assert codecs == {codec}


def test_readers_find_their_place_in_the_gaps(log: Log) -> None:
    for i in range(60):
        put(log, (b"same", b"%d" % i))
    put(log, (b"other", b"x"))
    clean(log)
    assert log.log_end_offset == 61
    for offset in range(61):
        assert [o for o, _, _ in pairs_from(log, offset)] == [o for o in (59, 60) if o >= offset]
    assert append(log, rows(1)) == 61


def pairs_from(log: Log, offset: int) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in read_all(log, offset)]


def test_small_segments_are_put_together(log: Log) -> None:
    for i in range(200):
        put(log, (b"k%d" % (i % 3), b"v" * 100))
    count = len(log.segments)
    clean(log)
    assert log.first_dirty_offset == 200
    put(log, (b"k0", b"w" * 100))
    cleaner = clean(log)
    assert len(log.segments) < count / 2
    assert cleaner.last_stats is not None
    assert cleaner.last_stats.records_kept == 3
    names = [name for name in files(log.folder) if not name.endswith(".deleted")]
    assert sum(name.endswith(".log") for name in names) == len(log.segments)
    again = open_log(log.folder, COMPACT, T0_MS, clean=False)
    assert read_all(again) == read_all(log)
    assert again.log_end_offset == 201


def test_what_is_clean_already_is_left_as_it_is(log: Log) -> None:
    for i in range(100):
        put(log, (b"key-%d" % i, b"v" * 100))
    clean(log)
    inodes = [os.stat(segment.path(".log")).st_ino for segment in log.segments[:-2]]
    put(log, (b"new", b"x"))
    clean(log)
    assert [os.stat(segment.path(".log")).st_ino for segment in log.segments[: len(inodes)]] == inodes


def test_a_tombstone_stays_for_its_time_after_the_first_pass(log: Log) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None))
    clean(log, T0_MS)
    assert pairs(log) == [(1, b"b", b"1"), (2, b"a", None)]
    header = next(
        header
        for _, header in batches(Path(log.segments[0].path(".log")).read_bytes())
        if header.base_offset == 2
    )
    assert header.delete_horizon_ms == T0_MS + 10_000
    assert read_all(log)[-1].timestamp == T0_MS
    put(log, (b"c", b"1"))
    clean(log, T0_MS + 9_999)
    assert (2, b"a", None) in pairs(log)
    put(log, (b"d", b"1"))
    clean(log, T0_MS + 10_000)
    assert pairs(log) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"d", b"1")]


def test_a_tombstone_that_was_written_again_is_new(log: Log) -> None:
    put(log, (b"a", None))
    clean(log, T0_MS)
    put(log, (b"a", None))
    clean(log, T0_MS + 20_000)
    assert pairs(log) == [(1, b"a", None)]


def test_keyless_records_go(log: Log) -> None:
    put(log, (None, b"1"), (b"a", b"1"), (None, b"2"))
    clean(log)
    assert pairs(log) == [(1, b"a", b"1")]


def test_the_active_segment_is_not_touched(log: Log) -> None:
    put(log, (b"a", b"1"), (b"a", b"2"))
    cleaner = clean(log, roll=False)
    assert cleaner.filthiest(T0_MS) is None
    assert len(pairs(log)) == 2


def test_a_log_larger_than_the_map_is_cleaned_in_passes(log: Log) -> None:
    for i in range(300):
        put(log, (b"key-%d" % (i % 100), b"%d" % i), (b"other-%d" % (i % 100), b"%d" % i))
    log.roll(T0_MS)
    cleaner = cleaner_of(log, keys=50)
    passes = 0
    reached = [0]
    while cleaner.run(T0_MS):
        passes += 1
        assert log.first_dirty_offset > reached[-1]
        reached.append(log.first_dirty_offset)
    assert passes > 5
    assert reached[-1] == 600
    assert cleaner.last_stats is not None
    assert cleaner.last_stats.map_keys <= 45
    got = pairs(log)
    assert len(got) == 200
    assert {value for _, _, value in got} == {b"%d" % i for i in range(200, 300)}


def test_a_map_too_small_for_one_batch_is_said(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    put(log, *[(b"%d" % i, b"x") for i in range(50)])
    log.roll(T0_MS)
    cleaner = cleaner_of(log, keys=10)
    cleaner.run(T0_MS)
    assert "dedupe.buffer.size" in cleaner.uncleanable[NAME]
    assert cleaner.filthiest(T0_MS) is None
    assert "log cannot be compacted and grows until it is repaired" in caplog.messages
    assert len(pairs(log)) == 50


def test_lags_and_ratio_decide_when(log: Log) -> None:
    def due(now_ms: int, **options: Any) -> bool:
        log.set_config(replace(COMPACT, **options))
        return cleaner_of(log).filthiest(now_ms) is not None

    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(T0_MS)
    put(log, (b"a", b"3"))
    assert due(T0_MS)
    assert not due(T0_MS + 4_999, min_compaction_lag_ms=5_000)
    assert due(T0_MS + 5_000, min_compaction_lag_ms=5_000)
    log.set_config(COMPACT)
    clean(log, roll=False)
    assert not due(T0_MS)
    put(log, (b"b", b"x" * 10))
    log.roll(T0_MS)
    state = cleanable(log, T0_MS)
    assert (state.first_dirty, state.first_uncleanable) == (2, 4)
    assert 0.4 < state.dirty_ratio < 0.8
    assert not due(T0_MS, min_cleanable_dirty_ratio=0.9)
    assert due(T0_MS + 1_001, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=1_000)
    assert not due(T0_MS + 1_000, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=1_000)


def test_the_active_segment_closes_in_time_for_the_longest_lag(tmp_path: Path) -> None:
    log = create_log(str(tmp_path / "t-0"), replace(COMPACT, max_compaction_lag_ms=5_000), T0_MS)
    for at_ms in (0, 5_000, 5_001):
        append(log, [Record(0, T0_MS + at_ms, b"k", b"v")])
    assert [segment.base_offset for segment in log.segments] == [0, 2]


# --- transactions and producers ---------------------------------------------------------------------


def test_aborted_records_go_and_markers_follow_after_their_time(log: Log) -> None:
    put(log, (b"a", b"old"), (b"x", b"1"))
    put(log, (b"a", b"aborted"), (b"b", b"aborted"), producer_id=1, sequence=0, transactional=True)
    end_txn(log, 1, commit=False)
    put(log, (b"a", b"committed"), producer_id=1, sequence=2, transactional=True)
    end_txn(log, 1, commit=True)
    put(log, (b"c", b"2"), producer_id=1, sequence=3, transactional=True)
    end_txn(log, 1, commit=True)
    put(log, (b"z", b"9"), producer_id=2, sequence=0)
    clean(log, T0_MS)

    def data() -> list[tuple[int, bytes | None, bytes | None]]:
        return [row for row in pairs(log) if row[1] is not None and len(row[1]) == 1]

    assert data() == [(1, b"x", b"1"), (5, b"a", b"committed"), (7, b"c", b"2"), (9, b"z", b"9")]
    assert control_offsets(log) == [4, 6, 8]
    # The aborted batch is gone, and so is what told readers of it; the marker waits for its horizon.
    assert log.aborted(0, log.log_end_offset) == [(1, 2)]
    put(log, (b"d", b"3"))
    clean(log, T0_MS + 1)
    assert log.aborted(0, log.log_end_offset) == []
    assert control_offsets(log) == [4, 6, 8]
    put(log, (b"e", b"3"))
    clean(log, T0_MS + 10_001)
    assert control_offsets(log) == [6, 8]


def control_offsets(log: Log) -> list[int]:
    offsets = []
    for segment in log.segments:
        for _, header in batches(Path(segment.path(".log")).read_bytes()):
            if header.is_control and header.record_count:
                offsets.append(header.base_offset)
    return offsets


def test_an_open_transaction_holds_compaction_up(log: Log) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll(T0_MS)
    put(log, (b"a", b"open"), producer_id=1, sequence=0, transactional=True)
    put(log, (b"a", b"3"))
    clean(log)
    assert pairs(log) == [(1, b"a", b"2"), (2, b"a", b"open"), (3, b"a", b"3")]
    end_txn(log, 1, commit=False)
    clean(log)
    assert [row for row in pairs(log) if row[1] == b"a"] == [(3, b"a", b"3")]


def test_a_later_transaction_of_an_aborted_producer_counts(log: Log) -> None:
    """The abort lies in the clean part; it must not taint what the producer committed afterwards."""
    put(log, (b"k", b"aborted"), producer_id=1, sequence=0, transactional=True)
    end_txn(log, 1, commit=False)
    clean(log)
    put(log, (b"k", b"1"))
    put(log, (b"k", b"2"), producer_id=1, sequence=1, transactional=True)
    end_txn(log, 1, commit=True)
    clean(log)
    assert [row for row in pairs(log) if row[1] == b"k"] == [(3, b"k", b"2")]


def test_the_last_batch_of_a_producer_stays_without_records(log: Log) -> None:
    put(log, (b"a", b"1"), producer_id=7, sequence=0)
    put(log, (b"a", b"2"), producer_id=7, sequence=1)
    put(log, (b"a", b"3"))
    put(log, (b"a", b"4"))
    clean(log)
    data = Path(log.segments[0].path(".log")).read_bytes()
    assert [(h.base_offset, h.record_count) for _, h in batches(data)] == [(1, 0), (3, 1)]
    again = open_log(log.folder, COMPACT, T0_MS, clean=False)
    producer = again.core.producers.get(7)
    assert producer is not None
    assert (producer.last_sequence, producer.last_offset) == (1, 1)


# --- old formats ------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_formats_are_compacted_into_the_new_one(tmp_path: Path, magic: int, codec: Codec) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    old = [Record(i, T0_MS + i if magic else -1, b"k%d" % (i % 3), b"%d" % i) for i in range(9)]
    data = b"".join(build_message_set(old[i : i + 3], magic=magic, codec=codec) for i in (0, 3, 6))
    (folder / "00000000000000000000.log").write_bytes(data)
    log = open_log(str(folder), COMPACT, T0_MS, clean=False)
    assert log.log_end_offset == 9
    log.core.advance_high_watermark(9)
    part = log.read(4, 1)
    assert part is not None
    put(log, (b"k0", b"new"))
    clean(log)
    assert pairs(log) == [(7, b"k1", b"7"), (8, b"k2", b"8"), (9, b"k0", b"new")]
    if magic:
        assert read_all(log)[0].timestamp == T0_MS + 7


def test_the_throttle_keeps_the_rate() -> None:
    clock = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    throttle = Throttle(1000, monotonic=lambda: clock[0], sleep=sleep)
    for _ in range(10):
        throttle.spend(500)
    assert clock[0] == pytest.approx(5.0)
    clock[0] += 100
    throttle.spend(0)
    assert clock[0] == pytest.approx(105.0)


# --- the compiled part ------------------------------------------------------------------------------


def test_the_hash_is_siphash_2_4_with_128_bits() -> None:
    """The first vectors of the reference implementation."""
    key = bytes(range(16))
    assert compaction.siphash(b"", key).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert compaction.siphash(b"\x00", key).hex() == "da87c1d86b99af44347659119b22fc45"
    assert compaction.siphash(bytes(range(15)), key).hex() == "5493e99933b0a8117e08ec0f97cfc3d9"


def test_the_map_holds_what_fits_and_says_when_it_is_full() -> None:
    newest = compaction.OffsetMap(24 * 100, bytes(16))
    assert newest.capacity == 90
    for i in range(90):
        assert newest.put(b"key-%d" % i, i)
    assert not newest.put(b"one more", 1)
    assert newest.put(b"key-3", 1000)
    assert (newest.get(b"key-3"), newest.get(b"key-4"), newest.get(b"one more")) == (1000, 4, -1)
    with pytest.raises(ValueError, match="too few"):
        compaction.OffsetMap(24, bytes(16))


@pytest.mark.parametrize("cut", range(1, 60))
def test_damaged_records_are_refused_by_the_compiled_part(cut: int) -> None:
    from barnabas.records.batch import CorruptBatch, records_block

    batch = build_batch(rows(3))
    header = check_batch(batch)
    block = records_block(batch, 0, header)[:-cut]
    newest = compaction.OffsetMap(2400, bytes(16))
    with pytest.raises(CorruptBatch):
        compaction.keep_block(block, 0, 3, newest, 100, False)
    with pytest.raises(CorruptBatch):
        compaction.shift_timestamps(block, 3, 5)
    with pytest.raises(CorruptBatch):
        newest.put_block(block, 0, 3, 0)


@pytest.mark.parametrize("shift", [0, 1, -1, 63, -64, 10**12, -(10**12)])
def test_shifted_timestamps_are_those_of_another_base(shift: int) -> None:
    from barnabas.records.batch import records_block

    some = [Record(i, T0_MS + 1000 * i, b"k", None if i == 1 else b"v" * 200) for i in range(4)]
    one = build_batch(some)
    header = check_batch(one)
    shifted = compaction.shift_timestamps(records_block(one, 0, header), 4, shift)
    from barnabas.records.batch import assemble

    again = assemble(header._replace(base_timestamp=T0_MS - shift), shifted)
    assert list(read_records(again)) == some


# --- what stays empty, and how many segments there are ----------------------------------------------


def headers(log: Log) -> list[tuple[int, int]]:
    """(base offset, record count) of all batches in the log's files."""
    return [
        (header.base_offset, header.record_count)
        for segment in log.segments
        for _, header in batches(Path(segment.path(".log")).read_bytes())
    ]


def test_no_empty_batch_stays_but_at_the_end_of_the_pass(tmp_path: Path) -> None:
    """There are readers that do not get on from a fetch that holds no record."""
    log = create_log(str(tmp_path / "t-0"), replace(COMPACT, segment_bytes=200), T0_MS)
    for i in range(60):
        put(log, (b"k%d" % (i % 3), b"v%d" % i))
    assert len(log.segments) > 20
    clean(log)
    assert pairs(log) == [(i, b"k%d" % (i % 3), b"v%d" % i) for i in (57, 58, 59)]
    assert headers(log) == [(57, 1), (58, 1), (59, 1)]
    put(log, (b"k2", b"new"))
    log.roll(T0_MS)
    put(log, (b"k1", b"newer"))
    clean(log, roll=False)
    assert (59, 1) not in headers(log)
    assert [offset for offset, count in headers(log) if not count] == []


def test_the_batch_at_which_a_pass_ends_stays_without_records(log: Log) -> None:
    put(log, (b"a", b"1"))
    put(log, (None, b"2"))
    clean(log)
    assert headers(log) == [(0, 1), (1, 0)]
    put(log, (b"b", b"3"))
    clean(log)
    assert headers(log) == [(0, 1), (2, 1)]


def test_emptied_segments_make_room_for_their_neighbours(tmp_path: Path) -> None:
    log = create_log(str(tmp_path / "t-0"), replace(COMPACT, segment_bytes=200), T0_MS)
    for i in range(copying.SOURCES_MAX * 5):
        put(log, (b"same", b"%d" % i))
    segments = len(log.segments)
    assert segments > 2 * copying.SOURCES_MAX
    cleaner = clean(log)
    assert cleaner.last_stats is not None
    assert len(log.segments) - 1 == cleaner.last_stats.segments_after == -(-segments // copying.SOURCES_MAX)
    last = copying.SOURCES_MAX * 5 - 1
    assert read_all(log)[-1].offset == last
    again = open_log(log.folder, log.config, T0_MS, clean=False)
    assert [record.offset for record in read_all(again)] == [last]
    assert again.log_end_offset == last + 1


def test_consumers_step_over_what_is_empty_and_replicas_do_not(tmp_path: Path) -> None:
    log = create_log(str(tmp_path / "t-0"), replace(COMPACT, segment_bytes=200), T0_MS)
    for i in range(12):
        put(log, (b"k", b"%d" % i), producer_id=i, sequence=0)
    clean(log)
    assert [count for _, count in headers(log)] == [0] * 11 + [1]

    def first(offset: int, **names: Any) -> int:
        part = log.read(offset, 1, skip_empty=True, **names)
        assert part is not None
        return next(batches(part.read()))[1].base_offset

    for _ in range(2):
        assert [first(offset) for offset in range(12)] == [11] * 12
        # Where no record follows, an empty batch still says that the reader has come this far.
        assert [first(offset, upper_offset=8) for offset in (0, 5)] == [0, 5]
        replicated = log.read(3, 1)
        assert replicated is not None
        assert next(batches(replicated.read()))[1].base_offset == 3
        log = open_log(log.folder, log.config, T0_MS, clean=True)
