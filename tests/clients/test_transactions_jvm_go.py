"""Transactions with the Java client and franz-go, each by the older protocol and by that of KIP-890."""

from __future__ import annotations

import pytest

from tests.clients import foreign

SOURCES = foreign.HERE / "go"
BEFORE_KIP_890 = "3.9.1"


@pytest.mark.java
@pytest.mark.parametrize("release", ["", BEFORE_KIP_890], ids=["newest", BEFORE_KIP_890])
@pytest.mark.parametrize("scenario", ["ends", "fencing", "offsets", "time-out", "admin"])
def test_java(bootstrap: str, release: str, scenario: str) -> None:
    foreign.run(foreign.java_transactions(release), bootstrap, scenario)


@pytest.mark.go
@pytest.mark.parametrize("release", ["v2.4", "v3.9", "v4.0"])
def test_franz_go(bootstrap: str, release: str) -> None:
    program = [str(foreign.go_program("go", SOURCES, "the Go modules"))]
    foreign.run(program, bootstrap, "franz-transactions", release)
