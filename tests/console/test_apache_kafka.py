"""The same pages against Apache Kafka."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.clients import foreign
from tests.clients.test_kafka_tools import CONFIG
from tests.console.conftest import WAIT_S, ConsoleProcess, running
from tests.support.process import free_port

pytestmark = [pytest.mark.soak, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache Kafka itself; where it listens."""
    java, jars, folder = foreign.need("java"), foreign.kafka_jars(), tmp_path_factory.mktemp("kafka")
    port = free_port()
    config = folder / "kafka.properties"
    config.write_text(CONFIG.format(port=port, controller=free_port(), folder=folder))
    command = [java, "-Xmx512m", "-cp", f"{jars}/*"]
    form = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(config)]
    subprocess.run([*command, *form], check=True, capture_output=True, timeout=WAIT_S)
    with (folder / "kafka.log").open("wb") as log:
        process = subprocess.Popen([*command, "kafka.Kafka", str(config)], stdout=log, stderr=log, cwd=folder)
    try:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            assert process.poll() is None, (folder / "kafka.log").read_text()[-2000:]
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.2)
        await_coordinator(f"127.0.0.1:{port}", deadline)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


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
    found = beside.data("/topics/orders/records", key="key-7")["records"]
    assert [r["value"]["document"] for r in found] == [{"number": 7}]
    shown = beside.post("/groups/billing/reset", {"to": "beginning"})
    beside.send("/groups/billing/offsets", {"lines": shown["lines"], "was": shown["was"]})
    assert beside.data("/groups/billing")["partitions"][0]["committed"] == 0
    who = {w["principal"]: w["is_allowed"] for w in beside.data("/access", name="orders")["asked"]["who"]}
    assert who["User:alice"] is True
    beside.send("/topics/orders/empty", {"confirm": "orders"})
    beside.send("/topics/orders/delete", {"confirm": "orders"})
    assert "orders" not in [row["name"] for row in beside.data("/topics")["topics"]]
