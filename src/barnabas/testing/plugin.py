"""pytest fixtures: `kafka_broker` for the whole session, `fresh_kafka_broker` for one test, both real brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.broker import Broker


@pytest.fixture(scope="session")
def kafka_broker_options() -> Mapping[str, str]:
    """Options of both brokers; define a fixture of this name that returns yours, such as {"num.partitions": "3"}."""
    return {}


@pytest.fixture(scope="session")
def kafka_broker(kafka_broker_options: Mapping[str, str]) -> Iterator[Broker]:
    """One broker that all tests of the session share; use topics and groups of your own."""
    from barnabas.testing.broker import Broker

    with Broker(kafka_broker_options) as broker:
        yield broker


@pytest.fixture
def fresh_kafka_broker(kafka_broker_options: Mapping[str, str]) -> Iterator[Broker]:
    """A broker for this test alone, with a clock that the test can move."""
    from barnabas.testing.broker import Broker

    with Broker(kafka_broker_options, manual_clock=True) as broker:
        yield broker


@pytest.fixture
def kafka_bootstrap(kafka_broker: Broker) -> str:
    """bootstrap.servers of the shared broker."""
    return kafka_broker.bootstrap
