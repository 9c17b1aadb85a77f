"""A promotion that meets the death of a broker or other leaders: it is finished or has not begun, and nothing written since
is lost."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.admin import Admin
from barnabas.client.errors import ClientError
from barnabas.cores.links import LinkSpec
from barnabas.testing import Broker
from tests.support.cluster import Cluster, until
from tests.support.process import BrokerProcess
from tests.support.zookeeper import ZooKeeperServer

TOPICS = [f"topic-{number}" for number in range(8)]


def open_transaction(bootstrap: str, topic: str) -> Producer:
    """A committed record, and one in a transaction that never ends."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"pays-{topic}",
            "transaction.timeout.ms": 800_000,  # the source does not end it either
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    for value in ("kept", "open"):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(60)
        if value == "kept":
            producer.commit_transaction(60)
    return producer


def committed(bootstrap: str, topic: str) -> list[bytes]:
    """What a consumer of committed records gets up to the end that it sees."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "checks", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            break
        values.append(message.value())
    consumer.close()
    return values


def written(bootstrap: str, topic: str) -> bool:
    """Whether a record could be written there, with acks=all."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    errors: list[object] = []
    producer.produce(topic, "here", partition=0, on_delivery=lambda error, _: errors.append(error))
    return producer.flush(60) == 0 and errors == [None]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(6))
def test_a_promotion_is_finished_or_has_not_begun_when_the_broker_is_killed(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    target = BrokerProcess(tmp_path / "target")
    with Broker() as source:
        clients = AdminClient({"bootstrap.servers": source.bootstrap})
        new = [NewTopic(name, 1, 1, config={"retention.ms": "-1"}) for name in TOPICS]
        for future in clients.create_topics(new).values():
            future.result(60)
        producers = [open_transaction(source.bootstrap, name) for name in TOPICS]
        target.start()
        try:
            spec = LinkSpec(
                "east", {"bootstrap.servers": source.bootstrap}, ".*", interval_ms=100, takes_over=True
            )
            with Admin(target.bootstrap) as admin:
                admin.links.create("east", spec.texts())

                def is_copied() -> bool:
                    rows = admin.links.describe()[0].partitions
                    return len(rows) == len(TOPICS) and all(row.log_end == 3 for row in rows)

                until(is_copied, "the copies")

            def promote() -> None:
                try:
                    with Admin(target.bootstrap) as admin:
                        admin.links.promote("east", without_source=True)
                except ClientError:
                    pass  # the broker is killed meanwhile

            thread = threading.Thread(target=promote)
            thread.start()
            time.sleep(chance.random() * 0.6)
            target.kill()
            target.start()
            thread.join(120)
            with Admin(target.bootstrap) as admin:
                link = until(lambda: admin.links.describe()[0], "the link")
                if link.state == "promoted":
                    until(lambda: not admin.links.describe()[0].topics, "all topics to be let go")
                else:
                    assert sorted(link.topics) == sorted(TOPICS)
                    assert not written(target.bootstrap, TOPICS[0])
                    admin.links.promote("east", without_source=True)
                for name in TOPICS:
                    assert written(target.bootstrap, name)
                    assert committed(target.bootstrap, name) == [b"kept", b"here"]
        finally:
            target.kill()
        del producers


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(3))
def test_a_promotion_goes_on_when_leaders_change_meanwhile(
    tmp_path: Path, own_zookeeper: ZooKeeperServer, seed: int
) -> None:
    chance = random.Random(seed)
    cluster = Cluster(tmp_path, own_zookeeper, options={"min.insync.replicas": "1"})
    with Broker() as source:
        clients = AdminClient({"bootstrap.servers": source.bootstrap})
        new = [NewTopic(name, 1, 1, config={"retention.ms": "-1"}) for name in TOPICS]
        for future in clients.create_topics(new).values():
            future.result(60)
        producers = [open_transaction(source.bootstrap, name) for name in TOPICS]
        cluster.start()
        try:
            spec = LinkSpec(
                "east", {"bootstrap.servers": source.bootstrap}, ".*", interval_ms=100, replicas=3
            )
            with Admin(cluster.bootstrap) as admin:
                admin.links.create("east", spec.texts())

                def is_copied() -> bool:
                    rows = admin.links.describe()[0].partitions
                    return len(rows) == len(TOPICS) and all(row.log_end == 3 for row in rows)

                until(is_copied, "the copies")
            for name in TOPICS:
                cluster.until_in_sync(name, [1, 2, 3])

            def promote() -> None:
                try:
                    with Admin(cluster.bootstrap) as admin:
                        admin.links.promote("east", without_source=True)
                except ClientError:
                    pass  # it was decided or not; what follows shows which

            thread = threading.Thread(target=promote)
            thread.start()
            time.sleep(chance.random() * 0.6)  # when the leader goes, not what is waited for
            victim = cluster.leader(TOPICS[0])
            cluster.brokers[victim].kill()
            thread.join(120)

            def is_promoted() -> bool:
                with Admin(cluster.bootstrap) as admin:
                    link = admin.links.describe()[0]
                    if link.state != "promoted":
                        admin.links.promote("east", without_source=True)
                    return not link.topics

            until(is_promoted, "all topics to be let go")
            cluster.start_again(victim)
            for name in TOPICS:
                cluster.until_in_sync(name, [1, 2, 3])
                assert written(cluster.bootstrap, name)
                assert committed(cluster.bootstrap, name) == [b"kept", b"here"]
        finally:
            cluster.close()
        del producers
