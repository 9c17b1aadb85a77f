"""Share groups over three brokers: partitions, their states and the group itself lie on different ones, and move.

One cluster for the whole module: each test leaves three live brokers behind, all in sync.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import NewTopic

from barnabas.records.partitioner import partition_for_name
from tests.clients import foreign
from tests.support.admin import set_group_option
from tests.support.cluster import Cluster, until
from tests.support.zookeeper import ZooKeeperServer

ALL = [1, 2, 3]
STATES = "__share_group_state"


@pytest.fixture(scope="module")
def cluster(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    brokers = Cluster(tmp_path_factory.mktemp("shares"), zookeeper_server, chroot="/shares")
    try:
        yield brokers.start()
    finally:
        brokers.close()


class JavaWorker:
    """Java's KafkaShareConsumer in a process of its own, which accepts everything (tests/clients/java/Shares.java)."""

    def __init__(self, cluster: Cluster, topic: str, group: str, count: int) -> None:
        command = [*foreign.java_program(), cluster.bootstrap, "share", "work", topic, group, str(count)]
        self.done = 0
        self.found: dict[str, Any] = {}
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/")
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            if words[0] == "done":
                self.done = int(words[1])
            elif line.startswith("{"):
                self.found = json.loads(line)

    def until_done(self, count: int) -> None:
        until(lambda: self.done >= count, f"{count} records are accepted")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def result(self) -> dict[str, Any]:
        """What it reports at its end."""
        self._process.wait(120)
        self._thread.join()
        return self.found


def produce(cluster: Cluster, topic: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.size": 1000, "acks": "all"})
    for number in range(first, last):
        producer.produce(topic, number.to_bytes(4, "big"), partition=number % 3)
    assert producer.flush(60) == 0


def coordinator(cluster: Cluster, topic: str, partition: int, group: str) -> int:
    """The broker that keeps what a group has settled of a partition."""
    admin = cluster.admin()  # it must outlive its futures
    description = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    states = cluster.topic(STATES).partitions
    return int(states[partition_for_name(f"{group}:{description.topic_id}:{partition}", len(states))].leader)


@pytest.mark.soak
@pytest.mark.java
def test_nothing_is_lost_when_a_leader_and_a_coordinator_are_killed(cluster: Cluster) -> None:
    """Every broker leads a partition, and the states lie on other brokers than their partitions. What was accepted never
    comes again; what was not comes to its end."""
    per_step, steps = 600, 4
    count = per_step * steps
    admin = cluster.admin()
    replicas = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    topic = NewTopic("jobs", 3, replica_assignment=replicas, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])["jobs"].result(60)
    cluster.until_in_sync("jobs", ALL)
    set_group_option(cluster.bootstrap, "workers", "share.auto.offset.reset", "earliest")
    worker = JavaWorker(cluster, "jobs", "workers", count)
    try:
        for step in range(0, steps, 2):
            produce(cluster, "jobs", step * per_step, (step + 1) * per_step)
            worker.until_done(step * per_step + 1)
            cluster.until_in_sync(STATES, ALL)
            victim = coordinator(cluster, "jobs", 0, "workers") if step else cluster.leader("jobs", 0)
            cluster.brokers[victim].kill()
            produce(cluster, "jobs", (step + 1) * per_step, (step + 2) * per_step)
            worker.until_done((step + 2) * per_step)
            cluster.start_again(victim)
            cluster.until_in_sync("jobs", ALL)
        report = worker.result()
    finally:
        worker.close()
    assert report.get("ok") is True, report
    assert (report["accepted"] + report["unsure"], report["again"]) == (count, 0), report
