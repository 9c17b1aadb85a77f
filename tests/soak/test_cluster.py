"""Rounds of faults over three brokers and a ZooKeeper: nothing acknowledged is lost, nothing is twice, each one is consumed.

Real processes and librdkafka's clients. Each round chooses what to break from its seed: brokers are killed, stopped for a
while (SIGSTOP) or restarted, among them the controller; ZooKeeper is killed or stopped; replicas move to other brokers.
When all is well again, everything that was written since the last round is read and compared.

    pytest tests/soak/test_cluster.py -m soak --fault-rounds 50 --seed 7 -s
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from kafka import TopicPartition as KafkaPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as KafkaPythonError

from tests.support.cluster import Cluster, until
from tests.support.zookeeper import ZooKeeperServer

TOPIC = "soak"
PARTITIONS = 6
OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 5
BROKERS = (1, 2, 3)
QUIET_S = 120


class Writer(threading.Thread):
    """An idempotent producer with acks=all. acknowledged: (partition, offset) -> value."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.twice: list[str] = []
        self.errors: list[KafkaError] = []
        self.gaps: list[float] = []
        self.ends = threading.Event()
        self._name = name
        self._last_s = time.monotonic()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 5,
                "message.timeout.ms": 300_000, "socket.timeout.ms": 10_000,
            }
        )  # fmt: skip

    def run(self) -> None:
        number = 0
        while not self.ends.is_set():
            try:
                self._producer.produce(TOPIC, f"{self._name}-{number}".encode(), on_delivery=self._delivered)
                number += 1
            except BufferError:
                pass
            self._producer.poll(0)
            time.sleep(0.002)
        self._producer.flush(300)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        now_s = time.monotonic()
        self.gaps.append(now_s - self._last_s)
        self._last_s = now_s
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            assert error is not None
            self.errors.append(error)
            return
        value = message.value() or b""
        before = self.acknowledged.setdefault((partition, offset), value)
        if before != value:
            self.twice.append(f"{before!r} and {value!r} were both acknowledged at {partition}:{offset}")


class Reader(threading.Thread):
    """A member of a group; what it has seen, by value."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.seen: Counter[bytes] = Counter()
        self.ends = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap, "group.id": "soak", "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000, "auto.commit.interval.ms": 500,
            }
        )  # fmt: skip

    def run(self) -> None:
        self._consumer.subscribe([TOPIC])
        while not self.ends.is_set():
            for message in self._consumer.consume(500, 0.5):
                if message.error() is None:
                    self.seen[message.value() or b""] += 1
        self._consumer.close()


class Rounds:
    """The faults."""

    def __init__(self, cluster: Cluster, zookeeper: ZooKeeperServer, chance: random.Random) -> None:
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.chance = chance
        self.faults: dict[str, Callable[[], str]] = {
            "kill": self.kill,
            "kill the controller": self.kill_controller,
            "kill two": self.kill_two,
            "kill all": self.kill_all,
            "stop for a while": self.freeze,
            "restart": self.restart,
            "rolling restart": self.roll,
            "kill ZooKeeper": self.kill_zookeeper,
            "stop ZooKeeper for a while": self.freeze_zookeeper,
            "move": self.move,
            "move and kill": self.move_and_kill,
        }

    def plan(self, rounds: int) -> list[str]:
        """Which faults there will be: each kind as often as any other, in an order of chance."""
        kinds = list(self.faults)
        names: list[str] = []
        while len(names) < rounds:
            names += self.chance.sample(kinds, len(kinds))
        return names[:rounds]

    def _pause(self, longest_s: float) -> float:
        seconds = self.chance.random() * longest_s
        time.sleep(seconds)
        return seconds

    def kill(self, broker: int | None = None) -> str:
        broker = broker or self.chance.choice(BROKERS)
        self.cluster.brokers[broker].kill()
        away_s = self._pause(8)
        self.cluster.brokers[broker].start()
        return f"broker {broker}, back after {away_s:.1f} s"

    def controller(self) -> int:
        admin = self.cluster.admin()
        controller = 0

        def look() -> bool:
            nonlocal controller
            controller = int(admin.list_topics(timeout=10).controller_id)
            return controller in BROKERS

        until(look, "there is a controller")
        return controller

    def kill_controller(self) -> str:
        return self.kill(self.controller())

    def kill_two(self) -> str:
        two = self.chance.sample(BROKERS, 2)
        for broker in two:
            self.cluster.brokers[broker].kill()
            self._pause(2)
        self._pause(4)
        for broker in self.chance.sample(two, 2):
            self.cluster.brokers[broker].start()
        return f"brokers {two}"

    def kill_all(self) -> str:
        order = self.chance.sample(BROKERS, 3)
        for broker in order:
            self.cluster.brokers[broker].kill()
            self._pause(1)
        for broker in self.chance.sample(BROKERS, 3):
            self.cluster.brokers[broker].start()
        return f"in the order {order}"

    def freeze(self) -> str:
        broker = self.chance.choice([*BROKERS, self.controller()])
        os.kill(self.cluster.brokers[broker].pid, signal.SIGSTOP)
        for_s = self._pause(12)
        os.kill(self.cluster.brokers[broker].pid, signal.SIGCONT)
        return f"broker {broker} for {for_s:.1f} s"

    def restart(self) -> str:
        broker = self.chance.choice(BROKERS)
        self.cluster.brokers[broker].stop()
        self.cluster.brokers[broker].start()
        return f"broker {broker}"

    def roll(self) -> str:
        for broker in BROKERS:
            self.cluster.brokers[broker].stop()
            self.cluster.brokers[broker].start()
        return "all"

    def kill_zookeeper(self) -> str:
        self.zookeeper.kill()
        away_s = self._pause(8)
        self.zookeeper.start()
        return f"back after {away_s:.1f} s"

    def freeze_zookeeper(self) -> str:
        os.kill(self.zookeeper.pid, signal.SIGSTOP)
        for_s = self._pause(10)
        os.kill(self.zookeeper.pid, signal.SIGCONT)
        return f"for {for_s:.1f} s"

    def move(self) -> str:
        """Partitions get other replicas in another order, two or three of them; what is refused stays where it is."""
        topic, partitions = self.chance.choice(
            [(TOPIC, PARTITIONS), (TOPIC, PARTITIONS), (OFFSETS, OFFSETS_PARTITIONS)]
        )
        wanted = {
            KafkaPartition(topic, index): self.chance.sample(BROKERS, self.chance.choice([2, 3, 3]))
            for index in self.chance.sample(range(partitions), 3)
        }
        try:
            admin = KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap.split(","))
            try:
                refused = admin.alter_partition_reassignments(wanted)
            finally:
                admin.close()
        except KafkaPythonError as error:
            return f"{wanted}: {error!r}"
        return f"{topic} { {at.partition: to for at, to in wanted.items()} }: {[r for r in refused.values() if r]}"

    def move_and_kill(self) -> str:
        moved = self.move()
        return f"{moved}; {self.kill()}"


def until_well(cluster: Cluster) -> None:
    """All replicas in sync, at the brokers that are to have them, each partition led by one of them."""
    admin = cluster.admin()

    def look() -> object:
        topics = admin.list_topics(timeout=10).topics
        if any(topic.error is not None for topic in topics.values()):
            return False
        return all(
            partition.leader in partition.isrs and sorted(partition.isrs) == sorted(partition.replicas)
            for topic in topics.values()
            for partition in topic.partitions.values()
        )

    until(look, "every partition has all its replicas in sync", QUIET_S)


def read_on(cluster: Cluster, positions: dict[int, int]) -> dict[tuple[int, int], bytes]:
    """Everything from `positions` to the present ends, which the positions are moved to."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    records: dict[tuple[int, int], bytes] = {}
    try:
        for index, begin in positions.items():
            _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, index), timeout=60)
            if end < begin:
                raise AssertionError(f"{TOPIC}-{index} ends at {end}, and had records up to {begin}")
            deadline_s = time.monotonic() + QUIET_S
            consumer.assign([TopicPartition(TOPIC, index, begin)])
            place = begin
            while place < end:
                assert time.monotonic() < deadline_s, f"{TOPIC}-{index} is read up to {place} of {end}"
                for message in consumer.consume(1_000, 0.2):
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    offset = message.offset()
                    assert offset is not None
                    records[index, offset] = message.value() or b""
                    place = offset + 1
            positions[index] = max(place, begin)
    finally:
        consumer.close()
    return records


@pytest.fixture
def cluster(own_zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Cluster]:
    brokers = Cluster(tmp_path, own_zookeeper, chroot="/soak")
    try:
        yield brokers.start()
    finally:
        brokers.close()


@pytest.mark.soak
def test_nothing_acknowledged_is_lost(
    cluster: Cluster, own_zookeeper: ZooKeeperServer, request: pytest.FixtureRequest
) -> None:
    rounds: int = request.config.getoption("--fault-rounds")
    seed = request.config.getoption("--seed") or random.SystemRandom().randrange(1 << 30)
    chance = random.Random(seed)
    print(f"\nseed {seed}, folder {cluster.folder}", flush=True)
    create_topic(cluster, TOPIC)
    bring_faults(cluster, Rounds(cluster, own_zookeeper, chance), rounds)


def create_topic(cluster: Cluster, name: str) -> None:
    """Three replicas, two of which must be in sync."""
    options = {"min.insync.replicas": "2", "segment.bytes": "200000", "retention.ms": "-1"}
    admin = cluster.admin()  # it must outlive its futures
    admin.create_topics([NewTopic(name, PARTITIONS, 3, config=options)])[name].result(60)
    until_well(cluster)


def bring_faults(cluster: Cluster, faults: Rounds, rounds: int) -> None:
    """Fault after fault under two writers and a reader. What was acknowledged is compared with what is stored after each."""
    writers = [Writer(cluster, name) for name in ("a", "b")]
    reader = Reader(cluster)
    for thread in (*writers, reader):
        thread.start()
    positions = dict.fromkeys(range(PARTITIONS), 0)
    stored: Counter[bytes] = Counter()
    checked: dict[tuple[int, int], bytes] = {}
    table: dict[str, list[tuple[float, float]]] = {}
    for number, name in enumerate(faults.plan(rounds), 1):
        begun_s = time.monotonic()
        for writer in writers:
            writer.gaps.clear()
        what = faults.faults[name]()
        until_well(cluster)
        well_s = time.monotonic() - begun_s
        counts = [len(writer.acknowledged) for writer in writers]
        for writer, count in zip(writers, counts, strict=True):
            until(
                lambda w=writer, c=count: len(w.acknowledged) > c + 20, "records are written again", QUIET_S
            )
        records = read_on(cluster, positions)
        checked |= records
        stored.update(records.values())
        gap_s = max((gap for writer in writers for gap in writer.gaps), default=0.0)
        print(
            f"{number:3} {name} ({what}): well after {well_s:.1f} s, longest wait of a producer {gap_s:.1f} s, "
            f"{len(checked)} records",
            flush=True,
        )
        table.setdefault(name, []).append((gap_s, well_s))
        judge(writers, checked, positions, stored)
    for name, rows in table.items():
        gap_s, well_s = (max(column) for column in zip(*rows, strict=True))
        print(f"| {name} | {len(rows)} | {gap_s:.1f} s | {well_s:.1f} s |", flush=True)
    for thread in writers:
        thread.ends.set()
    for thread in writers:
        thread.join()
    until_well(cluster)
    whole = read_on(cluster, dict.fromkeys(range(PARTITIONS), 0))
    acknowledged = {place: value for writer in writers for place, value in writer.acknowledged.items()}
    missing = {place: value for place, value in acknowledged.items() if whole.get(place) != value}
    assert not missing, f"{len(missing)} lost in the end: {list(missing.items())[:5]}"
    until(lambda: not set(whole.values()) - reader.seen.keys(), "the group has seen every record", QUIET_S)
    reader.ends.set()
    reader.join()


def judge(
    writers: list[Writer],
    checked: dict[tuple[int, int], bytes],
    positions: dict[int, int],
    stored: Counter[bytes],
) -> None:
    for writer in writers:
        assert not writer.errors, writer.errors[:3]
        assert not writer.twice, writer.twice[:3]
        for (index, offset), value in list(writer.acknowledged.items()):
            if offset < positions[index]:
                assert checked.get((index, offset)) == value, (
                    f"{value!r}, acknowledged at {index}:{offset}, is lost: {checked.get((index, offset))!r} is there"
                )
    twice = {value for value, count in stored.items() if count > 1}
    places = sorted((value, place) for place, value in checked.items() if value in twice)
    assert not twice, f"{len(twice)} records are there more than once: {places[:6]}"
