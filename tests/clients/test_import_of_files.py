"""`barnabas import` of a data directory that Kafka 4.1.1 has written (tests/data/kafka), and what it refuses. The whole of
it, with the servers themselves, is in test_import.py."""

from __future__ import annotations

import fcntl
import shutil
import tarfile
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas.broker.importing.kraft import read
from barnabas.testing import Broker
from barnabas.wire.uuids import uuid_text
from tests.clients.cli_support import Cli

ARCHIVE = Path(__file__).parents[1] / "data" / "kafka" / "4.1.1-kraft.tar.gz"
OFFLINE = Cli("")


@pytest.fixture
def kafka(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(tmp_path / "kafka", filter="data")
    return tmp_path / "kafka" / "data"


def test_topics_groups_and_metadata_are_there(kafka: Path, tmp_path: Path) -> None:
    report = OFFLINE.json("import", "--from", str(kafka), "--data", str(tmp_path / "new"))
    assert (report["topics"], report["rules"], report["missing"]) == (3, 2, [])
    with Broker({"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                 "super.users": "User:ANONYMOUS"}, data_dir=tmp_path / "new") as broker:  # fmt: skip
        assert rows(broker.bootstrap, "orders", 2) == [f"order {number}" for number in range(10)]
        assert rows(broker.bootstrap, "prices", 1) == [str(number) for number in range(10)]
        asked = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
        (row,) = asked.committed([TopicPartition("orders", 0)], timeout=30)
        asked.close()
        assert (row.offset, row.metadata) == (3, "at three")
        cli = Cli(broker.bootstrap)
        assert b"max.message.bytes=70000" in cli.out("topic", "describe", "orders").replace(b" ", b"")
        quotas = cli.out("quota", "list")
        assert b"1048576" in quotas
        assert b"2048" in quotas
        rules = cli.out("acl", "list")
        assert b"alice" in rules
        assert b"bob" in rules
        assert b"SCRAM-SHA-256" in cli.out("kafka", "configs", "--bootstrap-server", broker.bootstrap,
                                           "--describe", "--entity-type", "users", "--entity-name", "alice")  # fmt: skip


def rows(bootstrap: str, topic: str, partitions: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rows"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    messages = [message for message in consumer.consume(10, 30) if message.error() is None]
    consumer.close()
    return [message.value().decode() for message in sorted(messages, key=lambda message: message.value())]


def test_ids_and_deleted_topics(kafka: Path) -> None:
    metadata = read(kafka / "__cluster_metadata-0")
    assert "gone" not in metadata.topics
    text = (kafka / "orders-0" / "partition.metadata").read_text()
    known = metadata.topics["orders"]
    assert known.topic_id is not None
    assert uuid_text(known.topic_id) in text
    assert known.in_sync == {0: (7,), 1: (7,)}


def test_what_is_refused(kafka: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    empty = tmp_path / "empty"
    empty.mkdir()
    complaint = OFFLINE("import", "--from", str(empty), "--data", str(new), code=1).stderr
    assert b"has no meta.properties" in complaint
    new.mkdir()
    (new / "file").write_text("mine")
    assert b"is not empty" in OFFLINE("import", "--from", str(kafka), "--data", str(new), code=1).stderr
    shutil.rmtree(new)
    with (kafka / ".lock").open("wb") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        assert (
            b"stop Kafka first" in OFFLINE("import", "--from", str(kafka), "--data", str(new), code=1).stderr
        )
    log = kafka / "__cluster_metadata-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    complaint = OFFLINE("import", "--from", str(kafka), "--data", str(new), code=1).stderr
    assert b"is damaged" in complaint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "kafka"]
