"""Which broker options change while a broker runs, as Apache Kafka 4.3.1 says in DynamicBrokerConfig."""

from __future__ import annotations

import pytest

from barnabas.config.broker_options import BROKER
from barnabas.config.option import Mode

# Some of each kind; what is not in Kafka's set is read-only.
MODES = {
    "advertised.listeners": Mode.READ_ONLY,
    "listeners": Mode.PER_BROKER,
    "listener.security.protocol.map": Mode.PER_BROKER,
    "cordoned.log.dirs": Mode.PER_BROKER,
    "ssl.keystore.location": Mode.PER_BROKER,
    "log.dirs": Mode.READ_ONLY,
    "broker.rack": Mode.READ_ONLY,
    "inter.broker.listener.name": Mode.READ_ONLY,
    "security.inter.broker.protocol": Mode.READ_ONLY,
    "node.id": Mode.READ_ONLY,
    "num.io.threads": Mode.CLUSTER,
    "message.max.bytes": Mode.CLUSTER,
}


@pytest.mark.parametrize("name", MODES)
def test_the_mode_is_kafka_s(name: str) -> None:
    assert BROKER[name].mode is MODES[name]
