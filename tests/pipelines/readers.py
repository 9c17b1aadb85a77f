"""What a pipeline left behind, read by clients that others wrote."""

from __future__ import annotations

from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


@dataclass(frozen=True)
class Seen:
    """A record as librdkafka gives it."""

    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None] = field(default_factory=dict)

    def header(self, name: str) -> str:
        """A header of a dead letter."""
        return (self.headers[f"barnabas.{name}"] or b"").decode()


def consumed(bootstrap: str, topic: str) -> list[Seen]:
    """Everything in a topic, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=120).topics[topic].partitions
        records = []
        for partition in sorted(partitions):
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(20)
                assert message is not None, f"{topic}-{partition} gives nothing"
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    break
                records.append(Seen(message.key(), message.value(), dict(message.headers() or [])))
        return records
    finally:
        consumer.close()
