"""Fixtures of the tests with clients that somebody else wrote."""

from __future__ import annotations

import os

import pytest

from tests.clients.cli_support import Cli


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The broker under test; BARNABAS_TEST_BOOTSTRAP names another one, to see whose fault a failure is."""
    other = os.environ.get("BARNABAS_TEST_BOOTSTRAP")
    if other:
        return other
    broker = request.getfixturevalue("broker")
    address: str = broker.bootstrap
    return address


@pytest.fixture(scope="session")
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)
