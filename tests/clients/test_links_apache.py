"""Apache Kafka as the source of a link: a present one, and 0.10.2, which has neither batches nor leader epochs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.admin import Admin
from barnabas.cli.main import run as barnabas
from barnabas.cores.links import LinkSpec
from barnabas.testing import Broker
from tests.clients import foreign
from tests.support.apache_kafka import COMMON, JAVA, present_kafka, running
from tests.support.cluster import until
from tests.support.process import free_port
from tests.support.zookeeper import ZooKeeperServer

OLD = "broker.id=1\nzookeeper.connect={zookeeper}\n"

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


@pytest.fixture
def present(tmp_path: Path) -> Iterator[str]:
    with present_kafka(tmp_path) as where:
        yield where


@pytest.fixture
def old(tmp_path: Path, own_zookeeper: ZooKeeperServer) -> Iterator[str]:
    pom = Path(__file__).parent / "java" / "kafka-0.10" / "pom.xml"
    jars = foreign.made(
        f"kafka-0.10-{foreign.fingerprint(pom.parent, 'pom.xml')}",
        lambda folder: foreign.maven(pom, folder, "Kafka 0.10's server"),
    )
    port = free_port()
    config = tmp_path / "kafka.properties"
    text = COMMON.format(listeners=f"PLAINTEXT://127.0.0.1:{port}", folder=tmp_path)
    config.write_text(text + OLD.format(zookeeper=own_zookeeper.address))
    with running([foreign.need("java"), *JAVA, "-cp", f"{jars}/*"], config, port) as where:
        yield where


def make(bootstrap: str, topics: dict[str, dict[str, str]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for name, config in topics.items():
        until(partial(made, admin, name, config), f"the topic {name}")


def made(admin: AdminClient, name: str, config: dict[str, str]) -> bool:
    if name not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    return True


def fill(bootstrap: str, codecs: tuple[str, ...]) -> None:
    for codec in codecs:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50, "log_level": 0}
        )
        for number in range(300):
            producer.produce("packed", f"{codec} {number} " * 3, key=str(number), partition=0)
        assert producer.flush(60) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for turn in range(5):  # each in a segment of its own, so that the cleaner may remove what is old
        for number in range(100):
            producer.produce(
                "compacted", f"{turn}.{number}", key=str(number % 10 if turn < 4 else number), partition=0
            )
        assert producer.flush(60) == 0
        time.sleep(1.1)
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})
    group.commit(offsets=[TopicPartition("packed", 0, 77)], asynchronous=False)
    group.close()


def read(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """Everything that a consumer gets up to the end of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checks",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    records_read: list[tuple[Any, ...]] = []
    while True:
        for record in consumer.consume(500, 1.0):
            if record.error() is not None:
                consumer.close()
                return records_read
            records_read.append((record.offset(), record.timestamp(), record.key(), record.value()))


def copied(source: str, target: Broker, topics: list[str]) -> None:
    """Copies the topics by a link, and compares what clients see."""
    spec = LinkSpec("apache", {"bootstrap.servers": source}, ".*", groups="readers", interval_ms=300)
    with Admin(target.bootstrap) as admin:
        admin.links.create("apache", spec.texts())

        def in_sync() -> bool:
            rows = admin.links.describe()[0].partitions
            return len(rows) == len(topics) and all(row.state == "in sync" for row in rows)

        until(in_sync, "the link in sync")

        def committed() -> list[int]:
            return [row.offset for row in admin.groups.offsets(["readers"]).done.get("readers", {}).values()]

        until(lambda: committed() == [77], "the group's offset")
    assert barnabas(["mirror", "verify", "apache", "-b", target.bootstrap]) == 0
    for topic in topics:
        assert read(target.bootstrap, topic) == read(source, topic)


COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
KEPT = {"retention.ms": "-1"}


def test_a_present_kafka_with_transactions_and_compaction(present: str) -> None:
    make(present, {"packed": KEPT, "compacted": COMPACTED, "paid": KEPT})
    fill(present, ("none", "gzip", "snappy", "lz4", "zstd"))
    producer = Producer({"bootstrap.servers": present, "transactional.id": "pays", "log_level": 0})
    until(lambda: producer.init_transactions(30) is None, "a transactional id")
    for number in range(6):
        producer.begin_transaction()
        producer.produce("paid", str(number), partition=0)
        producer.flush(30)
        if number % 3 == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    with Broker() as target:
        copied(present, target, ["packed", "compacted", "paid"])
        assert [row[3] for row in read(target.bootstrap, "paid")] == [b"0", b"2", b"3", b"5"]


def test_kafka_0_10_with_messages_of_its_format(old: str) -> None:
    make(old, {"packed": KEPT, "compacted": COMPACTED})
    fill(old, ("none", "gzip", "snappy", "lz4"))
    with Broker() as target:
        copied(old, target, ["packed", "compacted"])
