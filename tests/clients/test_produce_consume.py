"""The smallest round trip through each client, for a first look at whether a broker works at all; `test_records.py` has
the long ones."""

from __future__ import annotations

import uuid

import pytest

from tests.clients.drivers import DRIVERS, Driver
from tests.clients.test_records import PARTITIONS, by_partition, mixed
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_a_client_reads_what_it_wrote(broker: BrokerProcess, driver: Driver) -> None:
    topic = f"smoke-{driver.name}-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic, PARTITIONS)
    sent = mixed(60)
    assert driver.produce(broker.bootstrap, topic, sent, codec="none", acks=-1) == len(sent)
    assert by_partition(driver.consume(broker.bootstrap, topic, PARTITIONS, len(sent))) == by_partition(sent)
