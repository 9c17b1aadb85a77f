"""A topic of four partitions and a group that grows: 1, 2, 4 and 5 members share it. `python members.py [SESSIONS]`

The group's assignment is printed whenever it has settled.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
TOPIC = "lesson-groups"
PARTITIONS = 4
LIMIT_S = 120


class Member:
    """One consumer of the group; `owned` are its partitions, as its rebalance listener was told."""

    def __init__(self) -> None:
        self.joined = False
        self.owned: set[int] = set()
        self.read: list[str] = []
        self.following: dict[int, int] = {}
        self.consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": "lesson-groups",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.consumer.subscribe([TOPIC], on_assign=self.assigned, on_revoke=self.revoked)

    def assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.joined = True
        self.owned |= {row.partition for row in partitions}

    def revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.owned -= {row.partition for row in partitions}

    def poll(self) -> None:
        for message in self.consumer.consume(100, 0.02):
            if message.error() is None:
                self.read.append(message.value().decode())
                self.following[message.partition()] = message.offset() + 1

    def commit(self) -> None:
        """Say how far this member has come, before its partitions go to another one."""
        if self.following:
            rows = [TopicPartition(TOPIC, number, offset) for number, offset in self.following.items()]
            self.consumer.commit(offsets=rows, asynchronous=False)
            self.following.clear()


def until(members: list[Member], done: Callable[[], bool]) -> None:
    """Let all members work until something has come about."""
    deadline_s = time.monotonic() + LIMIT_S
    while not done():
        if time.monotonic() > deadline_s:
            raise SystemExit("the group has not settled")
        for member in members:
            member.poll()


def settled(members: list[Member]) -> bool:
    """Whether all have joined, every partition has one owner, and as many members as can have one do."""
    owned = sorted(index for member in members for index in member.owned)
    busy = sum(1 for member in members if member.owned)
    joined = all(member.joined for member in members)
    return joined and owned == list(range(PARTITIONS)) and busy == min(len(members), PARTITIONS)


def send(numbers: range) -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in numbers:
        producer.produce(TOPIC, f"msg_{number}", key=str(number))
    producer.flush()


def main(sizes: list[int]) -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(LIMIT_S)
    members: list[Member] = []
    sent = 0
    for size in sizes:
        members.extend(Member() for _ in range(size - len(members)))
        until(members, lambda: settled(members))
        send(range(sent, sent := sent + 20))
        until(members, lambda: sum(len(member.read) for member in members) >= sent)
        for member in members:
            member.commit()
        shares = sorted((len(member.owned) for member in members), reverse=True)
        print(
            f"{size} member{'s' if size > 1 else ''}: partitions {shares}, {sent} messages read by the group"
        )
    gone = members.pop()
    gone.consumer.close()
    until(members, lambda: settled(members))
    print(f"one leaves: partitions {sorted((len(member.owned) for member in members), reverse=True)}")
    read = [value for member in [*members, gone] for value in member.read]
    print(f"read more than once: {len(read) - len(set(read))}")
    for member in members:
        member.consumer.close()


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [1, 2, 4, 5])
