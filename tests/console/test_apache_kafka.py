"""The same pages against Apache Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.console.conftest import WAIT_S, ConsoleProcess, running
from tests.support.apache_kafka import present_kafka

pytestmark = [pytest.mark.soak, pytest.mark.java]

WITH_RULES = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache Kafka itself; where it listens."""
    with present_kafka(tmp_path_factory.mktemp("kafka"), WITH_RULES) as where:
        await_coordinator(where, time.monotonic() + WAIT_S)
        yield where


def await_coordinator(where: str, deadline: float) -> None:
    """The first commit creates the topic of offsets; a busy machine loads its fifty partitions longer than a page waits."""
    producer, consumer = (
        Producer({"bootstrap.servers": where}),
        Consumer({"bootstrap.servers": where, "group.id": "first"}),
    )
    producer.produce("first", b"")
    producer.flush()
    while True:
        try:
            consumer.commit(offsets=[TopicPartition("first", 0, 1)], asynchronous=False)
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            consumer.close()
            return


@pytest.fixture(scope="module")
def beside(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    with running(kafka, tmp_path_factory.mktemp("console") / "log") as console:
        yield console


def test_every_page_shows_what_kafka_holds(beside: ConsoleProcess, kafka: str) -> None:
    beside.send("/topics/create", {"name": "orders", "partitions": "3", "option.retention.ms": "86400000"})
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2", "enable.idempotence": True})
    for number in range(30):
        producer.produce("orders", json.dumps({"number": number}), f"key-{number}")
    producer.flush()
    beside.post("/groups/billing/offsets", {"lines": "orders:0:1"})
    beside.post(
        "/access/rules", {"resource": "topic", "name": "orders", "principal": "alice", "operation": "read"}
    )
    beside.post("/access/users/set", {"user": "alice", "password": "secret"})
    beside.post("/access/quotas", {"user": "alice", "limit": "producer_byte_rate", "value": 1000})
    for path in (
        "", "/topics", "/topics/orders", "/topics/orders/options", "/topics/orders/changes",
        "/topics/orders/records", "/topics/orders/records/0/0", "/topics/orders/produce",
        "/topics/__consumer_offsets/records", "/groups", "/groups/billing", "/groups/billing/reset", "/brokers",
        "/brokers/1", "/brokers/reassignments", "/bin", "/access", "/access?name=orders", "/access/users",
    ):  # fmt: skip
        beside.page(path)
    assert beside.data("/topics/orders")["records"] == 30
    assert beside.data("/bin")["has_bin"] is False
    assert "Apache Kafka has no bin" in beside.page("/topics/orders/changes")
    assert beside.data("/topics/orders/records/0/0")["batch"]["producer_id"] is not None
    records = beside.data("/topics/orders/records", key="key-7")["records"]
    assert [r["value"]["document"] for r in records] == [{"number": 7}]
    shown = beside.post("/groups/billing/reset", {"to": "beginning"})
    beside.send("/groups/billing/offsets", {"lines": shown["lines"], "was": shown["was"]})
    assert beside.data("/groups/billing")["partitions"][0]["committed"] == 0
    who = {w["principal"]: w["is_allowed"] for w in beside.data("/access", name="orders")["asked"]["who"]}
    assert who["User:alice"] is True
    beside.send("/topics/orders/empty", {"confirm": "orders"})
    beside.send("/topics/orders/delete", {"confirm": "orders"})
    assert "orders" not in [row["name"] for row in beside.data("/topics")["topics"]]
