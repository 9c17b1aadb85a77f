"""One client in one zone: it writes with acks=all and with acks=1, it reads, and reports the results each second.

Started by run.py on a host of its own. Each second a line of JSON goes to the standard output; SIGTERM ends the writing, and
the last line names everything that was acknowledged and read.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections import Counter
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

SAFE: Final = "orders"
"""Written with acks=all by an idempotent producer."""
FAST: Final = "clicks"
"""Written with acks=1."""
RATE: Final = 10
"""Records for each partition per second."""
TICK_S: Final = 1 / RATE
COMMON: Final = {
    "socket.timeout.ms": 6_000, "socket.connection.setup.timeout.ms": 3_000, "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 5_000, "log_level": 0,
}  # fmt: skip
DELIVERY_S: Final = 180
END_QUIET_S: Final = 4


class Client:
    """Counts of the current second, and what was acknowledged and read since the beginning."""

    def __init__(self, name: str, bootstrap: str, partitions: int) -> None:
        common: dict[str, str | int | float | bool] = {**COMMON, "bootstrap.servers": bootstrap}
        self.name = name
        self.partitions = partitions
        self.second: Counter[str] = Counter()
        self.acknowledged: dict[str, list[list[object]]] = {SAFE: [], FAST: []}
        self.read: list[list[object]] = []
        self.refused: Counter[str] = Counter()
        self.number = 0
        self.ends = False
        self.writers = {
            SAFE: Producer(
                {
                    **common,
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "message.timeout.ms": DELIVERY_S * 1000,
                }
            ),
            FAST: Producer({**common, "acks": 1, "linger.ms": 5, "message.timeout.ms": 5_000}),
        }
        self.reader = Consumer({**common, "group.id": name, "enable.auto.commit": False})
        self.reader.assign([TopicPartition(SAFE, index, 0) for index in range(partitions)])

    def _delivered(self, sent_s: float, error: KafkaError | None, message: Message) -> None:
        topic = message.topic() or ""
        if error is not None:
            self.refused[f"{topic}: {error.name()}"] += 1
            return
        self.second[topic] += 1
        self.acknowledged[topic].append(
            [
                message.partition(),
                message.offset(),
                (message.value() or b"").decode(),
                sent_s,
                time.monotonic(),
            ]
        )

    def tick(self) -> None:
        """A tenth of a second: send one record to each partition of both topics, and read what can be read."""
        self.number += 1
        for topic, writer in self.writers.items():
            if not self.ends:
                for index in range(self.partitions):
                    value = f"{self.name}-{topic}-{index}-{self.number}"
                    told = partial(self._delivered, time.monotonic())
                    writer.produce(topic, value.encode(), partition=index, on_delivery=told)
            writer.poll(0)
        self.take(0.01)

    def take(self, timeout_s: float) -> bool:
        """Read what can be read; whether there was anything."""
        messages = [message for message in self.reader.consume(1_000, timeout_s) if message.error() is None]
        self.second["read"] += len(messages)
        self.read += [
            [message.partition(), message.offset(), (message.value() or b"").decode()] for message in messages
        ]
        return bool(messages)

    def read_to_the_end(self) -> None:
        """Read until nothing has arrived for a while."""
        quiet_s = time.monotonic()
        while time.monotonic() < quiet_s + END_QUIET_S:
            if self.take(0.1):
                quiet_s = time.monotonic()

    def run(self, begin_s: float) -> None:
        """Run until SIGTERM. begin_s: when second 0 begins, by the monotonic clock, which all processes share."""
        at = max(0, int((time.monotonic() - begin_s) / TICK_S) + 1)
        while not self.ends:
            time.sleep(max(0.0, begin_s + at * TICK_S - time.monotonic()))
            if at % RATE == 0:
                row = {
                    "second": at // RATE - 1,
                    "all": self.second[SAFE],
                    "one": self.second[FAST],
                    "read": self.second["read"],
                }
                print(json.dumps(row), flush=True)
                self.second.clear()
            self.tick()
            at += 1
        for writer in self.writers.values():
            writer.flush(DELIVERY_S)
        self.read_to_the_end()
        self.reader.close()
        print(
            json.dumps({"acknowledged": self.acknowledged, "read": self.read, "refused": dict(self.refused)}),
            flush=True,
        )


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser()
    options.add_argument("--name", required=True)
    options.add_argument("--bootstrap", required=True)
    options.add_argument("--partitions", type=int, required=True)
    options.add_argument("--begin", type=float, required=True)
    chosen = options.parse_args()
    client = Client(chosen.name, chosen.bootstrap, chosen.partitions)

    def end(*_: object) -> None:
        client.ends = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    client.run(chosen.begin)


if __name__ == "__main__":
    main()
