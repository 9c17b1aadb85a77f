"""Consumer groups of real clients: sharing, leaving, dying, committing, seeking."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.drivers import Confluent, Message
from tests.support.admin import KEPT, admin, create_topic
from tests.support.process import BrokerProcess

PARTITIONS = 6
STRATEGIES = ("range", "roundrobin", "cooperative-sticky")


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def fill(bootstrap: str, topic: str, count: int) -> None:
    messages = [Message(number % PARTITIONS, None, b"%d" % number) for number in range(count)]
    assert Confluent().produce(bootstrap, topic, messages, codec="none", acks=-1) == count


def until(condition: Callable[[], bool], what: str, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for: {what}"
        time.sleep(0.05)


class Member(threading.Thread):
    """A librdkafka consumer that polls in a thread of its own."""

    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any) -> None:
        super().__init__(daemon=True)
        self.consumer = self.make(bootstrap, group, config)
        self.values: list[bytes] = []
        self.stopping = threading.Event()
        self.owned: set[int] = set()
        self.topics: set[str] = set()
        self.consumer.subscribe([topic])

    def make(self, bootstrap: str, group: str, config: dict[str, Any]) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 5,
                **config,
            }
        )

    def run(self) -> None:
        while not self.stopping.is_set():
            for row in self.consumer.consume(1000, 0.1):
                if row.error() is None:
                    self.values.append(row.value())
            assigned = self.consumer.assignment()
            self.owned = {part.partition for part in assigned}
            self.topics = {part.topic for part in assigned}
        self.consumer.close()

    def leave(self) -> None:
        self.stopping.set()
        self.join(30)
        assert not self.is_alive()


def shares_all(members: list[Member]) -> bool:
    owned = Counter(partition for member in members for partition in member.owned)
    return len(owned) == PARTITIONS and set(owned.values()) == {1} and all(member.owned for member in members)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_three_share_one_leaves_two_go_on(broker: BrokerProcess, strategy: str) -> None:
    topic, group = fresh("shared"), fresh("group")
    create_topic(broker.bootstrap, topic, PARTITIONS)
    members = [
        Member(broker.bootstrap, group, topic, **{"partition.assignment.strategy": strategy})
        for _ in range(3)
    ]
    for member in members:
        member.start()
    try:
        until(lambda: shares_all(members), "three members sharing six partitions")
        fill(broker.bootstrap, topic, 600)
        until(lambda: sum(len(member.values) for member in members) >= 600, "all records read")
        assert Counter(value for member in members for value in member.values) == Counter(
            b"%d" % number for number in range(600)
        )
        members[0].leave()
        until(lambda: shares_all(members[1:]), "two members sharing six partitions")
    finally:
        for member in members:
            if member.is_alive():
                member.leave()


def test_a_killed_member_is_replaced_after_its_session(broker: BrokerProcess) -> None:
    topic, group = fresh("killed"), fresh("group")
    create_topic(broker.bootstrap, topic, PARTITIONS)
    script = textwrap.dedent(f"""
        from confluent_kafka import Consumer
        c = Consumer({{"bootstrap.servers": "{broker.bootstrap}", "group.id": "{group}", "session.timeout.ms": 6000,
                       "heartbeat.interval.ms": 300}})
        c.subscribe(["{topic}"])
        while True:
            c.poll(0.1)
            if c.assignment():
                print("owns", flush=True)
                break
        while True:
            c.poll(0.1)
    """)
    victim = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    assert victim.stdout.readline() == b"owns\n"
    member = Member(broker.bootstrap, group, topic)
    member.start()
    try:
        until(lambda: 0 < len(member.owned) < PARTITIONS, "both members own something")
        victim.kill()
        until(lambda: len(member.owned) == PARTITIONS, "the survivor owns everything")
    finally:
        victim.kill()
        victim.wait()
        member.leave()


def test_commit_leave_and_go_on(broker: BrokerProcess) -> None:
    from confluent_kafka import Consumer

    topic, group = fresh("commit"), fresh("group")
    create_topic(broker.bootstrap, topic, 1)
    Confluent().produce(
        broker.bootstrap, topic, [Message(0, None, b"%d" % n) for n in range(100)], codec="none", acks=-1
    )
    config = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
              "enable.auto.commit": False}  # fmt: skip
    first = Consumer(config)
    first.subscribe([topic])
    rows: list[Any] = []
    while len(rows) < 40:
        rows += first.consume(40 - len(rows), 5)
    first.commit(asynchronous=False)
    first.close()
    second = Consumer(config)
    second.subscribe([topic])
    more: list[Any] = []
    while len(more) < 60:
        more += second.consume(60 - len(more), 5)
    second.close()
    assert [row.value() for row in rows + more] == [b"%d" % n for n in range(100)]


def test_seek_and_offsets_for_times(broker: BrokerProcess) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic = fresh("times")
    create_topic(broker.bootstrap, topic, 1, KEPT)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    base_ms = 1_600_000_000_000
    for number in range(50):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=base_ms + number * 1000)
    producer.flush(30)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": fresh("g"), "enable.auto.commit": False}
    )
    offsets = consumer.offsets_for_times([TopicPartition(topic, 0, base_ms + 20_500)], timeout=120)
    assert offsets[0].offset == 21
    past_end = consumer.offsets_for_times([TopicPartition(topic, 0, base_ms + 10**9)], timeout=120)
    assert past_end[0].offset == -1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=120) == (0, 50)
    consumer.assign([TopicPartition(topic, 0, 30)])
    assert consumer.poll(10).value() == b"30"
    consumer.seek(TopicPartition(topic, 0, 5))
    assert consumer.poll(10).value() == b"5"
    consumer.close()


def test_static_member_returns_without_a_rebalance(broker: BrokerProcess) -> None:
    topic, group = fresh("static"), fresh("group")
    create_topic(broker.bootstrap, topic, PARTITIONS)

    def member(name: str) -> Member:
        return Member(
            broker.bootstrap, group, topic, **{"group.instance.id": name, "session.timeout.ms": 20000}
        )

    first, second = member("one"), member("two")
    first.start()
    second.start()
    try:
        until(lambda: shares_all([first, second]), "two static members share")
        owned_before = set(first.owned)
        second_owned = set(second.owned)
        second.leave()
        time.sleep(0.5)
        assert first.owned == owned_before
        second = member("two")
        second.start()
        until(lambda: second.owned == second_owned, "the returned member owns what it had")
        assert first.owned == owned_before
    finally:
        for row in (first, second):
            if row.is_alive():
                row.leave()


def test_groups_are_listed_described_and_deleted(broker: BrokerProcess) -> None:
    topic, group = fresh("described"), fresh("group")
    create_topic(broker.bootstrap, topic, PARTITIONS)
    member = Member(broker.bootstrap, group, topic)
    member.start()
    client = admin(broker.bootstrap)
    try:
        until(lambda: len(member.owned) == PARTITIONS, "the member owns everything")
        assert group in {row.group_id for row in client.list_consumer_groups().result(10).valid}
        described = client.describe_consumer_groups([group])[group].result(10)
        assert described.state.name == "STABLE"
        assert len(described.members) == 1
        assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
        with pytest.raises(Exception, match=r"NON_EMPTY_GROUP|not empty"):
            client.delete_consumer_groups([group])[group].result(10)
    finally:
        member.leave()
    client.delete_consumer_groups([group])[group].result(10)
    assert group not in {row.group_id for row in client.list_consumer_groups().result(10).valid}


def test_kafka_python_and_aiokafka_groups(broker: BrokerProcess) -> None:
    import asyncio

    from aiokafka import AIOKafkaConsumer
    from kafka import KafkaConsumer

    topic = fresh("pure")
    create_topic(broker.bootstrap, topic, PARTITIONS)
    fill(broker.bootstrap, topic, 300)
    group = fresh("kafka-python")
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    values: list[bytes] = []
    deadline = time.monotonic() + 120
    while len(values) < 300 and time.monotonic() < deadline:
        values += [row.value for rows in consumer.poll(500).values() for row in rows]
    consumer.commit()
    consumer.close()
    assert sorted(values, key=int) == [b"%d" % n for n in range(300)]

    async def read() -> list[bytes]:
        other = AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=fresh("aiokafka"),
            auto_offset_reset="earliest",
        )
        await other.start()
        try:
            values_read: list[bytes] = []
            end = time.monotonic() + 120
            while len(values_read) < 300 and time.monotonic() < end:
                batches = await other.getmany(timeout_ms=500)
                values_read += [row.value for rows in batches.values() for row in rows]
            return values_read
        finally:
            await other.stop()

    assert sorted(asyncio.run(read()), key=int) == [b"%d" % n for n in range(300)]
