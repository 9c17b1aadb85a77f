"""Partitions that move to another log dir while they are written to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.dirs import moving
from barnabas.storage.dirs.log_manager import LogManager
from barnabas.storage.errors import LogDirOffline, LogDirUnknown, NameTooLong, PartitionUnknown
from barnabas.storage.steps import Step
from tests.unit.storage.building import T0_MS, append, read_all, rows
from tests.unit.storage.test_log_manager import TOPIC_ID, Opener, filled, kill, opened

__all__ = ["opened"]

NAME = TopicPartition("t", 0)


def run(steps: Iterator[Step]) -> None:
    for step in steps:
        step.work()
        step.commit()


@pytest.fixture
def manager(tmp_path: Path, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> LogManager:
    monkeypatch.setattr(moving, "COPY_BYTES", 1000)
    monkeypatch.setattr(moving, "CAUGHT_UP_BYTES", 300)
    manager = opened(tmp_path / "a", tmp_path / "b")
    filled(manager, partitions=1)
    assert manager.logs[NAME].log_dir == str(tmp_path / "a")
    return manager


def test_a_partition_moves_under_load(manager: LogManager, tmp_path: Path) -> None:
    log = manager.logs[NAME]
    log.advance_log_start(10)
    append(log, rows(2), epoch=3, producer_id=8, sequence=0)
    reader = log.read(30, 500)
    move = manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS)
    assert move is not None
    assert manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS) is move
    lags = []
    for count, step in enumerate(move.steps(T0_MS)):
        step.work()
        if count < 5:
            append(log, rows(1), epoch=3)
        if not move.done:
            assert list(manager.usage()[1].futures) == [NAME]
            lags.append(move.lag)
        step.commit()
    assert move.done
    assert manager.usage()[1].futures == {}
    assert lags[-1] < lags[0]
    now = manager.logs[NAME]
    assert now is move.future
    assert now.folder == str(tmp_path / "b" / "t-0")
    assert (now.log_start_offset, now.log_end_offset, now.core.high_watermark) == (10, 67, 67)
    assert now.core.epochs.entries() == [(0, 10), (3, 60)]
    assert now.core.producers.get(8).last_sequence == 1  # type: ignore[union-attr]
    assert [record.offset for record in read_all(now)] == list(range(10, 67))
    assert reader is not None
    assert len(reader.read()) == reader.size
    assert append(now, rows(1), epoch=3) == 67
    assert manager.moving.running == {}
    manager.remove_doomed(0)
    assert sorted(row.name for row in (tmp_path / "a").iterdir() if row.is_dir()) == []
    manager.close()


def test_the_old_log_stays_until_the_new_one_is_on_disk(
    manager: LogManager, tmp_path: Path, opened: Opener
) -> None:
    move = manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS)
    assert move is not None
    steps = move.steps(T0_MS)
    while not move.done:
        step = next(steps)
        step.work()
        step.commit()
    assert (tmp_path / "a" / "t-0").is_dir()
    # A power cut now takes what the new log has not synced.
    last = manager.logs[NAME].active.path(".log")
    os.truncate(last, os.path.getsize(last) - 1)
    kill(manager)
    again = opened(tmp_path / "a", tmp_path / "b")
    assert again.logs[NAME].log_dir == str(tmp_path / "a")
    assert len(read_all(again.logs[NAME])) == 60


def test_a_move_back_waits_for_the_move_before(manager: LogManager, tmp_path: Path) -> None:
    move = manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS)
    assert move is not None
    steps = move.steps(T0_MS)
    while not move.done:
        step = next(steps)
        step.work()
        step.commit()
    back = manager.moving.begin(NAME, str(tmp_path / "a"), T0_MS)
    assert back is not None
    rounds = 0
    for count, step in enumerate(back.steps(T0_MS)):
        step.work()
        step.commit()
        rounds = count
        if back.lag == 0 and not back.done:
            run(steps)
    assert rounds > 0
    assert back.done
    assert manager.logs[NAME].folder == str(tmp_path / "a" / "t-0")
    assert len(read_all(manager.logs[NAME])) == 60
    manager.close()
    assert [row.name for row in (tmp_path / "b").iterdir() if row.is_dir()] == []


def test_producers_and_their_last_batches_come_along(manager: LogManager, tmp_path: Path) -> None:
    log = manager.logs[NAME]
    for sequence in range(3):
        append(log, rows(1), producer_id=8, sequence=sequence)
    # Its records are gone; what is known of the producer is not in the files that are copied.
    log.advance_log_start(63)
    log.delete_old_segments(T0_MS)
    move = manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS)
    assert move is not None
    run(move.steps(T0_MS))
    assert move.done
    producer = manager.logs[NAME].core.producers.get(8)
    assert producer is not None
    assert [batch.first_sequence for batch in producer.batches] == [0, 1, 2]


def test_offsets_of_a_damaged_end_are_not_given_out_again(
    manager: LogManager, tmp_path: Path, opened: Opener
) -> None:
    manager.close()
    last = sorted((tmp_path / "a" / "t-0").glob("*.log"))[-1]
    data = bytearray(last.read_bytes())
    data[-3] ^= 1
    last.write_bytes(data)
    again = opened(tmp_path / "a", tmp_path / "b")
    assert again.logs[NAME].log_end_offset == 60
    move = again.moving.begin(NAME, str(tmp_path / "b"), T0_MS)
    assert move is not None
    run(move.steps(T0_MS))
    log = again.logs[NAME]
    assert log.log_dir == str(tmp_path / "b")
    assert append(log, rows(1)) == 60
    assert [record.offset for record in read_all(log)] == [*range(57), 60]
    again.close()
    log = opened(tmp_path / "a", tmp_path / "b").logs[NAME]
    assert [record.offset for record in read_all(log)] == [*range(57), 60]


def test_it_is_found_in_its_new_dir_after_a_restart(
    manager: LogManager, tmp_path: Path, opened: Opener
) -> None:
    move = manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS)
    assert move is not None
    run(move.steps(T0_MS))
    kill(manager)
    again = opened(tmp_path / "a", tmp_path / "b")
    assert again.logs[NAME].log_dir == str(tmp_path / "b")
    assert len(read_all(again.logs[NAME])) == 60
    assert again.topic_id("t", 0) == TOPIC_ID


@pytest.mark.parametrize("clean", [True, False])
def test_a_move_goes_on_after_a_restart(
    manager: LogManager, tmp_path: Path, opened: Opener, clean: bool
) -> None:
    move = manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS)
    assert move is not None
    steps = move.steps(T0_MS)
    step = next(steps)
    step.work()
    step.commit()
    if clean:
        manager.close()
    else:
        kill(manager)
    again = opened(tmp_path / "a", tmp_path / "b")
    resumed = again.moving.running[NAME]
    assert 0 < resumed.lag < 60
    run(resumed.steps(T0_MS))
    assert again.logs[NAME].log_dir == str(tmp_path / "b")
    assert len(read_all(again.logs[NAME])) == 60


def test_a_crash_in_the_middle_of_the_change_leaves_one_log(
    manager: LogManager, tmp_path: Path, opened: Opener
) -> None:
    shutil.copytree(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    append(manager.logs[NAME], rows(3))
    kill(manager)
    again = opened(tmp_path / "a", tmp_path / "b")
    assert again.logs[NAME].log_end_offset == 63
    assert [row.name for row in (tmp_path / "b").iterdir() if row.name.endswith("-stray")]


def test_a_move_is_called_off_by_its_own_dir_or_a_deletion(manager: LogManager, tmp_path: Path) -> None:
    for end in ("own dir", "deletion"):
        move = manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS)
        assert move is not None
        steps = move.steps(T0_MS)
        step = next(steps)
        step.work()
        if end == "own dir":
            assert manager.moving.begin(NAME, str(tmp_path / "a"), T0_MS) is None
        else:
            manager.delete("t", 0)
        step.commit()
        assert list(steps) == []
        assert manager.moving.running == {}
        assert [row for row in os.listdir(tmp_path / "b") if row.endswith("-future")] == []


def test_a_truncation_meanwhile_is_followed(manager: LogManager, tmp_path: Path) -> None:
    log = manager.logs[NAME]
    move = manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS)
    assert move is not None
    for count, step in enumerate(move.steps(T0_MS)):
        step.work()
        step.commit()
        if count == 3:
            log.truncate_to(6, T0_MS)
            append(log, rows(1, at_ms=5), epoch=9)
    assert move.done
    assert manager.logs[NAME].log_end_offset == 7
    assert read_all(manager.logs[NAME])[-1].timestamp == 5


def test_what_cannot_move(manager: LogManager, tmp_path: Path) -> None:
    with pytest.raises(LogDirUnknown, match=r"not one of log\.dirs"):
        manager.moving.begin(NAME, str(tmp_path / "c"), T0_MS)
    with pytest.raises(PartitionUnknown, match="not on this broker"):
        manager.moving.begin(TopicPartition("x", 0), str(tmp_path / "b"), T0_MS)
    with pytest.raises(NameTooLong):
        manager.moving.begin(TopicPartition("x" * 240, 0), str(tmp_path / "b"), T0_MS)
    manager.take_offline(str(tmp_path / "b"), "gone")
    with pytest.raises(LogDirOffline, match="gone"):
        manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS)


def test_a_partition_that_is_not_here_yet_is_made_where_it_was_wished(
    manager: LogManager, tmp_path: Path
) -> None:
    for index in range(3):
        with pytest.raises(PartitionUnknown):
            manager.moving.begin(TopicPartition("x", index), str(tmp_path / "a"), T0_MS)
    assert {manager.create("x", index, None, T0_MS).log_dir for index in range(3)} == {str(tmp_path / "a")}


def test_a_dir_that_fails_takes_its_moves_along(manager: LogManager, tmp_path: Path) -> None:
    move = manager.moving.begin(NAME, str(tmp_path / "b"), T0_MS)
    assert move is not None
    manager.take_offline(str(tmp_path / "b"), "gone")
    assert manager.moving.running == {}
    assert list(move.steps(T0_MS)) == []
    assert len(read_all(manager.logs[NAME])) == 60
    # It goes on when the broker starts with a dir that works again.
    assert [row.name for row in (tmp_path / "b").iterdir() if row.name.endswith("-future")]
