"""Tests that share something costly, or the fixtures of their module, run in one process."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.spread import SPARKS, Spread, joined


def test_a_module_s_fixtures_are_made_once() -> None:
    groups = {
        "tests/a.py::test_spark": "spark tests/a.py",
        "tests/a.py::test_server_of_the_module": "tests/a.py",
        "tests/b.py::test_server_of_the_module": "tests/b.py",
        "tests/c.py::test_tree": "zookeeper",
        "tests/c.py::test_marked": "mine",
    }
    assert joined(groups) == {**groups, "tests/a.py::test_server_of_the_module": "spark tests/a.py"}


class Process:
    """One of those that pytest-xdist has started."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.given: deque[int] = deque()
        self.done: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.given += indices

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.mark.parametrize("plain", [0, 3, 100])
def test_few_processes_get_files_with_spark(tmp_path: Path, plain: int) -> None:
    pytest.importorskip("xdist")
    groups = {f"{file}.py::test_{n}": f"spark {file}.py" for file in "abcdefg" for n in range(3)}
    (tmp_path / "groups").write_text(json.dumps(groups))
    config: Any = SimpleNamespace(
        option=SimpleNamespace(),
        getvalue=lambda _: ["popen"] * 4,
        workerinput={"groups_file": tmp_path / "groups"},
    )
    tests = [*groups, *(f"z.py::test_{n}" for n in range(plain))]
    processes: list[Any] = [Process(f"gw{n}") for n in range(4)]
    spread = Spread(config, None)
    for process in processes:
        spread.add_node(process)
    for process in processes:
        spread.add_node_collection(process, tests)
    spread.schedule()
    while any(process.given for process in processes):
        for process in processes:
            if process.given:
                process.done.append(tests[index := process.given.popleft()])
                spread.mark_test_complete(process, index)
    assert spread.tests_finished
    assert sorted(test for process in processes for test in process.done) == sorted(tests)
    files = [{groups[test] for test in process.done if test in groups} for process in processes]
    assert sum(map(bool, files)) == SPARKS
    assert sum(map(len, files)) == 7
