"""`barnabas produce|consume -s`: confluent-kafka's deserializers read what it writes, and the reverse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.clients.cli_support import Cli
from tests.pipelines.readers import consumed
from tests.support.registry import RegistryProcess, own_registry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
PERSON = (
    '{"title": "Person", "type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'
)


@pytest.fixture(scope="module")
def registry(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    with own_registry(bootstrap, tmp_path_factory.mktemp("registry"), "cli") as registry_process:
        yield registry_process


@pytest.fixture
def schemas(registry: RegistryProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def of(topic: str, part: str = MessageField.VALUE) -> SerializationContext:
    return SerializationContext(topic, part)


def point() -> Any:
    """The class of a message in Protobuf."""
    file_descriptor = descriptor_pb2.FileDescriptorProto(name="point.proto", syntax="proto3", package="cli")
    message_type = file_descriptor.message_type.add(name="Point")
    for number, name in enumerate("xy", 1):
        message_type.field.add(name=name, number=number, type=5, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file_descriptor.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("cli.Point"))


def test_what_it_writes_is_read_by_others(
    cli: Cli, bootstrap: str, registry: RegistryProcess, schemas: SchemaRegistryClient, tmp_path: Path
) -> None:
    topic = cli.topic()
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    cli(
        "produce", topic, "-s", f"value=avro@{tmp_path}/order.avsc", "-s", f"key=jsonschema@{tmp_path}/key.json",
        "-r", registry.url, code=1,
    )  # fmt: skip
    (tmp_path / "key.json").write_text(PERSON)
    lines = b'{"age":1}|{"id":"a","note":{"string":"n"}}\n{"age":2}|{"id":"b"}\n{"age":3}|\n'
    cli(
        "produce", topic, "-k", "|", "-Z", "-s", f"value=avro@{tmp_path}/order.avsc",
        "-s", f"key=jsonschema@{tmp_path}/key.json", "-r", registry.url, stdin=lines,
    )  # fmt: skip
    records = consumed(bootstrap, topic)
    read = AvroDeserializer(schemas)
    assert [read(row.value, of(topic)) for row in records] == [
        {"id": "a", "note": "n"},
        {"id": "b", "note": None},
        None,
    ]
    key = JSONDeserializer(PERSON)
    assert [key(row.key, of(topic, MessageField.KEY)) for row in records] == [
        {"age": 1},
        {"age": 2},
        {"age": 3},
    ]
    options = ("-s", "value=avro", "-s", "key=jsonschema", "-r", registry.url)
    assert (
        cli.out("consume", topic, "-e", "-k", "|", *options).splitlines()[1]
        == b'{"age":2}|{"id":"b","note":null}'
    )
    # An envelope of `consume -J` is what `produce -J` takes.
    copy = cli.topic()
    for part in ("key", "value"):
        schemas.register_schema(f"{copy}-{part}", schemas.get_latest_version(f"{topic}-{part}").schema)
    cli("produce", copy, "-J", *options, stdin=cli.out("consume", topic, "-e", "-J", *options))
    assert [(row.key, row.value) for row in consumed(bootstrap, copy)] == [
        (row.key, row.value) for row in records
    ]


def test_what_others_write_is_read(
    cli: Cli, bootstrap: str, registry: RegistryProcess, schemas: SchemaRegistryClient
) -> None:
    topic = cli.topic()
    kind = point()
    message = kind(x=5, y=6)
    avro = AvroSerializer(schemas, json.dumps(ORDER), conf={"subject.name.strategy": lambda *_: "any-avro"})
    protobuf = ProtobufSerializer(kind, schemas, {"use.deprecated.format": False})
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(
        topic, avro({"id": "ä", "note": "n"}, of(topic)), protobuf(message, of(topic, MessageField.KEY))
    )
    producer.produce(topic, None, b"plain")
    producer.flush(120)
    options = ("-s", "key=protobuf", "-s", "value=avro", "-r", registry.url)
    done = cli("consume", topic, "-e", "-k", " ", *options, code=1)
    assert done.stdout.decode() == '{"x":5,"y":6} {"id":"ä","note":{"string":"n"}}\n'
    complaint = (
        f"barnabas consume: {topic} [0] offset 1: key: "
        "the bytes do not begin with the id of a schema: 0x706c61696e\n"
    )
    assert done.stderr.decode() == complaint
    # What its own serializer wrote as Protobuf is what ours writes of the same JSON.
    cli(
        "produce",
        topic,
        "-k",
        " ",
        "-s",
        "key=protobuf",
        "-r",
        registry.url,
        stdin=b'{"x":5,"y":6} x\n',
    )
    records = consumed(bootstrap, topic)
    assert records[2].key == records[0].key
    reader = ProtobufDeserializer(kind, {"use.deprecated.format": False}, schemas)
    assert reader(records[2].key, of(topic, MessageField.KEY)) == message


def test_schemas_that_headers_name(
    cli: Cli, bootstrap: str, registry: RegistryProcess, schemas: SchemaRegistryClient
) -> None:
    """By GUID, as Confluent's serializers write them when they are asked to."""
    topic, kind, headers = cli.topic(), point(), list[tuple[str, bytes]]()
    conf = {"schema.id.serializer": header_schema_id_serializer}
    value = SerializationContext(topic, MessageField.VALUE, headers)
    key = SerializationContext(topic, MessageField.KEY, headers)
    raw = AvroSerializer(schemas, json.dumps(ORDER), conf=conf)({"id": "a", "note": None}, value)
    named = ProtobufSerializer(kind, schemas, conf)(kind(x=1, y=2), key)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, raw, named, headers=headers)
    producer.flush(120)
    assert {name for name, _ in headers} == {"__key_schema_id", "__value_schema_id"}
    done = cli(
        "consume", topic, "-e", "-k", " ", "-s", "key=protobuf", "-s", "value=avro", "-r", registry.url
    )
    assert done.stdout.decode() == '{"x":1,"y":2} {"id":"a","note":null}\n'


def test_errors_are_one_line(cli: Cli, registry: RegistryProcess, schemas: SchemaRegistryClient) -> None:
    topic = cli.topic()
    schemas.register_schema(f"{topic}-value", Schema(json.dumps(ORDER), "AVRO"))

    def complaint(*arguments: str, stdin: bytes = b"", code: int = 1) -> str:
        text = cli("produce", topic, *arguments, "-q", stdin=stdin, code=code).stderr.decode()
        assert text.count("\n") == 1
        return text

    at = ("-r", registry.url)
    assert "line 2: value: /id: 5 is not of type string" in complaint(
        "-s", "value=avro", *at, stdin=b'{"id":"a"}\n{"id":5}\n'
    )
    assert f"Subject '{topic}-key' not found" in complaint("-s", "avro", *at)
    assert f"the newest version of {topic}-value is of type AVRO, not JSON" in complaint(
        "-s", "value=jsonschema", *at
    )
    assert "no registry answers at http://127.0.0.1:1" in complaint(
        "-s", "value=avro", "-r", "http://127.0.0.1:1"
    )
    assert "-s 'value=xml' is not avro, jsonschema or protobuf" in complaint("-s", "value=xml", code=2)
