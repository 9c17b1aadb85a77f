"""What a power cut takes, on a disk that forgets all that was not synced."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.dirs import moving
from barnabas.storage.dirs.log_manager import LogManager
from barnabas.storage.files import fsync_dir
from tests.unit.storage.building import T0_MS, append, read_all, rows
from tests.unit.storage.power import PowerCut
from tests.unit.storage.test_log_manager import kill

EVERY_RECORD = LogConfig(segment_bytes=1500, index_interval_bytes=100, flush_messages=1)


def opened(folder: Path, config: LogConfig) -> LogManager:
    manager = LogManager([folder], lambda topic: config)
    manager.open(T0_MS)
    return manager


@pytest.mark.parametrize("seed", range(6))
def test_with_flush_messages_1_no_acknowledged_record_is_lost(tmp_path: Path, seed: int) -> None:
    """`must_flush_now` after an append means: flush, then acknowledge. That is what the broker does."""
    rng = random.Random(seed)
    acknowledged = 0
    with PowerCut(tmp_path / "d") as power:
        for _ in range(4):
            manager = opened(tmp_path / "d", EVERY_RECORD)
            log = manager.create("t", 0, None, T0_MS)
            got = read_all(log)
            assert len(got) >= acknowledged, f"seed {seed}"
            assert [record.offset for record in got] == list(range(len(got)))
            for _ in range(rng.randrange(1, 20)):
                append(log, rows(rng.randrange(1, 4)), epoch=rng.choice([log.core.leader_epoch, 0, 1]))
                if rng.random() < 0.9:
                    assert log.must_flush_now
                    log.flush()
                    acknowledged = log.log_end_offset
                if rng.random() < 0.1:
                    manager.checkpoint()
            kill(manager)
            power.cut()
        manager = opened(tmp_path / "d", EVERY_RECORD)
        assert len(read_all(manager.create("t", 0, None, T0_MS))) >= acknowledged
        kill(manager)


@pytest.mark.parametrize("seed", range(6))
def test_without_flushes_the_log_is_shorter_but_whole(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    config = LogConfig(segment_bytes=1500, index_interval_bytes=100)
    with PowerCut(tmp_path / "d") as power:
        for _ in range(5):
            manager = opened(tmp_path / "d", config)
            log = manager.create("t", 0, None, T0_MS)
            got = read_all(log)
            assert [record.offset for record in got] == list(range(len(got))), f"seed {seed}"
            for _ in range(30):
                append(log, rows(2), producer_id=-1)
                if rng.random() < 0.1:
                    manager.flush_due(0)
                if rng.random() < 0.1:
                    manager.checkpoint()
            if rng.random() < 0.3:
                manager.close()
                power.cut()
                closed = opened(tmp_path / "d", config)
                assert len(read_all(closed.logs[next(iter(closed.logs))])) == len(got) + 60
                kill(closed)
            kill(manager)
            power.cut()


@pytest.mark.parametrize("renames_last", [False, True])
def test_a_power_cut_at_any_step_of_a_move_loses_no_acknowledged_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames_last: bool
) -> None:
    """Records are appended, flushed and acknowledged before each half of each step up to the change of places. What
    comes after it finds nobody else who flushes the new log.

    renames_last: what was renamed in the old dir happens to be on the disk, which nobody has asked for.
    """
    monkeypatch.setattr(moving, "COPY_BYTES", 1000)
    monkeypatch.setattr(moving, "CAUGHT_UP_BYTES", 300)
    name = TopicPartition("t", 0)
    ends = set()
    for steps_before in range(40):
        folder = tmp_path / f"d{steps_before}"
        dirs = [folder / "a", folder / "b"]

        def opened_both() -> LogManager:
            manager = LogManager(dirs, lambda topic: EVERY_RECORD)  # noqa: B023 - used in this turn only
            manager.open(T0_MS)
            for row in (*dirs, folder):  # noqa: B023
                fsync_dir(row)
            return manager

        def acknowledge(manager: LogManager) -> int:
            log = manager.logs[name]
            append(log, rows(2))
            log.flush()
            return log.log_end_offset

        with PowerCut(folder) as power:
            manager = opened_both()
            manager.create("t", 0, None, T0_MS)
            for _ in range(20):
                acknowledged = acknowledge(manager)
            move = manager.moving.begin(name, str(dirs[1]), T0_MS)
            assert move is not None
            left = steps_before
            for step in move.steps(T0_MS):
                for half in (step.work, step.commit):
                    if left > 0:
                        if not move.done:
                            acknowledged = acknowledge(manager)
                        half()
                    left -= 1
                if left <= 0:
                    break
            kill(manager)
            if renames_last:
                fsync_dir(dirs[0])
            power.cut()
            again = opened_both()
            log = again.logs[name]
            got = read_all(log)
            assert [record.offset for record in got] == list(range(len(got)))
            assert len(got) >= acknowledged, f"after {steps_before} halves of steps"
            resumed = again.moving.running.get(name)
            ends.add((Path(log.log_dir).name, resumed is not None))
            for step in resumed.steps(T0_MS) if resumed is not None else ():
                step.work()
                step.commit()
            assert len(read_all(again.logs[name])) == len(got)
            kill(again)
        if left > 0:
            break
    assert left > 0, "the move never came to its end"
    assert {("a", True), ("b", False)} <= ends
