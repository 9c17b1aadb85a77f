"""Six ways to commit: `python commits.py auto|wait|send|both|one|rebalance`. Prints what a next member would begin with."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
TOPIC = "lesson-commits"
COUNT = 20
LIMIT_S = 60


def records(consumer: Consumer, count: int = COUNT) -> Iterator[Message]:
    deadline_s = time.monotonic() + LIMIT_S
    while count and time.monotonic() < deadline_s:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            count -= 1
            yield message
    if count:
        raise SystemExit(f"{count} messages did not come")


def auto(consumer: Consumer) -> str:
    """The client commits by itself, every 5 s and when it closes, what it has handed over: processed or not."""
    return f"{sum(1 for _ in records(consumer))} read, the client commits"


def wait(consumer: Consumer) -> str:
    """Each commit waits for its answer, and tries again if it must."""
    commits = 0
    for number, _ in enumerate(records(consumer), 1):
        if number % 5 == 0:
            consumer.commit(asynchronous=False)
            commits += 1
    return f"{commits} commits, each waited for"


def send(consumer: Consumer) -> str:
    """Commits are sent without waiting; a function hears what became of them. They are not tried again."""
    for number, message in enumerate(records(consumer), 1):
        if number % 5 == 0:
            consumer.commit(message, asynchronous=True)
    deadline_s = time.monotonic() + LIMIT_S
    while len(HEARD) < COUNT // 5 and time.monotonic() < deadline_s:
        consumer.poll(0.1)
    return f"answers heard: {HEARD}"


def both(consumer: Consumer) -> str:
    """Without waiting while it goes well, and one that waits at the end."""
    for _ in records(consumer):
        consumer.commit(asynchronous=True)
    last = consumer.commit(asynchronous=False)
    return f"the last one says {last[0].offset}"


def one(consumer: Consumer) -> str:
    """What has been processed so far, in the middle of a batch."""
    for message in records(consumer, 7):
        consumer.commit(message, asynchronous=False)
    return "after each of 7 messages"


def rebalance(consumer: Consumer) -> str:
    """Offsets are kept by the program, and committed when the partitions are about to be taken away."""
    done: dict[int, TopicPartition] = {}

    def revoked(consumer: Consumer, _: list[TopicPartition]) -> None:
        consumer.commit(offsets=list(done.values()), asynchronous=False)

    consumer.unsubscribe()
    consumer.subscribe([TOPIC], on_revoke=revoked)
    for message in records(consumer, 12):
        done[message.partition()] = TopicPartition(TOPIC, message.partition(), message.offset() + 1)
    return "when the partitions were taken away"


HEARD: list[int] = []


def heard(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
    HEARD.append(-1 if error is not None else partitions[0].offset)


WAYS: dict[str, Callable[[Consumer], str]] = {
    "auto": auto,
    "wait": wait,
    "send": send,
    "both": both,
    "one": one,
    "rebalance": rebalance,
}


def main(way: str) -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(COUNT if way == "auto" else 0):
        producer.produce(TOPIC, f"msg_{number}", partition=0)
    producer.flush()
    config: dict[str, Any] = {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": f"lesson-commits-{way}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": way == "auto",
        "on_commit": heard,
    }
    consumer = Consumer(config)
    consumer.subscribe([TOPIC])
    said = WAYS[way](consumer)
    consumer.close()
    asked = Consumer(config | {"enable.auto.commit": False})
    (next_one,) = asked.committed([TopicPartition(TOPIC, 0)], timeout=LIMIT_S)
    asked.close()
    print(f"{way}: {said}; the next member begins at {next_one.offset}")


if __name__ == "__main__":
    main(sys.argv[1])
