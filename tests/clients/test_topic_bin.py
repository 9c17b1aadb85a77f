"""Deleted topics rest in the bin, and come back with everything: seen by clients that know nothing of it."""

from __future__ import annotations

import json
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from barnabas.admin import Admin, ResourceError
from barnabas.client.errors import ClientError
from barnabas.wire.errors import ErrorCode
from tests.support import preloaded
from tests.support.cluster import Cluster, until
from tests.support.process import BrokerProcess
from tests.support.zookeeper import ZooKeeperServer

HOUR_MS = 3_600_000
BIN = {"barnabas__topic__bin__ms": str(HOUR_MS)}
KEPT = {"retention.ms": "-1"}


def made(
    bootstrap: str, name: str, records: int = 30, partitions: int = 3, replicas: int = 1, **config: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {key.replace("__", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, replicas, config={**KEPT, **named})])[name].result(60)
    sent(bootstrap, name, range(records), partitions)


def sent(bootstrap: str, name: str, numbers: range, partitions: int = 3) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    failed: list[Any] = []
    for number in numbers:
        producer.produce(
            name,
            f"value {number}",
            f"key {number}",
            number % partitions,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failed == []


def values(bootstrap: str, name: str, count: int, partitions: int = 3) -> list[str]:
    """All values of a topic, which has to have so many."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, number, 0) for number in range(partitions)])
    texts: list[str] = []
    while len(texts) < count:
        for record in consumer.consume(count - len(texts), 1.0):
            assert record.error() is None, record.error()
            texts.append(record.value().decode())
    consumer.close()
    return sorted(texts, key=lambda text: int(text.split()[1]))


def delete(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(60)


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics)


def command(bootstrap: str, *words: str, code: int = 0) -> str:
    ran = preloaded.run(
        [sys.executable, "-m", "barnabas", "topic", *words, "-b", bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    return ran.stdout + ran.stderr


def expected(count: int) -> list[str]:
    return [f"value {number}" for number in range(count)]


@pytest.fixture
def binned(own_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return own_broker(**BIN)


def test_a_deleted_topic_comes_back_with_records_options_and_the_groups_offsets(
    binned: BrokerProcess,
) -> None:
    bootstrap = binned.bootstrap
    made(bootstrap, "orders", segment__bytes="200000")
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    group.commit(offsets=[TopicPartition("orders", 1, 7)], asynchronous=False)
    printed = command(bootstrap, "delete", "orders")
    assert "`barnabas topic restore orders` brings it back" in printed
    assert "orders" not in topics(bootstrap)
    with Admin(bootstrap) as admin:
        [deleted] = admin.topic_bin.list()
        assert (deleted.name, deleted.partitions, deleted.until_ms - deleted.deleted_ms) == (
            "orders",
            3,
            HOUR_MS,
        )
        assert deleted.size_bytes > 500
        assert admin.groups.offsets(["billing"])["billing"] == {}  # hidden, and kept
    [row] = json.loads(command(bootstrap, "bin", "--json"))
    assert row["topic"] == "orders"
    assert command(bootstrap, "restore", "orders") == "restored orders\n"
    assert values(bootstrap, "orders", 30) == expected(30)
    assert group.committed([TopicPartition("orders", 1)])[0].offset == 7
    group.close()
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders")
    client = AdminClient({"bootstrap.servers": bootstrap})
    options = client.describe_configs([resource])[resource].result(60)
    assert options["segment.bytes"].value == "200000"
    with Admin(bootstrap) as admin:
        assert admin.topics.describe(["orders"])["orders"].id == deleted.id
        assert admin.topic_bin.list() == []
    sent(bootstrap, "orders", range(30, 60))
    binned.restart()
    assert values(bootstrap, "orders", 60) == expected(60)


def test_a_new_topic_takes_the_name_meanwhile(binned: BrokerProcess) -> None:
    bootstrap = binned.bootstrap
    made(bootstrap, "orders")
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    group.commit(offsets=[TopicPartition("orders", 1, 7)], asynchronous=False)
    delete(bootstrap, "orders")
    made(bootstrap, "orders", records=6, partitions=1)
    # The offsets belonged to the other topic of this name.
    until(lambda: group.committed([TopicPartition("orders", 1)])[0].offset < 0, "the offset is forgotten")
    group.close()
    assert "already exists" in command(bootstrap, "restore", "orders", code=1)
    command(bootstrap, "restore", "orders", "--as", "orders-before")
    assert values(bootstrap, "orders-before", 30) == expected(30)
    assert values(bootstrap, "orders", 6, partitions=1) == expected(6)
    binned.kill()
    binned.start()
    assert values(bootstrap, "orders-before", 30) == expected(30)
    # Two deleted topics of one name are told apart by their ids.
    delete(bootstrap, "orders")
    made(bootstrap, "orders", records=3)
    delete(bootstrap, "orders")
    assert "2 deleted topics had this name" in command(bootstrap, "restore", "orders", code=1)
    newest = json.loads(command(bootstrap, "bin", "--json"))[-1]
    command(bootstrap, "restore", newest["id"])
    assert values(bootstrap, "orders", 3) == expected(3)


def test_a_topic_goes_for_good_when_it_is_purged_or_its_time_is_over(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker(barnabas__topic__bin__ms="0")
    bootstrap = broker.bootstrap
    made(bootstrap, "at-once")
    made(bootstrap, "purged", barnabas__topic__bin__ms=str(HOUR_MS))
    made(bootstrap, "short", barnabas__topic__bin__ms="100")
    for name in ("at-once", "purged", "short"):
        delete(bootstrap, name)
    assert "purged" in command(bootstrap, "bin")
    assert command(bootstrap, "purge", "purged") == "purged purged\n"
    assert "not in the bin" in command(bootstrap, "restore", "at-once", code=1)
    with Admin(bootstrap) as admin:
        until(lambda: admin.topic_bin.list() == [] or None, "the bin is empty")
    until(lambda: list(broker.data_dir.glob("*-stray")) == [] or None, "the logs are removed")


def test_a_full_disk_empties_the_bin(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(**BIN, barnabas__topic__bin__free__bytes__min=str(1 << 60))
    made(broker.bootstrap, "orders")
    delete(broker.bootstrap, "orders")
    until(lambda: list(broker.data_dir.glob("*-stray")) == [] or None, "the logs are removed")
    assert "nearly full" in broker.log()


def held_by(bootstrap: str) -> list[Any]:
    with Admin(bootstrap) as admin:
        return list(admin.topic_bin.list())


@pytest.mark.parametrize("pause_s", [0.004, 0.02])
def test_nothing_is_lost_when_the_broker_is_killed_in_the_middle(
    binned: BrokerProcess, pause_s: float
) -> None:
    bootstrap = binned.bootstrap
    made(bootstrap, "orders", records=300, partitions=30)

    def begin(work: Callable[[Admin], object]) -> None:
        """Begin, and kill the broker after a moment."""

        def attempt() -> None:
            try:
                work(admin)
            except ClientError:
                pass

        with Admin(bootstrap) as admin:
            admin.cluster.describe()  # is connected
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join(pause_s)
            binned.kill()
            binned.start()
            thread.join()

    begin(lambda admin: admin.topics.delete(["orders"]))
    if "orders" in topics(bootstrap):
        delete(bootstrap, "orders")
    [deleted] = held_by(bootstrap)
    begin(lambda admin: admin.topic_bin.restore(deleted.id, "orders"))
    if "orders" not in topics(bootstrap):
        with Admin(bootstrap) as admin:
            admin.topic_bin.restore(deleted.id, "orders")
    assert values(bootstrap, "orders", 300, partitions=30) == expected(300)
    assert held_by(bootstrap) == []
    assert list(binned.data_dir.glob("*-stray")) == []


def test_replicas_come_back_together_even_one_that_was_away(
    zookeeper_server: ZooKeeperServer, tmp_path: Path
) -> None:
    options = {"barnabas.topic.bin.ms": str(HOUR_MS)}
    cluster = Cluster(tmp_path, zookeeper_server, chroot="/topic_bin", options=options)
    try:
        cluster.start()
        made(cluster.bootstrap, "orders", replicas=3)
        cluster.until_in_sync("orders", [1, 2, 3])
        cluster.brokers[3].kill()
        cluster.until_in_sync("orders", [1, 2])
        sent(cluster.bootstrap, "orders", range(30, 60))
        delete(cluster.bootstrap, "orders")
        cluster.brokers[3].start()  # it finds a log whose topic is in the bin
        [deleted] = held_by(cluster.bootstrap)
        until(
            lambda: all(list((tmp_path / f"b{n}").glob("orders-*-stray")) for n in (1, 2, 3)) or None,
            "all brokers have the logs in their bins",
        )
        with Admin(cluster.bootstrap) as admin:
            admin.topic_bin.restore(deleted.id, "orders")
        cluster.until_in_sync("orders", [1, 2, 3])
        assert values(cluster.bootstrap, "orders", 60) == expected(60)
        for broker in (1, 2):
            cluster.brokers[broker].kill()
        cluster.until_in_sync("orders", [3])
        assert values(cluster.brokers[3].bootstrap, "orders", 60) == expected(60)
    finally:
        cluster.close()


def test_restoring_needs_a_topic_that_is_there(binned: BrokerProcess) -> None:
    with Admin(binned.bootstrap) as admin:
        with pytest.raises(ResourceError) as refused:
            admin.topic_bin.restore(uuid.uuid4(), "orders")
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_ID
