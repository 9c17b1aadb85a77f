"""Real consumers by librdkafka, several in one process: `group_clients.py BOOTSTRAP GROUP TOPIC PROTOCOL COUNT`.

Prints a line of JSON for each change: {"member", "at" (monotonic seconds), "owns"}. Ends with its standard input.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, TopicPartition

SESSION_MS = 45_000


def config(bootstrap: str, group: str, protocol: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "auto.offset.reset": "latest",
        "topic.metadata.refresh.interval.ms": -1,
    }
    if protocol == "classic":
        options |= {"session.timeout.ms": SESSION_MS, "partition.assignment.strategy": "range"}
    return options


class Member(threading.Thread):
    """Polls, and says what it owns whenever that changes."""

    def __init__(self, number: int, settings: dict[str, Any], topic: str, stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self.number, self.topic, self.stopping = number, topic, stopping
        self.owned: set[int] = set()
        self.incremental = settings["group.protocol"] == "consumer"
        self.consumer = Consumer(settings)
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def run(self) -> None:
        while not self.stopping.is_set():
            self.consumer.poll(0.5)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # A position is given, so that no member asks for offsets: the group alone is measured.
        for partition in partitions:
            partition.offset = 0
        (consumer.incremental_assign if self.incremental else consumer.assign)(partitions)
        consumer.pause(partitions)
        self.owned |= {row.partition for row in partitions}
        self._say()

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self.incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()
        self.owned -= {partition.partition for partition in partitions}
        self._say()

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._revoked(consumer, partitions)

    def _say(self) -> None:
        line = {"member": self.number, "at": time.monotonic(), "owns": sorted(self.owned)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def main() -> None:
    bootstrap, group, topic, protocol, count = sys.argv[1:]
    stopping = threading.Event()
    settings = config(bootstrap, group, protocol)
    members = [Member(number, settings, topic, stopping) for number in range(int(count))]
    for member in members:
        member.start()
    sys.stdin.read()
    stopping.set()
    for member in members:
        member.join(10)


if __name__ == "__main__":
    main()
