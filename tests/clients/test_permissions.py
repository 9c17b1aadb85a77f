"""Who may read a broker's data: new log dirs are closed, old ones stay as they are, files are as open as their dir."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.config.loader import load
from barnabas.security.openness import findings
from barnabas.testing import Broker

FLUSH_S = 60


@contextmanager
def masked(umask: int) -> Iterator[None]:
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The permissions of a dir and all that is in it."""
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.rglob("*"))
    }


def filled(folder: Path, **options: str) -> dict[str, int]:
    """The permissions in a log dir after a broker has written, stopped, started and written again."""
    named = {name.replace("_", "."): text for name, text in options.items()}
    with Broker(named, data_dir=folder) as broker:
        for _ in range(2):
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce("orders", b"x")
            assert producer.flush(FLUSH_S) == 0
            broker.restart()
        return modes(folder)


@pytest.mark.parametrize(
    ("permissions", "dir_mode"), [("owner", 0o700), ("group", 0o750), ("everybody", 0o755)]
)
def test_a_new_log_dir_has_the_permissions_of_the_option(
    tmp_path: Path, permissions: str, dir_mode: int
) -> None:
    with masked(0o022):
        modes_found = filled(tmp_path / "data", log_dirs_permissions=permissions)
    folders = {name: mode for name, mode in modes_found.items() if (tmp_path / "data" / name).is_dir()}
    assert len(folders) > 1
    assert set(folders.values()) == {dir_mode}
    for name in modes_found.keys() - folders.keys():
        assert modes_found[name] in (dir_mode & 0o644, 0o600), name
    assert {".lock", "meta.properties"} <= modes_found.keys()
    assert modes_found["meta.properties"] == modes_found[".lock"] == dir_mode & 0o644


def test_the_umask_may_take_away_more(tmp_path: Path) -> None:
    with masked(0o077):
        assert not [
            mode
            for mode in filled(tmp_path / "data", log_dirs_permissions="everybody").values()
            if mode & 0o077
        ]


@pytest.mark.parametrize("mode", [0o755, 0o750])
def test_a_log_dir_that_is_there_stays_open_and_the_start_says_so(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(mode)
    with masked(0o022), caplog.at_level(logging.WARNING, "barnabas"):
        assert filled(folder)["."] == mode
    reasons = [
        record.__dict__["reason"]
        for record in caplog.records
        if record.message == "a log dir is open to others"
    ]
    assert reasons
    who = "every user" if mode == 0o755 else "the group"
    assert reasons[0].startswith(
        f"{who} of this machine can look into {folder}, which holds records and metadata"
    )
    assert "chmod 700 it" in reasons[0]
    config = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:9092"}
    assert reasons[0] in list(findings(load(overrides=config)))
    wide = {**config, "log.dirs.permissions": "everybody" if mode == 0o755 else "group"}
    assert not [line for line in findings(load(overrides=wide)) if "log.dirs.permissions" in line]


def test_a_dir_that_is_closed_later_gets_closed_files(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with masked(0o022):
        filled(folder, log_dirs_permissions="everybody")
        folder.chmod(0o700)
        with Broker(data_dir=folder) as broker:
            producer = Producer({"bootstrap.servers": broker.bootstrap})
            producer.produce("later", b"x")
            assert producer.flush(FLUSH_S) == 0
            modes_now = modes(folder)
    assert not [name for name, mode in modes_now.items() if name.startswith("later") and mode & 0o077]
