"""Transactions with the Java client and franz-go, each by the older protocol and by that of KIP-890."""

from __future__ import annotations

import pytest

from tests.clients import foreign
from tests.support.examples import one_in

SOURCES = foreign.HERE / "go"
BEFORE_KIP_890 = "3.9.1"
SCENARIOS = ("ends", "fencing", "offsets", "time-out", "admin")


@pytest.mark.java
@pytest.mark.parametrize(
    ("release", "scenario"),
    one_in(2, [(release, what) for release in ("", BEFORE_KIP_890) for what in SCENARIOS]),
)
def test_java(bootstrap: str, release: str, scenario: str) -> None:
    foreign.run(foreign.java_transactions(release), bootstrap, scenario)


@pytest.mark.go
@pytest.mark.parametrize("release", ["v2.4", "v3.9", "v4.0"])
def test_franz_go(bootstrap: str, release: str) -> None:
    program = [str(foreign.go_program("go", SOURCES, "the Go modules"))]
    foreign.run(program, bootstrap, "franz-transactions", release)
