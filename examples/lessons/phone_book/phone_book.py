"""A phone book whose schema grows an age: `python phone_book.py`.

A producer with the new schema and a consumer with the old one, and the reverse, on one topic.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

BOOTSTRAP = os.environ.get("BARNABAS_BOOTSTRAP", "localhost:9092")
REGISTRY = os.environ.get("BARNABAS_REGISTRY", "http://localhost:8081")
TOPIC = "new-employees"
CONTEXT = SerializationContext(TOPIC, MessageField.VALUE)
LIMIT_S = 60


def schema(name: str) -> str:
    text: str = json.loads((Path(__file__).parent / f"{name}.json").read_text())["schema"]
    return text


def main() -> None:
    client = SchemaRegistryClient({"url": REGISTRY})
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    old = AvroSerializer(client, schema("employee"))
    new = AvroSerializer(client, schema("with_age"))
    producer.produce(TOPIC, old({"firstName": "Ada", "phoneNumber": "1"}, CONTEXT))
    producer.produce(TOPIC, new({"firstName": "Bob", "phoneNumber": "2", "age": 42}, CONTEXT))
    producer.flush()
    consumer = Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": "phone-book", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    values: list[Any] = []
    deadline_s = time.monotonic() + LIMIT_S
    while len(values) < 2 and time.monotonic() < deadline_s:
        values += [m.value() for m in consumer.consume(2, 0.2) if m.error() is None]
    consumer.close()
    for name in ("employee", "with_age"):
        read = AvroDeserializer(client, schema(name))
        for value in values:
            print(f"read with {name}: {read(value, CONTEXT)}")


if __name__ == "__main__":
    main()
