"""Three Python clients that somebody else wrote, behind one small face, so that each plays the same scenarios.

A driver produces and consumes synchronously; what is tested stays the client's own: its batching, its
codecs, its group protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Message:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    offset: int = -1
    timestamp_ms: int = -1


class Driver(Protocol):
    name: str

    def produce(
        self, bootstrap: str, topic: str, messages: Iterable[Message], *, codec: str, acks: int
    ) -> int:
        """Send all, wait for all acknowledgements; returns how many were acknowledged."""
        ...

    def consume(
        self, bootstrap: str, topic: str, partitions: int, count: int, timeout_s: float = 120
    ) -> list[Message]:
        """Read `count` messages of all partitions from the beginning, without a group."""
        ...


class Confluent:
    """librdkafka."""

    name = "confluent-kafka"

    def produce(
        self, bootstrap: str, topic: str, messages: Iterable[Message], *, codec: str, acks: int
    ) -> int:
        from confluent_kafka import Producer

        delivered = 0
        failures: list[str] = []

        def report(error: Any, _: Any) -> None:
            nonlocal delivered
            if error is None:
                delivered += 1
            else:
                failures.append(str(error))

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "acks": acks,
                "linger.ms": 5,
                "enable.idempotence": acks == -1,
                "queue.buffering.max.messages": 200_000,
                "batch.size": 400_000,  # some tests have segments of 500 kB
            }
        )
        for message in messages:
            producer.produce(
                topic,
                key=message.key,
                value=message.value,
                partition=message.partition,
                headers=list(message.headers),
                on_delivery=report,
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failures, failures[:3]
        return delivered

    def consume(
        self, bootstrap: str, topic: str, partitions: int, count: int, timeout_s: float = 120
    ) -> list[Message]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False,
             "fetch.queue.backoff.ms": 5}
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        messages: list[Message] = []
        deadline = time.monotonic() + timeout_s
        while len(messages) < count and time.monotonic() < deadline:
            for row in consumer.consume(10_000, 0.2):
                assert row.error() is None, row.error()
                messages.append(
                    Message(
                        row.partition(), row.key(), row.value(), tuple(row.headers() or ()), row.offset(),
                        row.timestamp()[1],
                    )
                )  # fmt: skip
        consumer.close()
        return messages

    def read_to_end(self, bootstrap: str, topic: str, partitions: int = 1) -> list[Message]:
        """Everything that the partitions hold now."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False,
             "enable.partition.eof": True}
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])
        messages: list[Message] = []
        ended: set[int] = set()
        deadline = time.monotonic() + 120
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"the end of {topic} was not reached"
            row = consumer.poll(1)
            if row is None:
                continue
            if row.error() is not None:
                assert row.error().code() == KafkaError._PARTITION_EOF, row.error()
                ended.add(row.partition())
            else:
                messages.append(
                    Message(
                        row.partition(), row.key(), row.value(), tuple(row.headers() or ()), row.offset(),
                        row.timestamp()[1],
                    )
                )  # fmt: skip
        consumer.close()
        return messages


class KafkaPython:
    """kafka-python, pure Python."""

    name = "kafka-python"

    def produce(
        self, bootstrap: str, topic: str, messages: Iterable[Message], *, codec: str, acks: int
    ) -> int:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == -1 else acks,
            enable_idempotence=acks == -1,
            linger_ms=5,
            batch_size=128 * 1024,
        )
        futures = [
            producer.send(
                topic, key=message.key, value=message.value, partition=message.partition,
                headers=[(name, value) for name, value in message.headers],
            )
            for message in messages
        ]  # fmt: skip
        producer.flush(60)
        delivered = sum(1 for future in futures if future.get(30) is not None)
        producer.close()
        return delivered

    def consume(
        self, bootstrap: str, topic: str, partitions: int, count: int, timeout_s: float = 120
    ) -> list[Message]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
        assigned = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(assigned)
        consumer.seek_to_beginning(*assigned)
        messages: list[Message] = []
        deadline = time.monotonic() + timeout_s
        while len(messages) < count and time.monotonic() < deadline:
            for rows in consumer.poll(timeout_ms=500, max_records=20_000).values():
                messages += [
                    Message(row.partition, row.key, row.value, tuple(row.headers), row.offset, row.timestamp)
                    for row in rows
                ]
        consumer.close()
        return messages


class AioKafka:
    """aiokafka."""

    name = "aiokafka"

    def produce(
        self, bootstrap: str, topic: str, messages: Iterable[Message], *, codec: str, acks: int
    ) -> int:
        return asyncio.run(self._produce(bootstrap, topic, messages, codec, acks))

    async def _produce(
        self, bootstrap: str, topic: str, messages: Iterable[Message], codec: str, acks: int
    ) -> int:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == -1 else acks,
            enable_idempotence=acks == -1,
            linger_ms=5,
            max_batch_size=128 * 1024,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    key=message.key,
                    value=message.value,
                    partition=message.partition,
                    headers=list(message.headers),
                )
                for message in messages
            ]
            await producer.flush()
            return len(await asyncio.gather(*futures))
        finally:
            await producer.stop()

    def consume(
        self, bootstrap: str, topic: str, partitions: int, count: int, timeout_s: float = 120
    ) -> list[Message]:
        return asyncio.run(self._consume(bootstrap, topic, partitions, count, timeout_s))

    async def _consume(
        self, bootstrap: str, topic: str, partitions: int, count: int, timeout_s: float
    ) -> list[Message]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
        await consumer.start()
        try:
            assigned = [TopicPartition(topic, index) for index in range(partitions)]
            consumer.assign(assigned)
            await consumer.seek_to_beginning(*assigned)
            messages: list[Message] = []
            deadline = time.monotonic() + timeout_s
            while len(messages) < count and time.monotonic() < deadline:
                rows_by_partition = await consumer.getmany(timeout_ms=500, max_records=20_000)
                for rows in rows_by_partition.values():
                    messages += [
                        Message(
                            row.partition, row.key, row.value, tuple(row.headers), row.offset, row.timestamp
                        )
                        for row in rows
                    ]
            return messages
        finally:
            await consumer.stop()


DRIVERS: tuple[Driver, ...] = (Confluent(), KafkaPython(), AioKafka())
