"""Restarts: clean, after a crash, with files cut, flipped, lost and left half-done."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.records.batch import Record, read_records
from barnabas.storage.config import LogConfig
from barnabas.storage.logs.log import Log
from barnabas.storage.logs.recovery import create_log, open_log
from tests.unit.storage.building import SMALL, T0_MS, append, files, read_all, rows


def make(folder: Path, batches: int = 40, config: LogConfig = SMALL) -> tuple[Log, list[Record]]:
    log = create_log(str(folder), config, T0_MS)
    wanted: list[Record] = []
    for i in range(batches):
        base = append(
            log, rows(3, at_ms=T0_MS + 1000 * i, start=3 * i), epoch=i // 10, producer_id=1, sequence=3 * i
        )
        wanted += rows(3, at_ms=T0_MS + 1000 * i, start=base)
    return log, wanted


def again(log: Log, *, clean: bool, recovery_point: int = 0, **names: int) -> Log:
    return open_log(log.folder, log.config, T0_MS, clean=clean, recovery_point=recovery_point, **names)


def same_state(one: Log, other: Log) -> None:
    assert one.log_end_offset == other.log_end_offset
    assert one.core.epochs.entries() == other.core.epochs.entries()
    assert {row.producer_id: row[1:5] for row in one.core.producers.snapshot()} == {
        row.producer_id: row[1:5] for row in other.core.producers.snapshot()
    }


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_finds_everything_again(tmp_path: Path, clean: bool) -> None:
    log, wanted = make(tmp_path / "t-0")
    log.close()
    opened = again(log, clean=clean)
    same_state(opened, log)
    assert read_all(opened) == wanted
    assert opened.max_timestamp() == log.max_timestamp()
    append(opened, rows(3), epoch=9, producer_id=1, sequence=120)
    assert opened.log_end_offset == 123


def test_a_killed_broker_loses_nothing_that_was_written(tmp_path: Path) -> None:
    log, wanted = make(tmp_path / "t-0")
    opened = again(log, clean=False, recovery_point=30)
    same_state(opened, log)
    assert read_all(opened) == wanted


def test_recovered_files_equal_those_of_a_clean_stop(tmp_path: Path) -> None:
    log, _ = make(tmp_path / "t-0")
    again(log, clean=False).close()
    recovered = files(log.folder)
    log.close()
    stopped = files(log.folder)
    names = [name for name in stopped if name.endswith(("log", "index"))]
    assert {name: recovered[name] for name in names} == {name: stopped[name] for name in names}


def test_the_last_batches_cut_at_every_byte(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, wanted = make(tmp_path / "t-0", 6)
    path = Path(log.active.path(".log"))
    data = path.read_bytes()
    batch_bytes = len(data) // 6
    for size in range(len(data) - 2 * batch_bytes, len(data) + 1):
        path.write_bytes(data[:size])
        caplog.clear()
        opened = again(log, clean=False)
        whole = size // batch_bytes * 3
        assert opened.log_end_offset == whole
        assert read_all(opened) == wanted[:whole]
        assert path.stat().st_size == size // batch_bytes * batch_bytes
        assert ("torn tail cut off" in caplog.messages) == (size % batch_bytes != 0)
        append(opened, rows(3), producer_id=1, sequence=whole)
        assert len(read_all(opened)) == whole + 3


def test_a_tail_of_zeros_is_cut_off(tmp_path: Path) -> None:
    """What a file system may leave after a power cut: the size has grown, the data has not arrived."""
    log, wanted = make(tmp_path / "t-0", 6)
    with open(log.active.path(".log"), "ab") as file:
        file.write(bytes(5000))
    opened = again(log, clean=False)
    assert read_all(opened) == wanted
    assert opened.log_end_offset == 18


def test_damage_in_the_middle_costs_the_batch_and_not_what_follows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, wanted = make(tmp_path / "t-0", 10, LogConfig())
    log.close()
    path = Path(log.active.path(".log"))
    data = path.read_bytes()
    size = len(data) // 10
    for clean in (True, False):
        for byte in (4 * size + 20, 4 * size + 70, 5 * size - 1):
            broken = bytearray(data)
            broken[byte] ^= 0x10
            path.write_bytes(broken)
            caplog.clear()
            opened = again(log, clean=clean)
            assert opened.log_end_offset == 30
            assert read_all(opened) == wanted[:12] + wanted[15:]
            assert read_all(opened, 12) == wanted[15:]
            assert opened.offset_for_timestamp(wanted[12].timestamp) == (wanted[15].timestamp, 15)
            assert caplog.messages.count("damaged batch is not served") == 1


def test_a_broken_length_is_stepped_over_by_the_index(tmp_path: Path) -> None:
    log, wanted = make(tmp_path / "t-0", 40, LogConfig(index_interval_bytes=300))
    log.close()
    path = Path(log.active.path(".log"))
    data = bytearray(path.read_bytes())
    size = len(data) // 40
    data[20 * size + 8 : 20 * size + 12] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    opened = again(log, clean=True)
    got = read_all(opened)
    assert got[:60] == wanted[:60]
    assert got[-1] == wanted[-1]
    assert len(got) >= 120 - 12


@pytest.mark.parametrize("lost", [".index", ".timeindex", "both"])
def test_lost_indexes_come_back(tmp_path: Path, lost: str) -> None:
    log, wanted = make(tmp_path / "t-0")
    log.close()
    before = files(log.folder)
    for name in before:
        if name.endswith(".index" if lost == ".index" else ".timeindex" if lost == ".timeindex" else "index"):
            os.unlink(os.path.join(log.folder, name))
    opened = again(log, clean=True)
    assert read_all(opened) == wanted
    assert opened.offset_for_timestamp(wanted[50].timestamp) == wanted[50][1::-1]
    after = files(log.folder)
    assert {n: d for n, d in after.items() if n.endswith("index")} == {
        n: d for n, d in before.items() if n.endswith("index")
    }


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff" * 80,
        b"abc",
        bytes(range(96)),
        bytes(range(255, 159, -1)),
        b"\x00\x00\x00\x05\x7f\xff\xff\xff" * 3,
        bytes.fromhex("0000000200000064") * 6,
    ],
)
def test_garbled_indexes_mislead_nobody(tmp_path: Path, garbage: bytes) -> None:
    log, wanted = make(tmp_path / "t-0")
    log.close()
    for name in files(log.folder):
        if name.endswith("index"):
            Path(log.folder, name).write_bytes(garbage)
    opened = again(log, clean=True)
    for offset in (0, 5, 59, 60, 61, 119):
        assert read_all(opened, offset, max_bytes=700) == wanted[offset:]
    assert opened.log_end_offset == 120


def test_a_damaged_snapshot_falls_back_to_an_older_one(tmp_path: Path) -> None:
    log, _ = make(tmp_path / "t-0")
    log.close()
    newest = max(name for name in files(log.folder) if name.endswith(".snapshot"))
    Path(log.folder, newest).write_bytes(b"\x00\x01garbage")
    same_state(again(log, clean=True), log)
    for name in files(log.folder):
        if name.endswith(".snapshot"):
            Path(log.folder, name).write_bytes(b"")
    opened = again(log, clean=False)
    same_state(opened, log)


@pytest.mark.parametrize("text", [None, "", "garbage", "0\n5\n1 0\n", "0\n1\nx y\n"])
def test_lost_epochs_are_found_again_in_the_batches(tmp_path: Path, text: str | None) -> None:
    log, _ = make(tmp_path / "t-0")
    log.close()
    for clean in (True, False):
        file = Path(log.folder, "leader-epoch-checkpoint")
        file.unlink() if text is None else file.write_text(text)
        opened = again(log, clean=clean)
        assert opened.core.epochs.entries() == [(0, 0), (1, 30), (2, 60), (3, 90)]


def test_leftovers_of_interrupted_work_are_cleared(tmp_path: Path) -> None:
    log, wanted = make(tmp_path / "t-0")
    log.close()
    folder = Path(log.folder)
    shutil.copy(log.segments[1].path(".log"), folder / "00000000000000000000.log.cleaned")
    shutil.copy(log.segments[1].path(".log"), folder / "00000000000000009999.log.deleted")
    (folder / "leader-epoch-checkpoint.tmp").write_text("x")
    (folder / "00000000000000777777.index").write_bytes(b"")
    opened = again(log, clean=True)
    assert read_all(opened) == wanted
    left = [n for n in files(folder) if n.endswith((".cleaned", ".deleted", ".tmp")) or "777777" in n]
    assert left == []


def test_checkpointed_offsets_are_taken(tmp_path: Path) -> None:
    log, wanted = make(tmp_path / "t-0")
    log.close()
    opened = again(log, clean=True, log_start_offset=50, high_watermark=70)
    assert (opened.log_start_offset, opened.core.high_watermark) == (50, 70)
    assert read_all(opened) == wanted[50:]
    beyond = again(log, clean=False, log_start_offset=500)
    assert (beyond.log_start_offset, beyond.log_end_offset) == (500, 500)
    assert append(beyond, rows(1)) == 500


def test_an_empty_folder_becomes_a_log_at_the_checkpointed_start(tmp_path: Path) -> None:
    os.makedirs(tmp_path / "t-0")
    log = open_log(str(tmp_path / "t-0"), SMALL, T0_MS, clean=False, log_start_offset=44)
    assert (log.log_start_offset, log.log_end_offset) == (44, 44)


def test_recovery_reads_only_above_the_recovery_point(tmp_path: Path) -> None:
    log, wanted = make(tmp_path / "t-0")
    log.flush()
    point = log.recovery_point
    append(log, rows(3), epoch=3, producer_id=1, sequence=120)
    # Damage below the recovery point is not met by the scan; it is met by the reader and not served.
    with open(log.segments[0].path(".log"), "r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    opened = again(log, clean=False, recovery_point=point)
    assert opened.log_end_offset == 123
    assert read_all(opened)[: len(wanted) - 3] == wanted[3:]


def test_producers_survive_a_crash_with_their_last_batches(tmp_path: Path) -> None:
    log, _ = make(tmp_path / "t-0")
    opened = again(log, clean=False, recovery_point=60)
    producer = opened.core.producers.get(1)
    assert producer is not None
    assert producer.last_sequence == 119
    assert [seen.first_offset for seen in producer.batches][-1] == 117


def test_a_segment_that_was_cut_short_costs_its_last_batch_and_not_the_later_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, wanted = make(tmp_path / "t-0")
    third, following = log.segments[2:4]
    with open(third.path(".log"), "r+b") as file:
        file.truncate(third.size_bytes - 10)
    with caplog.at_level(logging.WARNING):
        opened = again(log, clean=False)
    end = following.base_offset
    assert read_all(opened) == wanted[: end - 3] + wanted[end:]
    assert opened.log_end_offset == log.log_end_offset
    lines = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [line.message for line in lines] == ["damaged batch is not served"]


def test_records_read_back_are_the_bytes_that_were_written(tmp_path: Path) -> None:
    log, wanted = make(tmp_path / "t-0", 5)
    part = log.read(0, 1 << 20)
    assert part is not None
    assert Path(log.active.path(".log")).read_bytes() == part.read()
    assert list(read_records(part.read())) == wanted


def missing_records(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int]]:
    return [
        (record.__dict__["from"], record.__dict__["to"])
        for record in caplog.records
        if record.message == "records are missing"
    ]


@pytest.mark.parametrize("how", ["emptied", "removed"])
def test_a_segment_that_is_gone_after_a_clean_stop_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    log, wanted = make(tmp_path / "t-0")
    log.close()
    first, following = log.segments[1].base_offset, log.segments[2].base_offset
    victim = Path(log.segments[1].path(".log"))
    if how == "emptied":
        os.truncate(victim, 0)
    else:
        victim.unlink()
    opened = again(log, clean=True, recovery_point=log.log_end_offset)
    for _ in range(2):
        assert read_all(opened) == [row for row in wanted if not first <= row.offset < following]
    assert set(missing_records(caplog)) == {(first, following - 1)}
    assert opened.log_end_offset == log.log_end_offset


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("slot", [0, 1])
@pytest.mark.parametrize("how", ["emptied", "removed"])
def test_a_follower_drops_what_lies_behind_a_hole(tmp_path: Path, how: str, slot: int, policy: str) -> None:
    """A power cut has taken a segment that was not synced yet, and left later ones: it is copied again from there on."""
    config = replace(SMALL, cleanup_policy=(policy,))
    log, wanted = make(tmp_path / "t-0", config=config)
    log.close()
    first = log.segments[slot].base_offset
    victim = Path(log.segments[slot].path(".log"))
    if how == "emptied" or slot == 0:
        os.truncate(victim, 0)
    else:
        victim.unlink()
    opened = again(log, clean=False)
    assert opened.log_end_offset == log.log_end_offset, "nothing goes while nobody has a copy"
    end = opened.drop_damaged(T0_MS)
    assert end == opened.log_end_offset
    assert first - 3 <= end <= first or end == 0, "a batch before the hole, which is fetched again"
    assert read_all(opened) == [row for row in wanted if row.offset < end]
    assert opened.drop_damaged(T0_MS) is None, "there is no hole any more"


@pytest.mark.parametrize("how", ["emptied", "removed", "flipped"])
def test_what_is_missing_is_remembered_until_it_is_copied_again(tmp_path: Path, how: str) -> None:
    """A broker that has no leader to follow, and is stopped in order, must not take its log for whole at the next start."""
    log, wanted = make(tmp_path / "t-0")
    log.close()
    begin = log.segments[1].base_offset
    spoil(Path(log.segments[1].path(".log")), how)
    opened = again(log, clean=False)
    opened.close()
    for _ in range(2):
        opened = again(log, clean=True, recovery_point=opened.log_end_offset)
        assert opened.hole_from == begin
        opened.close()
    opened = again(log, clean=False, recovery_point=opened.log_end_offset)
    assert opened.hole_from == begin, "recovery reads only what lies above the recovery point"
    end = opened.drop_damaged(T0_MS)
    assert end is not None
    assert end <= begin
    assert read_all(opened) == [row for row in wanted if row.offset < end]
    opened.close()
    opened = again(log, clean=True, recovery_point=end)
    assert opened.drop_damaged(T0_MS) is None, "there is no hole any more"


def spoil(victim: Path, how: str) -> None:
    if how == "emptied":
        os.truncate(victim, 0)
    elif how == "removed":
        victim.unlink()
    else:
        data = bytearray(victim.read_bytes())
        data[-1] ^= 0xFF  # in the last record of the last batch
        victim.write_bytes(data)


def holed(folder: Path) -> Log:
    """A log in whose second segment everything is missing, opened after an unclean stop."""
    log, _ = make(folder)
    log.close()
    spoil(Path(log.segments[1].path(".log")), "removed")
    return again(log, clean=False)


def test_a_hole_that_retention_has_taken_is_no_hole(tmp_path: Path) -> None:
    opened = holed(tmp_path / "t-0")
    opened.core.advance_high_watermark(opened.log_end_offset)
    following = opened.segments[2].base_offset
    opened.advance_log_start(following)
    opened.delete_old_segments(T0_MS)
    assert opened.segments[0].base_offset == following
    end = opened.log_end_offset
    assert opened.drop_damaged(T0_MS) is None
    assert opened.log_end_offset == end
    opened.close()
    assert again(opened, clean=True, recovery_point=end, log_start_offset=following).hole_from is None


def test_a_log_that_was_cut_before_its_hole_has_none(tmp_path: Path) -> None:
    opened = holed(tmp_path / "t-0")
    hole_from = opened.hole_from
    assert hole_from is not None
    opened.truncate_to(hole_from, T0_MS)
    assert opened.hole_from is None
    assert again(opened, clean=False).hole_from is None


def test_a_log_that_leads_alone_is_what_counts(tmp_path: Path) -> None:
    opened = holed(tmp_path / "t-0")
    opened.forget_missing()
    assert again(opened, clean=True, recovery_point=opened.log_end_offset).hole_from is None


@pytest.mark.parametrize("note", [b"", b"rubbish", b"0\n-5\n", b"1\n7\n"])
def test_a_note_that_cannot_be_read_has_everything_copied_again(tmp_path: Path, note: bytes) -> None:
    log, _ = make(tmp_path / "t-0")
    log.close()
    (tmp_path / "t-0" / "first-missing-offset-checkpoint").write_bytes(note)
    opened = again(log, clean=True, recovery_point=log.log_end_offset)
    assert opened.drop_damaged(T0_MS) == 0
