"""`barnabas log repair` on the folders of a broker that does not run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.building import T0_MS, append, files, read_all, rows

from barnabas.cli.logs import log_repair
from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.dirs.log_dir import LogDir
from barnabas.storage.errors import LogDirLocked
from barnabas.storage.logs.recovery import create_log, open_log

NAME = TopicPartition("orders", 0)


@pytest.fixture
def log_dir(tmp_path: Path) -> str:
    log = create_log(str(tmp_path / "orders-0"), LogConfig(segment_bytes=3000), T0_MS)
    for i in range(60):
        append(log, rows(3, start=3 * i))
    log.close()
    return str(tmp_path)


def damage(log_dir: str) -> None:
    path = Path(log_dir, "orders-0", f"{0:020d}.log")
    data = bytearray(path.read_bytes())
    size = 157
    data[5 * size + 6] ^= 1
    data[9 * size + 70] ^= 1
    path.write_bytes(data)


def test_it_shows_and_mends(log_dir: str) -> None:
    assert list(log_repair.findings(log_dir, NAME)) == []
    damage(log_dir)
    before = files(Path(log_dir, "orders-0"))
    findings = [(row["position"], row["result"]) for row in log_repair.findings(log_dir, NAME)]
    assert findings == [(5 * 157, "base offset repaired"), (9 * 157, "not served")]
    assert files(Path(log_dir, "orders-0")) == before, "looking changes nothing"
    log_repair.mend(log_dir, [NAME], T0_MS)
    assert [row["result"] for row in log_repair.findings(log_dir, NAME)] == ["not served"]
    log = open_log(str(Path(log_dir, "orders-0")), LogConfig(), T0_MS, clean=True)
    assert [record.offset for record in read_all(log)] == [*range(27), *range(30, 180)]


def test_what_was_set_aside_is_shown_and_removed_when_asked(log_dir: str) -> None:
    Path(log_dir, "orders-0", f"{0:020d}.log.314.damaged").write_bytes(b"x" * 10)
    assert [row["result"] for row in log_repair.findings(log_dir, NAME)] == ["set aside"]
    assert log_repair.remove_set_aside(log_dir, [NAME]) == 1
    assert list(log_repair.findings(log_dir, NAME)) == []


def test_names_choose_partitions(log_dir: str) -> None:
    for wanted, partitions in (
        ((), [NAME]),
        (("orders",), [NAME]),
        (("orders-0",), [NAME]),
        (("other",), []),
    ):
        assert log_repair.partitions_in(log_dir, wanted) == partitions


def test_a_running_broker_keeps_its_dir(log_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(self: LogDir) -> None:
        raise LogDirLocked("in use")

    monkeypatch.setattr(LogDir, "lock", locked)
    with pytest.raises(LogDirLocked):
        log_repair.mend(log_dir, [NAME], T0_MS)
