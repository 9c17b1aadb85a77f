"""Stopping a broker: a step that fails costs only itself, the logs are closed and their dirs unlocked."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from barnabas.storage.logs.log import Log
from barnabas.testing import Broker


class Boom(RuntimeError):
    """What the tests inject."""


def boom(*_: Any) -> Any:
    raise Boom


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("moving", "stop"),
        ("listeners", "close"),
        ("conversions", "close"),
        ("groups", "close"),
        ("shares", "close"),
        ("controller", "keep_copies"),
    ],
)
def test_a_step_that_fails_skips_no_other(
    tmp_path: Path, part: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(data_dir=tmp_path / "data")
    broker.start()
    services = broker.inside.server.services
    broker.inside.wait_for(services.controller.topics.create("t", 1, 1, {}, {}))
    with pytest.MonkeyPatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(getattr(services, part), name, boom)
        broker.stop()
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [Boom]
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with Broker(data_dir=tmp_path / "data") as again:
        assert not again.inside.server.services.partitions.recovered_unclean


def test_a_log_that_cannot_be_closed_unlocks_its_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(data_dir=tmp_path / "data")
    broker.start()
    services = broker.inside.server.services
    broker.inside.wait_for(services.controller.topics.create("t", 2, 1, {}, {}))
    closed: list[str] = []
    close = Log.close

    def close_unless_first(log: Log) -> None:
        if log.name == "t-0":
            raise Boom
        closed.append(log.name)
        close(log)

    monkeypatch.setattr(Log, "close", close_unless_first)
    with caplog.at_level(logging.ERROR):
        broker.stop()
    assert closed == ["t-1"]
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert str(tmp_path / "data" / "t-0") in [getattr(record, "log", "") for record in caplog.records]
    with Broker(data_dir=tmp_path / "data") as again:  # its lock was given back
        assert again.inside.server.services.partitions.recovered_unclean
