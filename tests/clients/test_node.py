"""kafkajs, the JavaScript client, which asks for the old versions of most APIs, against our broker."""

from __future__ import annotations

import shutil

import pytest

from tests.clients import foreign

pytestmark = pytest.mark.node

SOURCES = foreign.HERE / "node"
RECORDS = 100_000


@pytest.fixture(scope="session")
def probe() -> list[str]:
    """The command that runs the program; kafkajs is installed once into the cache."""
    node, npm = foreign.need("node"), foreign.need("npm")
    modules = foreign.CACHE / f"node-{foreign.fingerprint(SOURCES, 'package.json')}"
    if not (modules / ".complete").exists():
        modules.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCES / "package.json", modules)
        install = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock"]
        foreign.fetch_or_skip(install, modules, "npm cannot fetch kafkajs")
        (modules / ".complete").touch()
    return ["env", f"PROBE_MODULES={modules}", "NODE_NO_WARNINGS=1", node, str(SOURCES / "probe.js")]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_what_is_produced_comes_back(probe: list[str], bootstrap: str, codec: str) -> None:
    """With acks 0, 1, all, and idempotent."""
    assert foreign.run(probe, bootstrap, "roundtrip", codec, str(RECORDS))["records"] == 4 * RECORDS


@pytest.mark.parametrize("scenario", ["group", "admin"])
def test_scenario(probe: list[str], bootstrap: str, scenario: str) -> None:
    foreign.run(probe, bootstrap, scenario)
