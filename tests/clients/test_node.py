"""kafkajs, the JavaScript client, which asks for the old versions of most APIs, against our broker."""

from __future__ import annotations

import pytest

from tests.clients import foreign
from tests.support.examples import examples, one_in

pytestmark = pytest.mark.node

SOURCES = foreign.HERE / "node"
RECORDS = examples(25_000)


@pytest.fixture(scope="session")
def probe() -> list[str]:
    """The command that runs the program; kafkajs is installed once into the cache."""
    node, modules = foreign.need("node"), foreign.kafkajs_modules()
    return ["env", f"PROBE_MODULES={modules}", "NODE_NO_WARNINGS=1", node, str(SOURCES / "probe.js")]


@pytest.mark.parametrize("codec", one_in(2, ["gzip", "none"]))
def test_what_is_produced_comes_back(probe: list[str], bootstrap: str, codec: str) -> None:
    """With acks 0, 1, all, and idempotent."""
    assert foreign.run(probe, bootstrap, "roundtrip", codec, str(RECORDS))["records"] == 4 * RECORDS


@pytest.mark.parametrize("scenario", ["group", "admin", "transactions"])
def test_scenario(probe: list[str], bootstrap: str, scenario: str) -> None:
    foreign.run(probe, bootstrap, scenario)
