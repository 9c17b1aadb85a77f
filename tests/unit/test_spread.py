"""Tests that share something costly, or the fixtures of their module, run in one process."""

from __future__ import annotations

from tests.support.spread import joined


def test_a_module_s_fixtures_are_made_once() -> None:
    groups = {
        "tests/a.py::test_spark": "spark-1",
        "tests/a.py::test_server_of_the_module": "tests/a.py",
        "tests/b.py::test_server_of_the_module": "tests/b.py",
        "tests/c.py::test_tree": "zookeeper",
        "tests/c.py::test_marked": "mine",
    }
    assert joined(groups) == {**groups, "tests/a.py::test_server_of_the_module": "spark-1"}
