"""Several `barnabas start` over one ZooKeeper, as three `server.properties` describe them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from confluent_kafka.admin import AdminClient, TopicMetadata

from tests.support.leftovers import shared
from tests.support.process import BrokerProcess, free_port
from tests.support.zookeeper import Ensemble, ZooKeeperServer

T = TypeVar("T")
DEADLINE_S = 120


def until(look: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
    """What `look` returns as soon as that is true. An error of it counts as false; the last one is shown."""
    end = time.monotonic() + deadline_s
    last: object = None
    while time.monotonic() < end:
        try:
            outcome = look()
        except Exception as error:
            last = error
        else:
            if outcome:
                return outcome
            last = outcome
        time.sleep(0.1)
    raise AssertionError(f"not within {deadline_s:g} s: {what}; last: {last!r}")


class Cluster:
    """Brokers 1 to n. `start`, then anything to any of them; `close` ends them all."""

    def __init__(
        self,
        folder: Path,
        zookeeper: ZooKeeperServer | Ensemble,
        brokers: int = 3,
        *,
        chroot: str = "/cluster",
        options: dict[str, str] | None = None,
        racks: dict[int, str] | None = None,
        security_protocol: str = "PLAINTEXT",
        client: dict[str, str] | None = None,
        places: dict[int, tuple[str, list[str]]] | None = None,
    ) -> None:
        """client: what clients of the cluster need besides its addresses. places: the address of each broker, and the words
        before its command that start it there.
        """
        self.folder = folder
        self.client = client or {}
        self.brokers: dict[int, BrokerProcess] = {}
        for broker_id in range(1, brokers + 1):
            port = free_port()
            host, prefix = (places or {}).get(broker_id, ("127.0.0.1", []))
            texts = {
                "broker.id": str(broker_id),
                "zookeeper.connect": f"{zookeeper.address}{chroot}",
                "zookeeper.session.timeout.ms": "4000",
                "replica.lag.time.max.ms": "3000",
                "offsets.topic.num.partitions": "5",
                "offsets.topic.replication.factor": str(min(brokers, 3)),
                "transaction.state.log.num.partitions": "5",
                "transaction.state.log.replication.factor": str(min(brokers, 3)),
                "transaction.state.log.min.isr": "1",
                "share.coordinator.state.topic.num.partitions": "5",
                "share.coordinator.state.topic.replication.factor": str(min(brokers, 3)),
                "listeners": f"{security_protocol}://{host}:{port}",
                "group.initial.rebalance.delay.ms": "0",
                **(options or {}),
            }
            if racks:
                texts["broker.rack"] = racks[broker_id]
            self.brokers[broker_id] = BrokerProcess(
                folder / f"b{broker_id}", options=texts, port=port, host=host, prefix=prefix
            )

    def start(self) -> Cluster:
        for broker in self.brokers.values():
            broker.start()
        return self

    def start_again(self, broker: int) -> None:
        """Start a broker that was ended; it belongs to all tests that share the cluster."""
        with shared():
            self.brokers[broker].start()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 10_000, **self.client})

    def topic(self, name: str, admin: AdminClient | None = None) -> TopicMetadata:
        """What the cluster says of a topic."""
        description = (admin or self.admin()).list_topics(name, timeout=10).topics[name]
        assert description.error is None, description.error
        return description

    def leader(self, topic: str, partition: int = 0) -> int:
        return int(self.topic(topic).partitions[partition].leader)

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        return sorted(self.topic(topic).partitions[partition].isrs)

    def until_in_sync(self, topic: str, brokers: list[int]) -> None:
        """Wait until every partition of a topic has these in-sync replicas, and one of them as its leader."""
        admin = self.admin()

        def look() -> bool:
            partitions = self.topic(topic, admin).partitions.values()
            return bool(partitions) and all(
                sorted(partition.isrs) == brokers and partition.leader in brokers for partition in partitions
            )

        until(look, f"in-sync replicas of {topic} are {brokers}")
