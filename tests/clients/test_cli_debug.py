"""`barnabas debug`: what can be learned of a broker that runs, hangs, or is away."""

from __future__ import annotations

import json
import os
import signal
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.local import process_facts
from barnabas.terminal.errors import CliError
from tests.clients.cli_support import Cli
from tests.support.process import BrokerProcess

OwnBroker = Callable[..., BrokerProcess]


@pytest.fixture(autouse=True)
def _only_my_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc")


def test_a_bundle_of_a_running_broker(own_broker: OwnBroker, tmp_path: Path) -> None:
    broker = own_broker(ssl__keystore__password="never-to-be-seen", logger__barnabas__stacks="DEBUG")
    cli = Cli(broker.bootstrap)
    cli("topic", "create", "orders", "-c", "retention.ms=1000000")
    cli("produce", "orders", stdin=b"a record that is nobody's business\n")
    file = tmp_path / "fault.zip"
    report = cli.json("debug", "bundle", str(file), "-X", "sasl.password=never-to-be-seen")
    assert report["file"] == str(file)
    assert file.stat().st_mode & 0o077 == 0, "nobody else may read it"
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    everything = b"".join(contents.values())
    assert b"never-to-be-seen" not in everything
    assert b"nobody's business" not in everything
    assert json.loads(contents["cluster/topic-options.json"])["orders"]["retention.ms"]["value"] == "1000000"
    assert "orders" in json.loads(contents["cluster/metadata.json"])["topics"]
    options = json.loads(contents["cluster/broker-options.json"])["1"]
    assert options["log.dirs"]["value"] == str(broker.data_dir)
    assert json.loads(contents["versions.json"])["packages"]["confluent-kafka"]
    assert json.loads(contents["cluster/clients.json"])["clients"]
    stacks = contents[f"process/{broker.pid}/stacks.txt"].decode()
    assert "watchdog.py" in stacks
    assert "Housekeeping._every (housekeeping.py:" in stacks
    assert any(
        b"registered path=/brokers/ids/1" in data
        for name, data in contents.items()
        if name.startswith("log/")
    )
    assert any(
        b"orders-0/00000000000000000000.log" in data for name, data in contents.items() if "files.txt" in name
    )
    assert set(report["holds"]) < set(contents)
    assert all(name in contents["CONTENTS.txt"].decode() for name in report["holds"])


def test_a_bundle_without_a_broker_says_what_is_missing(own_broker: OwnBroker, tmp_path: Path) -> None:
    broker = own_broker()
    Cli(broker.bootstrap)("topic", "create", "orders")
    broker.kill()
    file = tmp_path / "fault.zip"
    options = ("--data", str(broker.data_dir), "--log-file", str(broker.log_path))
    report = Cli(broker.bootstrap).json("debug", "bundle", str(file), *options)
    assert any(
        text.startswith("cluster: no broker answers") or "cluster: " in text for text in report["missing"]
    )
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        listed = b"".join(archive.read(name) for name in names if name.endswith("files.txt"))
    assert b"orders-0/" in listed
    assert any(name.startswith("log/") and name.endswith(broker.log_path.name) for name in names)


def test_a_bundle_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    done = Cli("127.0.0.1:1")("debug", "bundle", str(tmp_path / "nowhere" / "x.zip"), code=1)
    assert b"x.zip: No such file or directory" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_sigquit_writes_stacks_and_ends_nothing(own_broker: OwnBroker) -> None:
    broker = own_broker()
    path = broker.data_dir / "stacks.txt"
    os.kill(broker.pid, signal.SIGQUIT)
    deadline = time.monotonic() + 60
    while not path.read_text().endswith("end of stacks\n"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first = process_facts.stacks_of(broker.pid)
    second = process_facts.stacks_of(broker.pid)
    assert [text.split(", dump ")[1].split()[0] for text in (first, second)] == ["2", "3"]
    assert path.read_text() == second, "the newest one replaces those before"
    assert Cli(broker.bootstrap)("topic", "list").returncode == 0
    assert broker.stop() == 0
    assert not path.exists()


def test_a_broker_whose_loop_hangs_shows_its_threads(
    own_broker: OwnBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_facts, "PATIENCE_SECONDS", 0.5)
    broker = own_broker()
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        with pytest.raises(CliError, match="is it stopped"):
            process_facts.stacks_of(broker.pid)
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def test_the_command_shows_the_stacks(own_broker: OwnBroker) -> None:
    broker = own_broker(node__id="4321")
    shown = Cli(broker.bootstrap).json("debug", "stacks", "--node", "4321")
    assert [row["pid"] for row in shown] == [broker.pid]
    assert "Thread 0x" in shown[0]["stacks"]
    done = Cli(broker.bootstrap)("debug", "stacks", "--node", "9999", code=1)
    assert b"no broker of yours runs" in done.stderr
