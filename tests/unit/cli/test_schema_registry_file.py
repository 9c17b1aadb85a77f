"""What schema-registry-start reads in the property files of Confluent's books."""

from __future__ import annotations

import pytest

from barnabas.kafka_tools.servers import schema_registry
from barnabas.terminal.errors import CliError


@pytest.mark.parametrize(
    ("properties", "client"),
    [
        ({}, {"bootstrap.servers": "localhost:9092"}),
        (
            {"kafkastore.bootstrap.servers": "PLAINTEXT://one:9092,PLAINTEXT://two:9092", "debug": "false"},
            {"bootstrap.servers": "one:9092,two:9092", "security.protocol": "PLAINTEXT"},
        ),
        (
            {
                "kafkastore.bootstrap.servers": "SASL_PLAINTEXT://one:9092",
                "kafkastore.security.protocol": "SASL_PLAINTEXT",
                "kafkastore.sasl.mechanism": "PLAIN",
                "kafkastore.topic": "schemas",
                "ssl.keystore.location": "of the listener",
            },
            {
                "bootstrap.servers": "one:9092",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
            },
        ),
        # Port 1: no ZooKeeper answers, and the broker is then looked for on the same host.
        ({"kafkastore.connection.url": "localhost:1"}, {"bootstrap.servers": "localhost:9092"}),
    ],
)
def test_the_client(properties: dict[str, str], client: dict[str, str]) -> None:
    assert schema_registry.client_of(properties) == client


def test_the_registrys_own_options() -> None:
    values = schema_registry.values_of(
        {
            "kafkastore.topic": "schemas",
            "kafkastore.topic.replication.factor": "3",
            "schema.registry.group.id": "registries",
            "host.name": "schemas1",
            "listeners": "http://0.0.0.0:8085",
        }
    )
    assert values["topic"] == "schemas"
    assert values["replication"] == 3
    assert values["group"] == "registries"
    assert values["advertise"] == "schemas1:8085"
    with pytest.raises(CliError, match=r"replication\.factor=many is not a number"):
        schema_registry.values_of({"kafkastore.topic.replication.factor": "many"})
