"""Links between clusters of several brokers: a copied partition is fetched by its leader, and then by the next leader."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from barnabas.admin import Admin, Link
from barnabas.cores.links import LinkSpec
from tests.support.cluster import Cluster, until
from tests.support.zookeeper import ZooKeeperServer

PARTITIONS = 6


def send(bootstrap: str, numbers: range) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
    )
    failed: list[object] = []
    for number in numbers:
        producer.produce(
            "moves", str(number), partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(120) == 0
    assert failed == []


def read(bootstrap: str, count: int) -> list[tuple[int, int, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "checks", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition("moves", number, 0) for number in range(PARTITIONS)])
    rows: list[tuple[int, int, bytes]] = []
    while len(rows) < count:
        for record in consumer.consume(500, 1.0):
            if record.error() is None:
                rows.append((record.partition(), record.offset(), record.value()))
    consumer.close()
    return sorted(rows)


def leads_elsewhere(cluster: Cluster, broker: int) -> bool:
    return cluster.leader("moves") not in (broker, -1)


def caught_up(admin: Admin, ends: int) -> Link:
    """The link once all partitions are in sync and end at these offsets in all."""

    def look() -> Link | None:
        link = admin.links.describe()[0]
        rows = link.partitions
        good = len(rows) == PARTITIONS and all(row.state == "in sync" for row in rows)
        return link if good and sum(row.log_end for row in rows) == ends else None

    found = until(look, f"{ends} offsets copied")
    assert found is not None
    return found


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_copies_go_on_when_brokers_of_either_side_are_killed(
    tmp_path: Path, zookeeper_server: ZooKeeperServer
) -> None:
    for side in ("source", "target"):
        (tmp_path / side).mkdir()
    source = Cluster(tmp_path / "source", zookeeper_server, brokers=2, chroot="/links-source")
    target = Cluster(tmp_path / "target", zookeeper_server, brokers=3, chroot="/links-target")
    try:
        source.start()
        target.start()
        clients = source.admin()
        clients.create_topics([NewTopic("moves", PARTITIONS, 2, config={"retention.ms": "-1"})])[
            "moves"
        ].result(60)
        send(source.bootstrap, range(600))
        spec = LinkSpec("all", {"bootstrap.servers": source.bootstrap}, "moves", interval_ms=200, replicas=3)
        with Admin(target.bootstrap) as admin:
            admin.links.create("all", spec.texts())
            caught_up(admin, 600)
            leaders = {target.leader("moves", number) for number in range(PARTITIONS)}
            assert len(leaders) == 3

            victim = target.leader("moves", 0)
            target.brokers[victim].kill()
            send(source.bootstrap, range(600, 1200))
            caught_up(admin, 1200)

            lost = source.leader("moves", 0)
            source.brokers[lost].kill()
            until(lambda: source.leader("moves", 0) not in (lost, -1), "another leader in the source")
            send(source.bootstrap, range(1200, 1800))
            link = caught_up(admin, 1800)
            assert all(row.dropped == row.missed == 0 for row in link.partitions)
            # Leaders change epochs in the source; the copies follow.
            assert all(
                row.leader_epoch >= row.source_epoch > 0 for row in link.partitions if row.partition == 0
            )

            target.start_again(victim)
            target.until_in_sync("moves", [1, 2, 3])
            assert read(target.bootstrap, 1800) == read(source.bootstrap, 1800)
            admin.links.promote("all")
        send(target.bootstrap, range(1800, 2400))
        assert len(read(target.bootstrap, 2400)) == 2400
        for broker in (1, 2, 3):  # each in turn leads alone what the others have copied
            target.brokers[broker].kill()
            until(partial(leads_elsewhere, target, broker), "another leader")
            assert len(read(target.bootstrap, 2400)) == 2400
            target.start_again(broker)
            target.until_in_sync("moves", [1, 2, 3])
    finally:
        source.close()
        target.close()
