"""Appends, reads, rolls, retention, truncation and time look-ups of one log."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.records.batch import Record, batches, build_batch, check_batch, patch, read_records
from barnabas.records.compression import Codec
from barnabas.records.control import build_marker
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import LogDirOffline, OffsetOutOfRange
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log, open_log
from tests.unit.storage.building import SMALL, T0_MS, append, files, read_all, remove_all_doomed, rows


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return create_log(str(tmp_path / "t-0"), SMALL, T0_MS)


def fill(log: Log, batches: int, count: int = 3, **names: object) -> list[Record]:
    """Appends batches and returns the records as they must come back."""
    wanted: list[Record] = []
    for i in range(batches):
        some = rows(count, at_ms=T0_MS + 1000 * i, start=len(wanted))
        base = append(log, some, **names)  # type: ignore[arg-type]
        wanted += [record._replace(offset=base + j) for j, record in enumerate(some)]
    return wanted


def test_an_empty_log_has_nothing_to_read(log: Log) -> None:
    assert log.read(0, 1000) is None
    assert log.max_timestamp() is None
    assert log.offset_for_timestamp(0) is None
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 1000)


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_appended_is_read_from_any_offset(log: Log, codec: Codec) -> None:
    wanted = fill(log, 40, codec=codec)
    assert len(log.segments) > 1
    for offset in range(len(wanted)):
        assert read_all(log, offset, max_bytes=500) == wanted[offset:]


@pytest.mark.parametrize("max_bytes", [1, 60, 170, 171, 172, 400, 100_000])
def test_reads_end_at_batch_boundaries_within_the_bound(log: Log, max_bytes: int) -> None:
    wanted = fill(log, 40)
    log.close()
    for _ in range(2):  # from the index, then with a tail in memory
        offset = 0
        while offset < len(wanted):
            part = log.read(offset, max_bytes)
            assert part is not None
            got = list(read_records(part.read()))
            assert part.size <= max_bytes or len(got) == 3, "one batch may exceed the bound, not two"
            assert got[0].offset <= offset <= got[-1].offset
            offset = got[-1].offset + 1
        more = rows(3, start=len(wanted))
        append(log, more)
        wanted += [record._replace(offset=len(wanted) + i) for i, record in enumerate(more)]


def test_without_at_least_one_a_large_batch_is_not_read(log: Log) -> None:
    fill(log, 20)
    assert log.read(0, 10, at_least_one=False) is None
    assert log.read(30, 10, at_least_one=False) is None
    assert log.read(0, 10) is not None


def test_the_upper_offset_is_never_passed(log: Log) -> None:
    wanted = fill(log, 40)
    for upper in range(0, len(wanted) + 1, 3):
        for offset in range(0, upper, 4):
            part = log.read(offset, 1 << 20, upper_offset=upper)
            assert part is not None
            assert list(read_records(part.read()))[-1].offset < upper
        assert log.read(upper, 1 << 20, upper_offset=upper) is None


def test_a_slice_outlives_its_segment(log: Log) -> None:
    wanted = fill(log, 40)
    early = log.read(0, 1 << 20)
    assert early is not None
    log.truncate_fully_and_start_at(1000, T0_MS)
    remove_all_doomed(log)
    got = list(read_records(early.read()))
    assert len(got) > 3
    assert got == wanted[: len(got)]
    rest = early.after(10)
    assert rest.read() == early.read()[10:]
    fd = early.fd
    del early, rest
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_segments_roll_by_size_and_are_named_by_offset(log: Log) -> None:
    fill(log, 40)
    names = [name for name in os.listdir(log.folder) if name.endswith(".log")]
    assert sorted(names) == [f"{segment.base_offset:020d}.log" for segment in log.segments]
    assert all(os.path.getsize(os.path.join(log.folder, name)) <= 2000 for name in names)
    snapshots = [name for name in os.listdir(log.folder) if name.endswith(".snapshot")]
    assert sorted(snapshots) == [f"{segment.base_offset:020d}.snapshot" for segment in log.segments[1:]]


def test_segments_roll_by_time_with_a_steady_jitter(tmp_path: Path) -> None:
    config = LogConfig(segment_ms=10_000)
    log = create_log(str(tmp_path / "t-0"), config, T0_MS)
    for at_ms in (0, 5_000, 10_000, 10_001, 15_000):
        append(log, rows(1, at_ms=T0_MS + at_ms))
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    jittered = replace(config, segment_jitter_ms=5_000)
    rolled_at = []
    for _ in range(2):
        log = create_log(str(tmp_path / f"j-{len(rolled_at)}"), jittered, T0_MS)
        log.name = "j-0"
        at_ms = 0
        while len(log.segments) == 1:
            append(log, rows(1, at_ms=T0_MS + at_ms))
            at_ms += 100
        rolled_at.append(at_ms)
    assert rolled_at[0] == rolled_at[1]
    assert 5_000 <= rolled_at[0] <= 10_200


def test_a_full_index_rolls(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=12 * 8)
    log = create_log(str(tmp_path / "t-0"), config, T0_MS)
    fill(log, 40)
    assert len(log.segments) > 2
    assert all(len(segment.offset_index) <= 12 for segment in log.segments)


def test_offsets_for_times_are_exact(log: Log) -> None:
    wanted = fill(log, 40)
    log.close()
    for record in wanted:
        assert log.offset_for_timestamp(record.timestamp) == (record.timestamp, record.offset)
    assert log.offset_for_timestamp(T0_MS + 1500) == (T0_MS + 2000, 6)
    assert log.offset_for_timestamp(0) == (T0_MS, 0)
    assert log.offset_for_timestamp(wanted[-1].timestamp + 1) is None
    log.core.advance_log_start(50)
    assert log.offset_for_timestamp(0) == (wanted[50].timestamp, 50)


def test_times_that_go_backwards(log: Log) -> None:
    append(log, rows(3, at_ms=T0_MS + 9000))
    for i in range(20):
        append(log, rows(3, at_ms=T0_MS + 100 * i))
    assert log.max_timestamp() == (T0_MS + 9002, 2)
    assert log.offset_for_timestamp(T0_MS + 9001) == (T0_MS + 9001, 1)
    mixed = [T0_MS, T0_MS + 10_000, 5]
    append(log, [Record(i, at_ms, b"k", b"v") for i, at_ms in enumerate(mixed)])
    assert log.max_timestamp() == (T0_MS + 10_000, 64)


def test_retention_by_time_spares_what_is_young_and_the_active_segment(log: Log) -> None:
    log.set_config(replace(SMALL, retention_ms=20_000))
    wanted = fill(log, 40)
    bases = [segment.base_offset for segment in log.segments]
    now_ms = wanted[-1].timestamp + 5_000
    assert log.delete_old_segments(now_ms) > 0
    start = log.log_start_offset
    assert start in bases
    assert wanted[start].timestamp >= now_ms - 20_000 - 10_000
    assert read_all(log) == wanted[start:]
    with pytest.raises(OffsetOutOfRange):
        log.read(start - 1, 100)
    # Everything expired: a new segment is rolled first, so that the log's end is not forgotten.
    log.delete_old_segments(now_ms + 10_000_000)
    assert (log.log_start_offset, log.log_end_offset) == (len(wanted), len(wanted))
    assert append(log, rows(1)) == len(wanted)


def test_deleted_files_wait_for_their_delay(log: Log) -> None:
    log.set_config(replace(SMALL, retention_bytes=2500, file_delete_delay_ms=1000))
    wanted = fill(log, 40)
    log.delete_old_segments(T0_MS)
    assert log.size_bytes >= 2500
    assert log.size_bytes - log.segments[0].size_bytes < 2500
    doomed = [name for name in os.listdir(log.folder) if name.endswith(".deleted")]
    assert doomed
    log.remove_doomed(5)
    log.remove_doomed(5 + 999)
    assert [name for name in os.listdir(log.folder) if name.endswith(".deleted")] == doomed
    log.remove_doomed(5 + 1000)
    assert not [name for name in os.listdir(log.folder) if name.endswith(".deleted")]
    assert read_all(log) == wanted[log.log_start_offset :]


def test_retention_waits_for_the_high_watermark(log: Log) -> None:
    fill(log, 40)
    log.core.high_watermark = 5
    assert log.delete_old_segments(T0_MS + 10_000_000_000) == 0


def test_a_compacted_topic_deletes_only_below_its_log_start(log: Log) -> None:
    log.set_config(replace(SMALL, cleanup_policy=("compact",), retention_ms=1, retention_bytes=1))
    fill(log, 40)
    assert log.delete_old_segments(T0_MS + 10_000_000_000) == 0
    log.advance_log_start(60)
    assert log.delete_old_segments(T0_MS) > 0
    assert log.log_start_offset == 60
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(10_000)


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 30, 31, 32, 33, 117, 119])
def test_truncation_drops_whole_batches(log: Log, offset: int) -> None:
    wanted = fill(log, 40)
    assert log.truncate_to(offset, T0_MS)
    whole = offset // 3 * 3
    assert log.log_end_offset == whole
    assert read_all(log) == wanted[:whole]
    more = fill(log, 10)
    assert read_all(log) == wanted[:whole] + more
    log.close()
    again = open_log(log.folder, SMALL, T0_MS, clean=True)
    assert read_all(again) == wanted[:whole] + more
    assert not again.truncate_to(10_000, T0_MS)


def test_truncation_takes_epochs_and_producers_back(log: Log) -> None:
    for i in range(10):
        append(log, rows(2), epoch=i // 4, producer_id=5, sequence=2 * i)
    log.truncate_to(12, T0_MS)
    assert log.core.epochs.entries() == [(0, 0), (1, 8)]
    producer = log.core.producers.get(5)
    assert producer is not None
    assert (producer.last_sequence, producer.last_offset) == (11, 11)
    log.truncate_fully_and_start_at(500, T0_MS)
    assert (log.log_start_offset, log.log_end_offset, log.core.epochs.entries()) == (500, 500, [])
    assert append(log, rows(1), epoch=4) == 500


def test_replicated_batches_keep_offsets_epochs_and_gaps(log: Log) -> None:
    data = bytearray()
    for base, epoch in ((0, 0), (5, 0), (20, 3)):
        batch = bytearray(build_batch(rows(2)))
        patch(batch, 0, base, epoch)
        data += batch
    assert log.append_replicated(data, T0_MS) == 22
    assert [record.offset for record in read_all(log)] == [0, 1, 5, 6, 20, 21]
    assert log.core.epochs.entries() == [(0, 0), (3, 20)]
    for offset, first in ((2, 5), (4, 5), (7, 20), (19, 20), (21, 20)):
        part = log.read(offset, 1)
        assert part is not None
        assert next(read_records(part.read())).offset == first
    with pytest.raises(OffsetOutOfRange):
        log.append_replicated(data, T0_MS)


def end_transaction(log: Log, producer_id: int, *, commit: bool) -> None:
    batch = bytearray(
        build_marker(
            commit=commit, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=T0_MS
        )
    )
    header = check_batch(batch)
    patch(batch, 0, log.log_end_offset, 0)
    log.append(batch, header, 0, T0_MS)
    log.core.advance_high_watermark(log.log_end_offset)


def test_aborted_transactions_are_told_to_readers(log: Log) -> None:
    append(log, rows(2), producer_id=1, sequence=0, transactional=True)
    append(log, rows(2), producer_id=2, sequence=0, transactional=True)
    assert log.core.last_stable_offset == 0

    end_transaction(log, 1, commit=False)
    assert log.core.last_stable_offset == 2
    end_transaction(log, 2, commit=True)
    assert log.core.last_stable_offset == 6
    assert log.aborted(0, 6) == [(1, 0)]
    assert log.aborted(5, 6) == []
    assert log.aborted(0, 1) == [(1, 0)]
    for clean in (True, False):
        log.close()
        log = open_log(log.folder, SMALL, T0_MS, clean=clean)
        assert log.aborted(0, 6) == [(1, 0)]
    Path(log.segments[0].path(".txnindex")).write_bytes(b"garbage")
    log = open_log(log.folder, SMALL, T0_MS, clean=True)
    assert log.aborted(0, 6) == [(1, 0)]


def test_readers_learn_of_no_more_aborted_transactions_than_their_records_may_belong_to(log: Log) -> None:
    for number in range(30):  # producer 7's transaction goes on for all of them
        append(log, rows(2), producer_id=7, sequence=2 * number, transactional=True)
        append(log, rows(3), producer_id=number % 3, sequence=number // 3 * 3, transactional=True)
        end_transaction(log, number % 3, commit=number % 4 == 0)
    end_transaction(log, 7, commit=False)
    end = log.log_end_offset
    assert len(log.segments) > 2
    whole = log.aborted_transactions(0, end)
    lengths = set()
    for offset in range(end):
        for max_bytes in (1, 300, 1000, 1 << 20):
            part = log.read(offset, max_bytes, upper_offset=end)
            assert part is not None
            last = max(header.last_offset for _, header in batches(part.read()))
            some = log.aborted_transactions(offset, end, part)
            assert some == [txn for txn in whole if txn.last_offset >= offset and txn.first_offset <= last]
            lengths.add(len(some))
    assert 1 in lengths
    assert len(whole) not in {len(log.aborted(end - 1, end, log.read(end - 1, 1))), 0}


def test_flush_moves_the_recovery_point(log: Log) -> None:
    log.set_config(replace(SMALL, flush_messages=10, flush_ms=1000))
    fill(log, 3)
    assert not log.must_flush_now
    assert not log.needs_flush(10_000)  # nobody has begun to count
    log.last_flush_ms = 5
    assert not log.needs_flush(5 + 999)
    assert log.needs_flush(5 + 1000)
    fill(log, 1)
    assert log.must_flush_now
    assert log.flush(5 + 1000) == 12
    assert (log.recovery_point, log.unflushed_messages) == (12, 0)
    assert not log.needs_flush(10_000)
    fill(log, 30)
    assert log.flush(upto_active=True) == log.active.base_offset


def test_a_disk_that_fails_is_one_typed_error(log: Log) -> None:
    fill(log, 3)
    full = os.open("/dev/full", os.O_RDWR)
    file = log.active.open()
    os.dup2(full, file.fd)
    os.close(full)
    with pytest.raises(LogDirOffline, match=r"No space left|Illegal seek"):
        append(log, rows(3))


def test_releasing_gives_all_descriptors_back(log: Log) -> None:
    wanted = fill(log, 40)
    before = len(os.listdir("/proc/self/fd"))
    log.close()
    assert len(os.listdir("/proc/self/fd")) <= before - len(log.segments) + 1
    assert read_all(log) == wanted
    log.release()
    append(log, rows(1))
    assert log.log_end_offset == len(wanted) + 1


def test_closing_twice_changes_nothing_on_disk(log: Log) -> None:
    fill(log, 40, producer_id=-1)
    log.close()
    first = files(log.folder)
    log.close()
    assert files(log.folder) == first


def test_a_bound_on_open_files_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from barnabas.storage import files as storage_files

    pool = storage_files.OpenFiles(20)
    monkeypatch.setattr("barnabas.storage.segments.segment_files.OPEN_FILES", pool)
    before = len(os.listdir("/proc/self/fd"))
    logs = [create_log(str(tmp_path / f"t-{i}"), SMALL, T0_MS) for i in range(60)]
    for _ in range(3):
        for log in logs:
            append(log, rows(3))
        assert len(os.listdir("/proc/self/fd")) <= before + 21
    assert all(len(read_all(log)) == 9 for log in logs)
