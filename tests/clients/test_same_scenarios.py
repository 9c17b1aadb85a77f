"""The scenarios that every client must live through, for each Python client: groups, commits, seeks, times.

Java, Go and JavaScript clients play them in test_java.py, test_go.py and test_node.py.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.drivers import Confluent, Message
from tests.support.admin import KEPT, create_topic
from tests.support.process import BrokerProcess

PARTITIONS = 6
LIBRARIES = ("confluent-kafka", "kafka-python", "aiokafka")
MEMBER = Path(__file__).parent / "members" / "member.py"
BASE_MS = 1_600_000_000_000


class Member:
    """A member process and what it has said so far."""

    def __init__(self, log: Path, library: str, bootstrap: str, group: str, topic: str) -> None:
        command = [sys.executable, "-W", "ignore", str(MEMBER), library, bootstrap, group, topic]
        self._log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.owned: list[int] = []
        self.values: list[str] = []
        self.failed: list[str] = []
        self.left = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.owned = event.get("owns", self.owned)
            self.values += event.get("values", [])
            self.failed += [event["failed"]] if "failed" in event else []
            self.left = self.left or "left" in event

    def __repr__(self) -> str:
        """What a failure shows: state, and the last lines that the client wrote."""
        state = (
            f"owns {self.owned}, committed {len(self.values)}, exit code {self.process.poll()}, {self.failed}"
        )
        return f"<member: {state}\n{self._log.read_text()[-3000:]}>"

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(10)


def wait(condition: Callable[[], bool], what: str, members: list[Member], timeout_s: float = 200) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for: {what}: {members}"
        time.sleep(0.05)


def share(members: list[Member]) -> bool:
    owned = [partition for member in members for partition in member.owned]
    return sorted(owned) == list(range(PARTITIONS)) and all(member.owned for member in members)


@pytest.mark.parametrize("library", LIBRARIES)
def test_three_members_one_leaves_one_is_killed(broker: BrokerProcess, library: str, tmp_path: Path) -> None:
    topic, group = f"three-{uuid.uuid4().hex[:8]}", f"three-{library}-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic, PARTITIONS)
    members = [Member(tmp_path / f"{n}.log", library, broker.bootstrap, group, topic) for n in range(3)]

    def until(condition: Callable[[], bool], what: str) -> None:
        wait(condition, what, members)

    def send(first: int, count: int) -> None:
        messages = [
            Message(number % PARTITIONS, None, b"%d" % number) for number in range(first, first + count)
        ]
        assert Confluent().produce(broker.bootstrap, topic, messages, codec="none", acks=-1) == count

    def read() -> set[str]:
        return {value for member in members for value in member.values}

    try:
        until(lambda: share(members), "three members share six partitions")
        send(0, 600)
        until(lambda: len(read()) == 600, "all records read")
        members[0].process.terminate()
        until(lambda: members[0].left, "one has left")
        until(lambda: share(members[1:]), "two members share six partitions")
        send(600, 300)
        until(lambda: len(read()) == 900, "all records read by two")
        members[1].process.kill()
        until(lambda: len(members[2].owned) == PARTITIONS, "the survivor owns everything")
        send(900, 300)
        until(lambda: len(read()) == 1200, "all records read by the survivor")
        every = [value for member in members for value in member.values]
        assert len(every) == 1200, "every commit was kept: nothing was read twice"
    finally:
        for member in members:
            member.end()


def filled(broker: BrokerProcess) -> str:
    """A topic of one partition with 100 records a second apart."""
    from confluent_kafka import Producer

    topic = f"times-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic, config=KEPT)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=BASE_MS + number * 1000)
    assert producer.flush(30) == 0
    return topic


def test_kafka_python_commits_seeks_and_looks_up_times(broker: BrokerProcess) -> None:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    part = TopicPartition(filled(broker), 0)
    group = f"kp-{uuid.uuid4().hex[:8]}"
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign([part])
    offset = consumer.offsets_for_times({part: BASE_MS + 20_500})[part]
    assert (offset.offset, offset.timestamp) == (21, BASE_MS + 21_000)
    assert consumer.offsets_for_times({part: BASE_MS + 10**9})[part] is None
    assert consumer.beginning_offsets([part])[part] == 0
    assert consumer.end_offsets([part])[part] == 100
    consumer.seek(part, 30)
    rows: list[Any] = []
    while not rows:
        rows = consumer.poll(1000, max_records=1).get(part, [])
    assert rows[0].value == b"30"
    consumer.commit({part: OffsetAndMetadata(31, "note", -1)})
    consumer.close()
    again = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group)
    again.assign([part])
    assert again.committed(part) == 31
    assert again.position(part) == 31
    again.close()


def test_aiokafka_commits_seeks_and_looks_up_times(broker: BrokerProcess) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    part = TopicPartition(filled(broker), 0)
    group = f"aio-{uuid.uuid4().hex[:8]}"

    async def play() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([part])
        offset = (await consumer.offsets_for_times({part: BASE_MS + 20_500}))[part]
        assert (offset.offset, offset.timestamp) == (21, BASE_MS + 21_000)
        assert (await consumer.beginning_offsets([part]))[part] == 0
        assert (await consumer.end_offsets([part]))[part] == 100
        consumer.seek(part, 30)
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"30"
        await consumer.commit({part: (31, "note")})
        await consumer.stop()
        again = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group)
        await again.start()
        again.assign([part])
        assert await again.committed(part) == 31
        assert await again.position(part) == 31
        await again.stop()

    asyncio.run(play())
