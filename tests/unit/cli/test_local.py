"""Which brokers `barnabas stop` means: processes that only look like brokers stand in for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from barnabas.cli.clusters import stop
from barnabas.cli.main import run
from barnabas.local.brokers import LocalBroker, brokers_here, starts

BROKER = """
import fcntl, pathlib, sys, time
lock = pathlib.Path(sys.argv[2], ".lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Starts a process with a broker's command line and a lock; only such processes count as this machine's."""
    begun = []
    program = tmp_path / "barnabas"
    program.write_text(BROKER)

    def make(name, node):
        folder = tmp_path / name
        folder.mkdir()
        words = [sys.executable, str(program), "start", str(folder), "-o", f"node.id={node}"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        begun.append(process)
        return process

    mine = lambda: [broker for broker in brokers_here() if broker.pid in {p.pid for p in begun}]  # noqa: E731
    monkeypatch.setattr(stop, "brokers_here", lambda: [b for b in mine() if _lives(begun, b.pid)])
    yield make
    for process in begun:
        process.kill()
        process.wait()


def _lives(begun, pid):
    return next(p for p in begun if p.pid == pid).poll() is None


def test_one_broker_needs_no_option(begin, capsys):
    process = begin("only", 4)
    assert stop.main([]) == 0
    assert capsys.readouterr().out == f"stopped broker 4 (process {process.pid})\n"
    assert process.wait(30) == -signal.SIGTERM


def test_several_brokers_are_listed_and_none_is_stopped(begin, tmp_path, capsys):
    first, second = begin("a", 1), begin("b", 2)
    assert stop.main([]) == 1
    printed = capsys.readouterr().err
    assert "2 brokers of yours run on this machine, and none was stopped" in printed
    assert f"  node 2 (process {second.pid}, data in {tmp_path / 'b'})" in printed
    assert (first.poll(), second.poll()) == (None, None)
    assert stop.main(["--data", str(tmp_path / "c")]) == 1
    assert f"with a log dir in {tmp_path / 'c'}" in capsys.readouterr().err
    assert stop.main(["--data", str(tmp_path / "b")]) == 0
    assert (first.poll(), second.wait(30)) == (None, -signal.SIGTERM)
    assert stop.main(["--all"]) == 0


def test_the_brokers_of_one_command_belong_together():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        pair = [LocalBroker(child.pid, "2", "x"), LocalBroker(os.getpid(), "1", "x")]
        assert len(starts(pair)) == 1
        assert len(starts([LocalBroker(1, "1", "x"), *pair])) >= 1
    finally:
        child.kill()
        child.wait()


def test_the_cluster_may_be_named_before_the_command(capsys, monkeypatch):
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "unused:1")
    assert run(["--bootstrap", "127.0.0.1:1", "topic", "list"]) != 0
    assert "127.0.0.1:1" in capsys.readouterr().err
    assert run(["-b", "127.0.0.1:1"]) == 2
    assert "-b needs an address and a command" in capsys.readouterr().err
