"""Partitions that move to another log dir while they are written to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from barnabas.storage import moving
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.errors import StorageError
from barnabas.storage.log_manager import LogManager
from tests.unit.storage.building import T0_MS, append, read_all, rows
from tests.unit.storage.test_log_manager import TOPIC_ID, Opener, filled, kill, opened

__all__ = ["opened"]

NAME = TopicPartition("t", 0)


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
    move = manager.begin_move("t", 0, str(tmp_path / "b"), T0_MS)
    assert move is not None
    assert manager.begin_move("t", 0, str(tmp_path / "b"), T0_MS) is move
    lags = []
    for count, step in enumerate(move.steps(T0_MS)):
        step.work()
        if count < 5:
            append(log, rows(1), epoch=3)
        assert list(manager.usage()[1].futures) == [NAME]
        lags.append(move.lag)
        step.commit()
    assert move.done
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
    assert manager.moves == {}
    manager.remove_doomed(T0_MS)
    assert sorted(one.name for one in (tmp_path / "a").iterdir() if one.is_dir()) == []
    manager.close()


def test_it_is_found_in_its_new_dir_after_a_restart(
    manager: LogManager, tmp_path: Path, opened: Opener
) -> None:
    move = manager.begin_move("t", 0, str(tmp_path / "b"), T0_MS)
    assert move is not None
    for step in move.steps(T0_MS):
        step.work()
        step.commit()
    kill(manager)
    again = opened(tmp_path / "a", tmp_path / "b")
    assert again.logs[NAME].log_dir == str(tmp_path / "b")
    assert len(read_all(again.logs[NAME])) == 60
    assert again.topic_id("t", 0) == TOPIC_ID


def test_a_move_goes_on_after_a_restart(manager: LogManager, tmp_path: Path, opened: Opener) -> None:
    move = manager.begin_move("t", 0, str(tmp_path / "b"), T0_MS)
    assert move is not None
    steps = move.steps(T0_MS)
    step = next(steps)
    step.work()
    step.commit()
    kill(manager)
    again = opened(tmp_path / "a", tmp_path / "b")
    resumed = again.moves[NAME]
    assert 0 < resumed.lag < 60
    for step in resumed.steps(T0_MS):
        step.work()
        step.commit()
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
    assert [one.name for one in (tmp_path / "b").iterdir() if one.name.endswith("-stray")]


def test_a_move_is_called_off_by_its_own_dir_or_a_deletion(manager: LogManager, tmp_path: Path) -> None:
    for end in ("own dir", "deletion"):
        move = manager.begin_move("t", 0, str(tmp_path / "b"), T0_MS)
        assert move is not None
        steps = move.steps(T0_MS)
        step = next(steps)
        step.work()
        if end == "own dir":
            assert manager.begin_move("t", 0, str(tmp_path / "a"), T0_MS) is None
        else:
            manager.delete("t", 0, T0_MS)
        step.commit()
        assert list(steps) == []
        assert manager.moves == {}
        assert [one for one in os.listdir(tmp_path / "b") if one.endswith("-future")] == []


def test_a_truncation_meanwhile_is_followed(manager: LogManager, tmp_path: Path) -> None:
    log = manager.logs[NAME]
    move = manager.begin_move("t", 0, str(tmp_path / "b"), T0_MS)
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
    with pytest.raises(StorageError, match=r"not one of log\.dirs"):
        manager.begin_move("t", 0, str(tmp_path / "c"), T0_MS)
    with pytest.raises(StorageError, match="not on this broker"):
        manager.begin_move("x", 0, str(tmp_path / "b"), T0_MS)


def test_a_dir_that_fails_takes_its_moves_along(manager: LogManager, tmp_path: Path) -> None:
    move = manager.begin_move("t", 0, str(tmp_path / "b"), T0_MS)
    assert move is not None
    manager.take_offline(str(tmp_path / "b"), "gone")
    assert manager.moves == {}
    assert list(move.steps(T0_MS)) == []
    assert len(read_all(manager.logs[NAME])) == 60
