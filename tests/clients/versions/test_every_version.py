"""Every minor version of Apache Kafka's Java client since 0.10.0, and the last three of other clients.

`make test` runs the versions at which something changed, `make soak` all of them.
"""

from __future__ import annotations

import uuid

import pytest

from tests.clients import foreign
from tests.clients.versions import jars
from tests.support.admin import create_topic

# The first run fetches and builds them all.
pytestmark = pytest.mark.timeout(600)


def prepared(bootstrap: str, name: str) -> str:
    """The beginning of the names of two new topics, for clients that cannot create any."""
    prefix = f"{name}-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, f"{prefix}-records", partitions=2)
    create_topic(bootstrap, f"{prefix}-group", partitions=2)
    return prefix


@pytest.mark.java
@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=[] if version in jars.BORDERS else [pytest.mark.soak])
        for version in jars.VERSIONS
    ],
)
def test_java(bootstrap: str, version: str) -> None:
    steps = jars.steps(version)
    program = jars.program(version)
    found = foreign.run(program, bootstrap, prepared(bootstrap, f"java-{version}"), *steps)
    assert (found["version"], found["done"]) == (version, steps)
