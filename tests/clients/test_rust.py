"""rskafka, a client in Rust, against our broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.clients import foreign

pytestmark = pytest.mark.soak  # the crates are compiled for minutes

SOURCES = foreign.HERE / "rust"


@pytest.fixture(scope="module")
def probe() -> list[str]:
    cargo = foreign.need("cargo")

    def compile_it(folder: Path) -> None:
        copy = folder / "sources"
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("target"))
        foreign.fetch_or_skip([cargo, "fetch", "--quiet", "--locked"], copy, "the crates cannot be fetched")
        foreign.build([cargo, "build", "--quiet", "--offline", "--target-dir", str(folder)], copy)

    return [
        str(
            foreign.made(f"rust-{foreign.fingerprint(SOURCES, 'Cargo.*', 'src/*.rs')}", compile_it)
            / "debug"
            / "probe"
        )
    ]


def test_what_is_produced_comes_back(probe: list[str], bootstrap: str) -> None:
    """Each codec, keys, headers, offsets; deleting records and the topic."""
    foreign.run(probe, bootstrap, "rskafka")
