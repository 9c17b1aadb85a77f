"""Readers of a copy, before and after it is promoted: clients in Go, C and Java, from 2015 to today, and schemas."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from barnabas.admin import Admin
from barnabas.admin import TopicPartition as AdminPartition
from barnabas.cores.links import LinkSpec
from tests.clients import foreign
from tests.clients.old.programs import java, sarama
from tests.support.admin import create_topic
from tests.support.cluster import until
from tests.support.process import BrokerProcess
from tests.support.registry import RegistryProcess

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

COUNT = 30
CODECS = ("none", "gzip")
Rows = list[tuple[int, str, str]]


def by_old(command: Callable[[], list[str]], *version: str) -> Callable[[str, str, int], Rows]:
    def read(bootstrap: str, topic: str, count: int) -> Rows:
        (seen,) = foreign.run(command(), bootstrap, "read", topic, str(count), *version)["found"].values()
        return [(offset, key, value) for offset, _, key, value in seen]

    return read


def by_franz(bootstrap: str, topic: str, count: int) -> Rows:
    probe = str(foreign.go_program("go", foreign.HERE / "go", "the Go modules"))
    return [(*row,) for row in foreign.run([probe], bootstrap, "franz-read", topic, str(count))["rows"]]


def by_kcat(bootstrap: str, topic: str, count: int) -> Rows:
    words = ["-b", bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-q", "-J"]
    done = subprocess.run(
        [foreign.need("kcat"), *words], capture_output=True, text=True, timeout=120, check=True
    )
    return [(row["offset"], row["key"], row["payload"]) for row in map(json.loads, done.stdout.splitlines())]


def by_java(bootstrap: str, topic: str, count: int) -> Rows:
    command = [foreign.need("java"), "-Xmx256m", "-cp", f"{foreign.kafka_jars()}/*"]
    words = ["--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", "20000"]
    shown = ["--property", "print.offset=true", "--property", "print.key=true"]
    done = subprocess.run(
        [
            *command,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *words,
            *shown,
            "--max-messages",
            str(count),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [(int(offset.removeprefix("Offset:")), key, value) for offset, key, value in rows]


READERS: dict[str, Callable[[str, str, int], Rows]] = {
    "franz-go": by_franz,
    "sarama-1.23.1": by_old(sarama("1.23.1", "go.mod"), "default"),
    "kcat": by_kcat,
    "java-0.9.0.1": by_old(java("0.9.0.1")),
    "java-0.10.2.2": by_old(java("0.10.2.2")),
    "java-2.0.1": by_old(java("2.0.1")),
    "java-console": by_java,
}


def write(bootstrap: str, topic: str, mark: str) -> Rows:
    """Some records with each codec; offset, key and value of each."""
    rows: Rows = []
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for number in range(COUNT):
            key, value = f"k{number}", f"{mark} {codec} {number}"
            producer.produce(
                topic,
                value,
                key,
                0,
                lambda error, made: rows.append((made.offset(), made.key().decode(), made.value().decode())),
            )
        assert producer.flush(60) == 0
    return rows


@contextmanager
def linked(source: BrokerProcess, target: BrokerProcess, topics: str) -> Iterator[Admin]:
    with Admin(target.bootstrap) as admin:
        spec = LinkSpec("l", {"bootstrap.servers": source.bootstrap}, topics, interval_ms=200)
        admin.links.create("l", spec.texts())
        yield admin


def await_copies(admin: Admin, ends: dict[str, int]) -> None:
    def is_there() -> bool:
        (link,) = admin.links.describe(["l"])
        found = {row.topic: row.log_end for row in link.partitions if row.state == "in sync"}
        return all(found.get(topic, -1) >= end for topic, end in ends.items())

    until(is_there, f"copies that end at {ends}")


@pytest.mark.parametrize("name", READERS)
def test_every_client_reads_a_copy_as_its_source_and_goes_on_after_a_promotion(
    own_broker: Callable[..., BrokerProcess], name: str
) -> None:
    read = READERS[name]
    source, target = own_broker(), own_broker()
    create_topic(source.bootstrap, "orders", 1)
    rows = write(source.bootstrap, "orders", "source")
    with linked(source, target, "orders") as admin:
        await_copies(admin, {"orders": len(rows)})
        assert read(source.bootstrap, "orders", len(rows)) == rows
        assert read(target.bootstrap, "orders", len(rows)) == rows
        admin.links.promote("l")
    rows += write(target.bootstrap, "orders", "target")
    assert [offset for offset, _, _ in rows] == list(range(len(rows)))
    assert read(target.bootstrap, "orders", len(rows)) == rows


def avro(*more: str) -> str:
    fields: list[dict[str, Any]] = [{"name": "id", "type": "string"}]
    fields += [{"name": name, "type": "int", "default": 0} for name in more]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "schemas", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        found += [record.value() for record in consumer.consume(count - len(found), 1.0)]
    consumer.close()
    return found


@contextmanager
def registry(broker: BrokerProcess, log: Path) -> Iterator[SchemaRegistryClient]:
    made = RegistryProcess(broker.bootstrap, log).start()
    try:
        yield SchemaRegistryClient({"url": made.url})
    finally:
        made.end()
    assert "Traceback" not in log.read_text()


def test_schemas_come_with_their_ids_and_records_decode_in_the_target(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """With Confluent's client: the target's registry reads the copy of `_schemas`, and takes schemas after the promotion."""
    source, target = own_broker(), own_broker()
    create_topic(source.bootstrap, "orders", 1)
    about = SerializationContext("orders", MessageField.VALUE)

    def send(broker: BrokerProcess, writer: AvroSerializer, *rows: dict[str, object]) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for row in rows:
            producer.produce("orders", writer(row, about), partition=0)
        assert producer.flush(60) == 0

    with registry(source, tmp_path / "source.log") as schemas:
        other = schemas.register_schema("other-value", Schema(avro("a"), "AVRO"))
        send(source, AvroSerializer(schemas, avro()), {"id": "one"})
        send(source, AvroSerializer(schemas, avro("age")), {"id": "two", "age": 7})
        ids = {version: schemas.get_version("orders-value", version).schema_id for version in (1, 2)}
    assert len({other, *ids.values()}) == 3
    with linked(source, target, "orders, _schemas") as admin:
        with Admin(source.bootstrap) as origin:
            place = AdminPartition("_schemas", 0)
            end = origin.records.bounds([place])[place].end
        await_copies(admin, {"orders": 2, "_schemas": end})
        with registry(target, tmp_path / "copy.log") as schemas:
            assert {v: schemas.get_version("orders-value", v).schema_id for v in (1, 2)} == ids
            raw = values(target.bootstrap, "orders", 2)
            assert [int.from_bytes(value[1:5], "big") for value in raw] == [ids[1], ids[2]]
            read = AvroDeserializer(schemas)
            assert [read(value, about) for value in raw] == [{"id": "one"}, {"id": "two", "age": 7}]
            with pytest.raises(SchemaRegistryError, match="_schemas is a read-only copy that the link 'l'"):
                schemas.register_schema("new-value", Schema(avro("b"), "AVRO"))
            admin.links.promote("l")
            send(target, AvroSerializer(schemas, avro("age", "size")), {"id": "three", "age": 1, "size": 2})
            newest = schemas.get_version("orders-value", 3).schema_id
            assert newest not in {other, *ids.values()}
            found = [read(value, about) for value in values(target.bootstrap, "orders", 3)]
    assert [row["id"] for row in found] == ["one", "two", "three"]
