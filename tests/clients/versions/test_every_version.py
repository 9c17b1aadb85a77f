"""Every minor version of Apache Kafka's Java client since 0.10.0, and the last three of other clients.

`make test` runs the versions at which something changed, `make soak` all of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable
from typing import Any

import pytest

from tests.clients import foreign
from tests.clients.versions import jars, others
from tests.support.admin import create_topic

# The first run fetches and builds them all.
pytestmark = pytest.mark.timeout(600)


def prepared(bootstrap: str, name: str) -> str:
    """The beginning of the names of two new topics, for clients that cannot create any."""
    prefix = f"{name}-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, f"{prefix}-records", partitions=2)
    create_topic(bootstrap, f"{prefix}-group", partitions=2)
    return prefix


def some(versions: Iterable[Any], at_once: Container[Any]) -> list[Any]:
    """Those that are not in `at_once` are left to `make soak`."""
    return [pytest.param(one, marks=[] if one in at_once else [pytest.mark.soak]) for one in versions]


@pytest.mark.java
@pytest.mark.parametrize("version", some(jars.VERSIONS, jars.BORDERS))
def test_java(bootstrap: str, version: str) -> None:
    steps = jars.steps(version)
    program = jars.program(version)
    report = foreign.run(program, bootstrap, prepared(bootstrap, f"java-{version}"), *steps)
    assert (report["version"], report["done"]) == (version, steps)


@pytest.mark.parametrize(
    "client", some(others.PYTHON, others.PYTHON_BORDERS), ids=[client.name for client in others.PYTHON]
)
def test_python(bootstrap: str, client: others.PythonClient) -> None:
    report = foreign.run(client.program(), bootstrap, prepared(bootstrap, client.name), *client.steps)
    assert (report["version"], report["done"]) == (client.version, [*client.steps])


@pytest.mark.node
@pytest.mark.parametrize("version", some(others.KAFKAJS, others.KAFKAJS[-1:]))
def test_kafkajs(bootstrap: str, version: str) -> None:
    """tests/clients/test_node.py runs the newest."""
    program = others.kafkajs(version)
    for step in others.KAFKAJS_STEPS:
        foreign.run(program, bootstrap, *step)


@pytest.mark.go
@pytest.mark.soak  # each is built for minutes
@pytest.mark.parametrize("client", others.GO, ids=lambda client: client.name)
def test_go(bootstrap: str, client: others.GoClient) -> None:
    program = client.program()
    for step in client.steps:
        foreign.run(program, bootstrap, *step)
