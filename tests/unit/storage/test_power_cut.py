"""What a power cut takes, on a disk that forgets all that was not synced."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from barnabas.storage.config import LogConfig
from barnabas.storage.log_manager import LogManager
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
                    log.flush(T0_MS)
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
                    manager.flush_due(T0_MS)
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
