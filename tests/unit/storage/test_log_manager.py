"""Log dirs: whose they are, what is in them, what happens when one fails."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.storage.checkpoints import TopicPartition
from barnabas.storage.config import LogConfig
from barnabas.storage.dirs import loading
from barnabas.storage.dirs.log_dir import parse_folder_name
from barnabas.storage.dirs.log_manager import LogManager
from barnabas.storage.errors import LogDirLocked, LogDirOffline, LogUnreadable, WrongLogDir
from barnabas.storage.logs.log import Log
from tests.unit.storage.building import SMALL, T0_MS, append, read_all, rows

TOPIC_ID = uuid.UUID(int=77)
Opener = Callable[..., LogManager]


@pytest.fixture
def opened() -> Iterator[Opener]:
    """Opens managers; what a test leaves open loses its locks as it would by a kill."""
    managers: list[LogManager] = []

    def make(*dirs: Path, config: LogConfig = SMALL) -> LogManager:
        manager = LogManager(dirs, lambda topic: config)
        manager.open(T0_MS)
        managers.append(manager)
        return manager

    yield make
    for manager in managers:
        kill(manager)


def kill(manager: LogManager) -> None:
    """What kill -9 leaves: everything written, nothing tidied."""
    for log_dir in manager._dirs:
        if log_dir.lock_fd >= 0:
            os.close(log_dir.lock_fd)
            log_dir.lock_fd = -1


def filled(manager: LogManager, topic: str = "t", partitions: int = 3) -> None:
    for index in range(partitions):
        log = manager.create(topic, index, TOPIC_ID, T0_MS)
        for _ in range(20):
            append(log, rows(3))


@pytest.mark.parametrize("clean", [True, False])
def test_everything_is_found_again(tmp_path: Path, opened: Opener, clean: bool) -> None:
    manager = opened(tmp_path / "d")
    assert manager.cluster_id is None
    manager.claim("cluster", 4)
    filled(manager)
    manager.logs[TopicPartition("t", 1)].advance_log_start(20)
    manager.checkpoint()
    if clean:
        manager.close()
    else:
        kill(manager)
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists() == clean
    again = opened(tmp_path / "d")
    assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists()
    assert (again.cluster_id, again.node_id) == ("cluster", 4)
    assert sorted(again.logs) == [("t", 0), ("t", 1), ("t", 2)]
    for name, log in again.logs.items():
        assert len(read_all(log)) == 60 - log.log_start_offset
        assert log.log_start_offset == (20 if name.partition == 1 else 0)
        assert log.core.high_watermark == 60
        assert again.topic_id(*name) == TOPIC_ID


def test_a_dir_serves_one_broker(tmp_path: Path, opened: Opener) -> None:
    opened(tmp_path / "d")
    code = (
        "import sys; from barnabas.storage.dirs.log_manager import LogManager; from barnabas.storage.config import *\n"
        "LogManager([sys.argv[1]], lambda t: LogConfig()).lock()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "d")], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert "is in use by another broker" in done.stderr
    assert LogDirLocked.__name__ in done.stderr


def test_a_dir_of_another_broker_is_refused(tmp_path: Path, opened: Opener) -> None:
    manager = opened(tmp_path / "d")
    manager.claim("cluster", 4)
    manager.close()
    with pytest.raises(WrongLogDir, match="belongs to cluster"):
        opened(tmp_path / "d").claim("other", 4)
    with pytest.raises(WrongLogDir, match=r"node\.id"):
        opened(tmp_path / "d").claim("cluster", 5)
    other = opened(tmp_path / "e")
    other.claim("other", 4)
    other.close()
    kill(manager)
    with pytest.raises(WrongLogDir, match=r"has cluster\.id"):
        opened(tmp_path / "d", tmp_path / "e")


def test_new_logs_go_where_the_fewest_are(tmp_path: Path, opened: Opener) -> None:
    manager = opened(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    filled(manager, partitions=7)
    counts = sorted(sum(log.log_dir == path for log in manager.logs.values()) for path in manager.dirs)
    assert counts == [2, 2, 3]
    assert manager.create("u", 0, None, T0_MS, log_dir=str(tmp_path / "c")).log_dir == str(tmp_path / "c")
    manager.close()
    assert len(opened(tmp_path / "a", tmp_path / "b", tmp_path / "c").logs) == 8


@pytest.mark.parametrize("how", ["write", "checkpoint", "stop"])
def test_a_log_whose_folder_was_removed_leaves_its_dir_alone(
    tmp_path: Path, opened: Opener, how: str
) -> None:
    manager = opened(tmp_path)
    filled(manager, partitions=3)
    lost_partitions: list[list[TopicPartition]] = []
    manager.on_offline = lambda _reason, lost: lost_partitions.append(lost)
    name = TopicPartition("t", 1)
    lost = manager.logs[name]
    shutil.rmtree(lost.folder)
    if how == "write":
        lost.active.file = None
        with pytest.raises(LogDirOffline) as failed:
            append(lost, rows(1))
        manager.log_failed(name, lost, failed.value)
    elif how == "checkpoint":
        manager.checkpoint()
    else:
        manager.close()
    assert lost_partitions == [[name]]
    assert manager.offline_dirs == {}
    if how != "stop":
        assert len(manager.logs) == 2
        with pytest.raises(LogDirOffline, match="cannot be read"):
            manager.create("t", 1, None, T0_MS)
        manager.close()
    again = opened(tmp_path)
    assert len(again.logs) == 2
    assert not again.recovered_unclean


def test_a_failed_dir_leaves_the_others_alone(tmp_path: Path, opened: Opener) -> None:
    manager = opened(tmp_path / "a", tmp_path / "b")
    filled(manager, partitions=4)
    lost_dirs: list[tuple[str, list[TopicPartition]]] = []
    manager.on_offline = lambda path, lost: lost_dirs.append((path, lost))
    gone = str(tmp_path / "a")
    lost = manager.take_offline(gone, OSError(5, "Input/output error"))
    assert lost_dirs == [(f"log dir {gone} is offline", lost)]
    assert len(lost) == 2
    assert manager.offline_dirs == {gone: "Input/output error"}
    assert len(manager.logs) == 2
    assert all(len(read_all(log)) == 60 for log in manager.logs.values())
    assert manager.create("new", 0, None, T0_MS).log_dir == str(tmp_path / "b")
    with pytest.raises(LogDirOffline):
        manager.create("new", 1, None, T0_MS, log_dir=gone)
    usage = {row.path: row for row in manager.usage()}
    assert usage[gone].offline
    assert usage[str(tmp_path / "b")].total_bytes > 0
    manager.close()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert len(opened(tmp_path / "a", tmp_path / "b").logs) == 5


def test_an_unusable_dir_is_skipped_unless_it_is_the_only_one(tmp_path: Path, opened: Opener) -> None:
    (tmp_path / "file").write_text("not a directory")
    manager = opened(tmp_path / "a", tmp_path / "file")
    assert list(manager.offline_dirs) == [str(tmp_path / "file")]
    with pytest.raises(LogDirOffline, match="and start the broker again"):
        opened(tmp_path / "file")


def test_a_deleted_topic_is_gone_at_once_and_its_files_later(tmp_path: Path, opened: Opener) -> None:
    manager = opened(tmp_path / "d")
    filled(manager)
    reader = manager.logs[TopicPartition("t", 0)].read(0, 1000)
    assert manager.delete("t", 0)
    assert not manager.delete("t", 0)
    assert manager.get("t", 0) is None
    (folder,) = [row for row in os.listdir(tmp_path / "d") if row.endswith("-delete")]
    assert folder.startswith("t-0.")
    assert reader is not None
    assert len(reader.read()) == reader.size
    assert manager.create("t", 0, uuid.UUID(int=78), T0_MS).log_end_offset == 0
    manager.remove_doomed(5)
    manager.remove_doomed(5 + SMALL.file_delete_delay_ms - 1)
    assert (tmp_path / "d" / folder).exists()
    manager.remove_doomed(5 + SMALL.file_delete_delay_ms)
    assert not (tmp_path / "d" / folder).exists()
    manager.delete("t", 1)
    kill(manager)
    again = opened(tmp_path / "d")
    assert sorted(again.logs) == [("t", 0), ("t", 2)]
    assert not [row for row in os.listdir(tmp_path / "d") if row.endswith("-delete")]


def test_a_long_topic_name_can_be_deleted(tmp_path: Path, opened: Opener) -> None:
    manager = opened(tmp_path / "d")
    manager.create("x" * 249, 0, TOPIC_ID, T0_MS)
    assert manager.delete("x" * 249, 0)


@pytest.mark.parametrize("file", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_damaged_checkpoints_cost_no_record(tmp_path: Path, opened: Opener, file: str) -> None:
    manager = opened(tmp_path / "d")
    filled(manager)
    manager.close()
    (tmp_path / "d" / file).write_text("garbage")
    again = opened(tmp_path / "d")
    assert [len(read_all(log)) for log in again.logs.values()] == [60, 60, 60]


def test_flushes_that_are_due(tmp_path: Path, opened: Opener) -> None:
    manager = opened(tmp_path / "d", config=LogConfig(flush_ms=1000))
    filled(manager)
    assert manager.flush_due(5) == 0
    assert manager.flush_due(5 + 999) == 0
    assert manager.flush_due(5 + 1000) == 3
    assert manager.flush_due(5 + 9999) == 0
    manager.checkpoint()
    text = (tmp_path / "d" / "recovery-point-offset-checkpoint").read_text()
    assert text == "0\n3\nt 0 60\nt 1 60\nt 2 60\n"


def test_rolled_segments_become_durable_by_themselves(tmp_path: Path, opened: Opener) -> None:
    manager = opened(tmp_path / "d")
    filled(manager)
    assert manager.flush_due(0) == 3
    assert all(log.recovery_point == log.active.base_offset for log in manager.logs.values())


def test_retention_over_all_logs(tmp_path: Path, opened: Opener) -> None:
    manager = opened(tmp_path / "d")
    filled(manager)
    assert manager.delete_old_segments(T0_MS + 10_000_000_000) > 3
    assert all(log.log_start_offset == 60 for log in manager.logs.values())


def test_many_partitions_hold_few_descriptors(tmp_path: Path, opened: Opener) -> None:
    manager = opened(tmp_path / "d")
    for index in range(300):
        manager.create("t", index, TOPIC_ID, T0_MS)
    manager.close()
    before = len(os.listdir("/proc/self/fd"))
    again = opened(tmp_path / "d")
    assert len(again.logs) == 300
    assert len(os.listdir("/proc/self/fd")) < before + 10


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("t-0", ("t", 0)),
        ("a-b.c_d-12", ("a-b.c_d", 12)),
        ("t-0.0123456789abcdef0123456789abcdef-delete", None),
        ("t-0.0123456789abcdef0123456789abcdef-future", None),
        ("lost+found", None),
        ("-1", None),
        ("t-", None),
    ],
)
def test_folder_names(folder: str, name: tuple[str, int] | None) -> None:
    assert parse_folder_name(folder) == name


def test_a_topic_that_is_deleted_while_it_is_compacted_takes_no_dir_along(
    tmp_path: Path, opened: Opener
) -> None:
    config = replace(SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    for steps_before in range(2):
        manager = opened(tmp_path / f"d{steps_before}", config=config)
        filled(manager, partitions=1)
        manager.create("other", 0, None, T0_MS)
        steps = manager.cleaner.steps(T0_MS)
        for count, step in enumerate(steps):
            if count == steps_before:
                manager.delete("t", 0)
            step.work()
            step.commit()
        assert manager.get("t", 0) is None
        assert manager.offline_dirs == {}
        assert manager.get("other", 0) is not None


@pytest.mark.parametrize("clean", [True, False])
def test_one_line_per_dir_says_what_was_mended(
    tmp_path: Path, opened: Opener, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    manager = opened(tmp_path / "d")
    filled(manager, partitions=8)
    if clean:
        manager.close()
        for index in (tmp_path / "d").glob("*/*.index"):
            index.unlink()
    else:
        for log in manager.logs.values():
            log.flush()
        manager.checkpoint()
        torn = Path(manager.logs[TopicPartition("t", 3)].active.path(".log"))
        torn.write_bytes(torn.read_bytes()[:-10])
        kill(manager)
    caplog.clear()
    again = opened(tmp_path / "d")
    lines = [record for record in caplog.records if record.name == "barnabas.storage"]
    summary = lines[-1].__dict__
    assert (summary["log_dir"], summary["logs"]) == (str(tmp_path / "d"), 8)
    if clean:
        assert [line.message for line in lines] == ["logs repaired after a clean stop"]
        assert summary["rebuilt_indexes"] == sum(len(log.segments) for log in again.logs.values())
        assert summary["rebuilt_logs"] == "t-0, t-1, t-2, t-3, t-4 and 3 more"
    else:
        assert [line.message for line in lines] == [
            "torn tail cut off",
            "logs recovered after an unclean stop",
        ]
        assert lines[0].__dict__["log"] == summary["cut_logs"] == "t-3"
        assert lines[0].__dict__["bytes"] == summary["cut_bytes"] > 0
        assert 0 < summary["scanned_bytes"] < sum(log.size_bytes for log in again.logs.values())


def test_a_log_that_cannot_be_opened_costs_its_own_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager = LogManager([tmp_path], lambda topic: LogConfig())
    manager.open(T0_MS)
    for partition in (0, 1):
        append(manager.create("t", partition, None, T0_MS), rows(3))
    manager.close()
    real = loading.open_log

    def opens(folder: str, *args: Any, **names: Any) -> Log:
        if folder.endswith("t-1"):
            raise ZeroDivisionError("a bug")
        return real(folder, *args, **names)

    with monkeypatch.context() as patched:
        patched.setattr(loading, "open_log", opens)
        again = LogManager([tmp_path], lambda topic: LogConfig())
        again.open(T0_MS)
    assert [str(name) for name in again.logs] == ["t-0"]
    assert not again.offline_dirs
    with pytest.raises(LogUnreadable, match="t-1 cannot be read: a bug"):
        again.create("t", 1, None, T0_MS, new=False)
    assert "log cannot be opened; its partition is offline" in caplog.messages
    again.close()
    last = LogManager([tmp_path], lambda topic: LogConfig())
    last.open(T0_MS)
    assert len(read_all(last.logs[TopicPartition("t", 1)])) == 3
    last.close()


def test_an_unreadable_transaction_index_costs_the_request_and_not_the_dir(tmp_path: Path) -> None:
    manager = LogManager([tmp_path], lambda topic: LogConfig(cleanup_policy=("compact",)))
    manager.open(T0_MS)
    log = manager.create("t", 0, None, T0_MS)
    append(log, rows(3))
    log.roll(T0_MS)
    append(log, rows(3))
    log.segments[0].txn_index._entries = None
    Path(log.segments[0].path(".txnindex")).mkdir()
    with pytest.raises(LogUnreadable):
        log.aborted(0, 6)
    assert not manager.cleaner.run(T0_MS)
    assert not manager.offline_dirs
    assert len(read_all(log)) == 6
    Path(log.segments[0].path(".txnindex")).rmdir()
    manager.close()


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "let the broker's user read and write there"),
        (errno.ENOSPC, "make room on the disk"),
        (errno.EROFS, "mount the file system writable"),
        (errno.EIO, "repair the disk"),
        (errno.ENOENT, "see that the folder is there or can be made, or name another in log.dirs"),
    ],
)
def test_an_offline_dir_says_what_helps(number: int, advice: str) -> None:
    error = OSError(number, os.strerror(number))
    assert f"{os.strerror(number)}; {advice} and start" in str(LogDirOffline("/data", error))


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (None, "Not a directory; name a folder in log.dirs and start the broker again"),
        ("version=2\n", "Start the newer release on this folder, or name another in log.dirs"),
        (
            "node.id=x\n",
            "node.id is 'x', which is not a number; write the right number there, or name another folder",
        ),
    ],
)
def test_the_reason_why_the_only_dir_cannot_be_used(tmp_path: Path, meta: str | None, reason: str) -> None:
    path = tmp_path / "log"
    if meta is None:
        path.write_text("a file")
    else:
        path.mkdir()
        (path / "meta.properties").write_text(meta)
    with pytest.raises(LogDirOffline, match=reason) as raised:
        LogManager([path], lambda _topic: LogConfig()).lock()
    assert "repair" not in str(raised.value)
