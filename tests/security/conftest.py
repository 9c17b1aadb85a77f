"""Fixtures that several modules use; each module gets its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.testing import Broker
from tests.security.certificates import Certificates
from tests.security.issuer import Issuer
from tests.security.sasl_broker import sasl_broker


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates, issuer: Issuer) -> Iterator[Broker]:
    with sasl_broker(certificates, issuer) as broker:
        yield broker


@pytest.fixture
def address(secured: Broker) -> Callable[[str], str]:
    return lambda name: f"127.0.0.1:{secured.ports[name]}"
