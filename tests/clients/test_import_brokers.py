"""`barnabas import` of two brokers of one cluster: each partition is taken from its leader, and one broker has them all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.cli_support import Cli
from tests.clients.test_import import Kafka, Release, digests
from tests.support.cluster import until
from tests.support.process import BrokerProcess
from tests.support.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.java, pytest.mark.soak, pytest.mark.timeout(900)]

OLD = Release("3.9.1", authorizer="kafka.security.authorizer.AclAuthorizer")


def second(kafka: Kafka, broker_id: int) -> None:
    config = kafka.data.parent / "server.properties"
    config.write_text(config.read_text().replace("broker.id=0", f"broker.id={broker_id}"))


@contextlib.contextmanager
def both(first: Kafka, other: Kafka) -> Iterator[AdminClient]:
    with first.running(), other.running():
        admin = AdminClient({"bootstrap.servers": first.bootstrap})
        until(lambda: len(admin.list_topics(timeout=30).brokers) == 2, "two brokers")
        yield admin


def test_two_brokers_become_one(
    tmp_path: Path, own_zookeeper: ZooKeeperServer, own_broker: Callable[..., BrokerProcess]
) -> None:
    first = Kafka(OLD, tmp_path / "first", own_zookeeper.address)
    other = Kafka(OLD, tmp_path / "other", own_zookeeper.address)
    second(other, 5)
    topics = {"spread": 4, "copied": 2}
    with both(first, other) as admin:
        new_topics = [NewTopic("spread", 4, 1), NewTopic("copied", 2, 2)]
        for future in admin.create_topics(new_topics).values():
            future.result(120)
        producer = Producer({"bootstrap.servers": first.bootstrap})
        for number in range(1000):
            producer.produce("spread", str(number), key=str(number))
            producer.produce("copied", str(number), key=str(number))
        assert producer.flush(120) == 0
        before = digests(first.bootstrap, topics, "read_uncommitted")
    where = ["--data", str(tmp_path / "new"), "--zookeeper", f"{own_zookeeper.address}/kafka"]
    half = Cli("").json("import", "--from", str(first.data), "--data", str(tmp_path / "half"), *where[2:])
    assert [name for name in half["missing"] if name.startswith("spread")], (
        "the other broker has some of them"
    )
    report = Cli("").json("import", "--from", str(first.data), "--from", str(other.data), *where)
    assert report["missing"] == []
    broker = own_broker(tmp_path / "new")
    assert digests(broker.bootstrap, topics, "read_uncommitted") == before
