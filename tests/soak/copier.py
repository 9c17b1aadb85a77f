"""Copies topic `in` to topic `out` in transactions that hold the offsets as well, until it is killed or gives up.

    python -m tests.soak.copier BOOTSTRAP TRANSACTIONAL_ID CLIENT

Whatever goes wrong ends the process; whoever started it starts it again. CLIENT is confluent or aiokafka.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

GROUP = "copiers"
BATCH = 50
WAIT_S = 20


class Revoked(Exception):
    """A partition was taken away in the middle of a transaction."""


def copied(value: bytes) -> bytes:
    return b"copy of " + value


def run_confluent(bootstrap: str, transactional_id: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    # Having bootstrapped again, librdkafka 2.15 waits for a group coordinator that it has given up.
    common = {"bootstrap.servers": bootstrap, "metadata.recovery.strategy": "none"}
    producer = Producer(
        {**common, "transactional.id": transactional_id, "linger.ms": 1, "transaction.timeout.ms": 20_000}
    )
    producer.init_transactions(WAIT_S)
    consumer = Consumer(
        {
            **common,
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
        }
    )
    busy = False

    def revoked(_: Any, partitions: list[Any]) -> None:
        if busy and partitions:
            raise Revoked

    consumer.subscribe(["in"], on_revoke=revoked, on_lost=revoked)
    while True:
        busy = False
        first = consumer.poll(1)
        if first is None or first.error():
            continue
        busy = True
        producer.begin_transaction()
        messages = [first, *consumer.consume(BATCH, 0.05)]
        ends: dict[int, int] = {}
        for message in messages:
            if message.error() is None:
                producer.produce(
                    "out", copied(message.value()), key=message.key(), partition=message.partition()
                )
                ends[message.partition()] = message.offset() + 1
        offsets = [TopicPartition("in", index, end) for index, end in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)


async def run_aiokafka(bootstrap: str, transactional_id: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=20_000
    )
    await producer.start()
    # aiokafka sends no generation with its offsets, so that it must have its partitions to itself.
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    where = [TopicPartition("in", index) for index in range(4)]
    consumer.assign(where)
    for partition in where:
        consumer.seek(partition, await consumer.committed(partition) or 0)
    while True:
        batches = await consumer.getmany(timeout_ms=500, max_records=BATCH)
        if not batches:
            continue
        await producer.begin_transaction()
        for partition, messages in batches.items():
            for message in messages:
                await producer.send(
                    "out", copied(message.value), key=message.key, partition=partition.partition
                )
        ends = {partition: messages[-1].offset + 1 for partition, messages in batches.items()}
        await producer.send_offsets_to_transaction(ends, GROUP)
        await asyncio.wait_for(producer.commit_transaction(), WAIT_S)


def main() -> None:
    bootstrap, transactional_id, client = sys.argv[1:]
    if client == "aiokafka":
        asyncio.run(run_aiokafka(bootstrap, transactional_id))
    else:
        run_confluent(bootstrap, transactional_id)


if __name__ == "__main__":
    main()
