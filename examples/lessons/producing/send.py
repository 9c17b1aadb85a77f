"""Four ways to send a thousand messages: `python send.py forget|wait|callback|json`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
TOPIC = "lesson-producing"
COUNT = 1000


def forget(producer: Producer) -> None:
    """Nobody asks what became of a message: the quickest way, and the only one that loses messages in silence."""
    for number in range(COUNT):
        producer.produce(TOPIC, f"msg_{number}", key=str(number))
    producer.flush()
    print(f"forget: {COUNT} handed over")


def wait(producer: Producer) -> None:
    """Each message waits for its acknowledgement: one round trip per message."""
    for number in range(COUNT):
        producer.produce(TOPIC, f"msg_{number}", key=str(number))
        assert producer.flush() == 0
    print(f"wait: {COUNT} acknowledged, one after the other")


def callback(producer: Producer) -> None:
    """The acknowledgements arrive in a function, while the next messages are on their way."""
    acknowledged: dict[int, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            print(f"lost: {error}")
            return
        partition = message.partition()
        acknowledged[partition] = acknowledged.get(partition, 0) + 1

    for number in range(COUNT):
        producer.produce(TOPIC, f"msg_{number}", key=str(number), on_delivery=delivered)
        producer.poll(0)
    producer.flush()
    print(f"callback: {sum(acknowledged.values())} acknowledged in {len(acknowledged)} partitions")


def as_json(producer: Producer) -> None:
    """An object becomes JSON before it is sent: the broker sees bytes."""
    for number in range(10):
        employee = {"id": f"e{number}", "department": number % 3, "wage": 1000.0 + number}
        producer.produce(TOPIC, json.dumps(employee), key=employee["id"])
    producer.flush()
    print("json: 10 employees sent")


WAYS = {"forget": forget, "wait": wait, "callback": callback, "json": as_json}


def main(way: str, *options: str) -> None:
    config: dict[str, Any] = {"bootstrap.servers": BOOTSTRAP, "linger.ms": 5 if way == "callback" else 0}
    config |= dict(option.split("=", 1) for option in options)
    WAYS[way](Producer(config))


if __name__ == "__main__":
    main(*sys.argv[1:])
