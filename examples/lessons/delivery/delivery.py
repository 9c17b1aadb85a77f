"""A program that dies in the middle of its work, and what its successor finds: at most once, at least once, exactly once.

`python delivery.py most|least|exactly`: ten payments arrive in a topic and are added up in a database (SQLite).
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
PAYMENTS = range(1, 11)
DIES_AT = 6
LIMIT_S = 60


class Dies(Exception):
    """Stands for a crash: nothing that comes after it in the program is done, no commit and no goodbye."""


class Reader:
    """One run of the program. Its database outlives it; what it has not committed does not."""

    def __init__(self, way: str, database: sqlite3.Connection, dies_at: int | None) -> None:
        self.way, self.database, self.dies_at = way, database, dies_at
        self.topic = f"lesson-delivery-{way}"
        self.consumer = Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": self.topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        self.consumer.subscribe([self.topic], on_assign=self.assigned)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Exactly once: the database says where to go on, since it alone knows what it has counted."""
        if self.way == "exactly":
            for row in partitions:
                cursor = self.database.execute(
                    "SELECT next FROM positions WHERE number = ?", (row.partition,)
                )
                (next_one,) = cursor.fetchone() or (0,)
                row.offset = next_one
        consumer.assign(partitions)

    def run(self) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline_s:
            message = self.consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:  # the end of the partition
                return
            self.one(message.partition(), message.offset(), int(message.value()))

    def one(self, partition: int, offset: int, amount: int) -> None:
        following = [TopicPartition(self.topic, partition, offset + 1)]
        if self.way == "most":
            self.consumer.commit(offsets=following, asynchronous=False)
            self.may_die(amount)
        self.database.execute("INSERT INTO payments VALUES (?)", (amount,))
        if self.way == "exactly":
            self.database.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (partition, offset + 1))
            self.may_die(amount)
        self.database.commit()
        if self.way == "least":
            self.may_die(amount)
            self.consumer.commit(offsets=following, asynchronous=False)

    def may_die(self, amount: int) -> None:
        if amount == self.dies_at:
            self.database.rollback()
            raise Dies


def main(way: str) -> None:
    path = Path(f"{way}.db")
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE payments (amount INTEGER)")
    database.execute("CREATE TABLE positions (number INTEGER PRIMARY KEY, next INTEGER)")
    database.commit()
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for amount in PAYMENTS:
        producer.produce(f"lesson-delivery-{way}", str(amount))
    producer.flush()
    first = Reader(way, database, DIES_AT)
    try:
        first.run()
    except Dies:
        first.consumer.close()
    second = Reader(way, database, None)
    second.run()
    second.consumer.close()
    count, total = database.execute("SELECT count(*), sum(amount) FROM payments").fetchone()
    print(f"{way}: {count} payments, {total} in all; {sum(PAYMENTS)} were sent")


if __name__ == "__main__":
    main(sys.argv[1])
