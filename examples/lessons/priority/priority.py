"""A topic as a queue with a lane for what is important: `python priority.py`.

The producer's partitioner sends prices of important stocks to the last partition and all others, by key, to the rest. One
consumer is assigned the important partition by hand, another one what remains.
"""

from __future__ import annotations

import os
import random
import time
import zlib

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
TOPIC = "lesson-priority"
IMPORTANT = {"IBM", "UBER"}
STOCKS = ("ABC", "GOOG", "IBM", "MSFT", "UBER", "XYZ")
COUNT = 600
LIMIT_S = 60


def partition_of(stock: str, partitions: int) -> int:
    """The last partition for important stocks; the same one of the others for all prices of a stock."""
    if stock in IMPORTANT:
        return partitions - 1
    return zlib.crc32(stock.encode()) % (partitions - 1)


def send(partitions: int) -> None:
    chance = random.Random(1)
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "linger.ms": 100, "compression.type": "gzip"})
    for _ in range(COUNT):
        stock = chance.choice(STOCKS)
        price = f"{chance.randint(1, 500)}.{chance.randint(0, 99):02}"
        producer.produce(TOPIC, price, key=stock, partition=partition_of(stock, partitions))
    producer.flush()


def stocks_in(partitions: list[int]) -> tuple[set[str], int]:
    """The stocks in these partitions, read from the start to the end by a consumer without a group's assignment."""
    consumer = Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": "lesson-priority", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in partitions])
    stocks: set[str] = set()
    count, ends = 0, 0
    deadline_s = time.monotonic() + LIMIT_S
    while ends < len(partitions) and time.monotonic() < deadline_s:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            ends += 1
        else:
            stocks.add(message.key().decode())
            count += 1
    consumer.close()
    return stocks, count


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    partitions = sorted(admin.list_topics(TOPIC, LIMIT_S).topics[TOPIC].partitions)
    send(len(partitions))
    important, count = stocks_in(partitions[-1:])
    others, rest = stocks_in(partitions[:-1])
    print(f"partition {partitions[-1]}: {sorted(important)}, {count} prices")
    print(f"partitions {partitions[0]} to {partitions[-2]}: {sorted(others)}, {rest} prices")


if __name__ == "__main__":
    main()
