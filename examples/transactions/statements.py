"""Reads debits and credits and writes a statement line for each, exactly once: the lines that it writes and its
position are one transaction. Ends when it has read everything.

    python statements.py [HOST:PORT]
"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

SOURCES = ["debits", "credits"]
BATCH = 100
IDLE_S = 5.0


def main(bootstrap: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "statements",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    # After it has found a restarted broker again, librdkafka would wait for a coordinator that it no longer knows.
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": "statements-1",
            "metadata.recovery.strategy": "none",
        }
    )
    producer.init_transactions(30)
    consumer.subscribe(SOURCES)
    written, ended = 0, set[tuple[str, int]]()
    while not ended or ended != {(p.topic, p.partition) for p in consumer.assignment()}:
        messages = consumer.consume(BATCH, 0.5)
        records = []
        for (
            message
        ) in messages:  # in order: an end of partition may come in the same batch, after the last records
            place = (message.topic(), message.partition())
            if message.error() is None:
                records.append(message)
                ended.discard(place)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(place)
        if records:
            copy(producer, consumer, records)
            written += len(records)
    consumer.close()
    print(f"{written} lines written")


def copy(producer: Producer, consumer: Consumer, records: list[Message]) -> None:
    """One transaction: a line for each record, and the offsets after them."""
    producer.begin_transaction()
    ends: dict[tuple[str, int], int] = {}
    for record in records:
        line = {"account": record.key().decode(), "amount": int(record.value())}
        producer.produce("statements", json.dumps(line), key=record.key())
        ends[record.topic(), record.partition()] = record.offset() + 1
    offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")
