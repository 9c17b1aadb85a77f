"""Who reads `ready` may end a process at once: it is missed although the command has hardly begun to watch."""

from __future__ import annotations

import builtins
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.clusters import cluster_processes, zookeeper
from barnabas.local import zookeeper as servers
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK


class Processes:
    """Members that run until somebody who has read `ready` ends the first of them, and everything a while later."""

    def __init__(self, patch: pytest.MonkeyPatch, module: Any) -> None:
        self.alive: dict[str, int] = {}
        self.noted: list[str] = []
        self._looks = 0
        real = builtins.print

        def printing(*words: Any, **options: Any) -> None:
            real(*words, **options)
            if words and str(words[0]).startswith("ready"):
                del self.alive[next(iter(self.alive))]

        patch.setattr(builtins, "print", printing)
        patch.setattr(module, "note", self.noted.append)
        patch.setattr(module, "WATCH_SECONDS", 0)

    def running(self, *_: Any) -> dict[str, int]:
        self._looks += 1
        if self._looks > 5:
            self.alive.clear()
        return dict(self.alive)


def test_a_zookeeper_that_ends_right_after_ready_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    processes = Processes(monkeypatch, zookeeper)

    def start(ensemble: Any, port: int, host: str) -> list[Any]:
        processes.alive = {member.name: 100 + number for number, member in enumerate(ensemble)}
        return [
            SimpleNamespace(member=member, process=SimpleNamespace(pid=processes.alive[member.name]))
            for member in ensemble
        ]

    monkeypatch.setattr(servers, "start", start)
    monkeypatch.setattr(servers, "require_free", lambda ports, host: None)
    monkeypatch.setattr(zookeeper, "running", processes.running)
    assert zookeeper.start(tmp_path, port=20_000, count=3) == EXIT_FAILED  # nobody has asked it to end
    assert processes.noted[0] == "zookeeper 1 has ended (process 100)"


def test_a_broker_that_ends_right_after_ready_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes(monkeypatch, cluster_processes)
    processes.alive = {"broker 1": 7, "zookeeper": 8}
    cluster: Any = SimpleNamespace(running=processes.running, stop=lambda: iter(()))
    assert cluster_processes.stay(cluster, "ready: it is") == EXIT_OK
    assert processes.noted[0] == "broker 1 has ended (process 7)"
