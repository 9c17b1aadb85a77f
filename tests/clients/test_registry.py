"""The schema registry as confluent-kafka's own serializers and clients use it."""

from __future__ import annotations

import base64
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from barnabas.registry.records import decode
from tests.clients import foreign
from tests.support import preloaded
from tests.support.registry import RegistryProcess, call

EMPLOYEE: Any = {
    "type": "record",
    "name": "Employee",
    "namespace": "com.cloudurable.phonebook",
    "fields": [
        {"name": "firstName", "type": "string"},
        {"name": "age", "type": "int"},
        {
            "name": "phone",
            "type": {
                "type": "record",
                "name": "PhoneNumber",
                "fields": [{"name": "number", "type": "string"}],
            },
        },
    ],
}
PERSON = {"firstName": "Bob", "age": 35, "phone": {"number": "555"}}


def instance(bootstrap: str, folder: Path) -> RegistryProcess:
    """One with a topic of its own."""
    name = uuid.uuid4().hex[:8]
    arguments = ("--topic", f"_schemas_{name}", "--group", f"registry-{name}")
    process = RegistryProcess(bootstrap, folder / "registry.log", *arguments).start()
    process.await_writer()
    return process


@pytest.fixture(scope="module")
def registry(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    process = instance(bootstrap, tmp_path_factory.mktemp("registry"))
    yield process
    assert process.end() == 0


@pytest.fixture
def client(registry: RegistryProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def ctx(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_through_a_topic(bootstrap: str, client: SchemaRegistryClient, topic: str) -> None:
    writer = AvroSerializer(client, json.dumps(EMPLOYEE))
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(3):
        producer.produce(topic, writer(PERSON, ctx(topic)))
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    reader = AvroDeserializer(client)
    people: list[Any] = []
    while len(people) < 3:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        people.append(reader(message.value(), ctx(topic)))
    consumer.close()
    assert people == [PERSON] * 3


def test_avro_evolves(client: SchemaRegistryClient, topic: str) -> None:
    old = AvroSerializer(client, json.dumps(EMPLOYEE))(PERSON, ctx(topic))
    newer = json.loads(json.dumps(EMPLOYEE))
    newer["fields"].append({"name": "nickName", "type": ["null", "string"], "default": None})
    AvroSerializer(client, json.dumps(newer))({**PERSON, "nickName": "B"}, ctx(topic))
    assert client.get_versions(f"{topic}-value") == [1, 2]
    assert AvroDeserializer(client, json.dumps(newer))(old, ctx(topic)) == {**PERSON, "nickName": None}
    newer["fields"].append({"name": "salary", "type": "int"})
    with pytest.raises(SchemaRegistryError, match="salary") as refused:
        AvroSerializer(client, json.dumps(newer))({**PERSON, "nickName": "B", "salary": 1}, ctx(topic))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)
    assert "/fields/4" in str(refused.value)


def test_avro_with_a_reference(client: SchemaRegistryClient, topic: str) -> None:
    phone = EMPLOYEE["fields"][2]["type"] | {"namespace": EMPLOYEE["namespace"]}
    client.register_schema(f"{topic}-phone", Schema(json.dumps(phone), "AVRO"))
    employee = {**EMPLOYEE, "fields": [*EMPLOYEE["fields"][:2], {"name": "phone", "type": "PhoneNumber"}]}
    reference = SchemaReference("com.cloudurable.phonebook.PhoneNumber", f"{topic}-phone", 1)
    schema = Schema(json.dumps(employee), "AVRO", [reference])
    raw = AvroSerializer(client, schema)(PERSON, ctx(topic))
    assert AvroDeserializer(client)(raw, ctx(topic)) == PERSON
    schema_id = int.from_bytes(raw[1:5], "big")
    assert client.get_schema(schema_id).references[0].subject == f"{topic}-phone"
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject(f"{topic}-phone")
    assert refused.value.error_code == 42206


def test_json_schema(client: SchemaRegistryClient, topic: str) -> None:
    schema = json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Person",
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
            "required": ["name"],
        }
    )
    raw = JSONSerializer(schema, client)({"name": "Ann", "age": 3}, ctx(topic))
    assert JSONDeserializer(None, schema_registry_client=client)(raw, ctx(topic)) == {"name": "Ann", "age": 3}
    assert client.get_latest_version(f"{topic}-value").schema.schema_type == "JSON"


def order_class(name: str) -> Any:
    """A message class whose file imports one that a client does not know by itself."""
    pool = descriptor_pool.DescriptorPool()
    for module in (descriptor_pb2, timestamp_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    item = descriptor_pb2.FileDescriptorProto(name=f"{name}/item.proto", package=name, syntax="proto3")
    message = item.message_type.add(name="Item")
    message.field.add(name="price", number=1, type=1, label=1)
    order = descriptor_pb2.FileDescriptorProto(name=f"{name}/order.proto", package=name, syntax="proto3")
    order.dependency.extend([item.name, "google/protobuf/timestamp.proto"])
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=9, label=1)
    message.field.add(name="items", number=2, type=11, label=3, type_name=f".{name}.Item")
    message.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    pool.AddSerializedFile(item.SerializeToString())
    pool.AddSerializedFile(order.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{name}.Order"))


def test_protobuf(client: SchemaRegistryClient, topic: str) -> None:
    kind = order_class(topic.replace("-", "_"))
    message = kind(id="a", items=[{"price": 1.5}], at={"seconds": 5})
    raw = ProtobufSerializer(kind, client, {"use.deprecated.format": False})(message, ctx(topic))
    reader = ProtobufDeserializer(kind, {"use.deprecated.format": False}, client)
    assert reader(raw, ctx(topic)) == message
    schema = client.get_latest_version(f"{topic}-value").schema
    assert schema.schema_type == "PROTOBUF"
    assert [r.name.rpartition("/")[2] for r in schema.references] == ["item.proto"]
    assert "message Order {" in schema.schema_str
    conf = {"use.deprecated.format": False, "auto.register.schemas": False}
    assert ProtobufSerializer(kind, client, conf)(message, ctx(topic)) == raw


def test_the_client_calls(client: SchemaRegistryClient, topic: str) -> None:
    subject = f"{topic}-value"
    schema = Schema(json.dumps(EMPLOYEE), "AVRO")
    schema_id = client.register_schema(subject, schema)
    assert client.register_schema(subject, schema) == schema_id
    assert client.lookup_schema(subject, schema).version == 1
    assert client.get_version(subject, 1).schema_id == schema_id
    assert subject in client.get_subjects()
    assert client.test_compatibility(subject, Schema('"string"', "AVRO")) is False
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    assert client.test_compatibility(subject, Schema('"string"', "AVRO")) is True
    second = client.register_schema(subject, Schema('"string"', "AVRO"))
    assert second != schema_id
    assert client.delete_version(subject, 1) == 1
    assert client.get_versions(subject) == [2]
    assert client.delete_subject(subject) == [2]
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    guid = uuid.uuid4()
    with pytest.raises(SchemaRegistryError):
        client.get_schema_by_guid(str(guid))


def test_the_cluster_that_it_belongs_to(bootstrap: str, registry: RegistryProcess) -> None:
    cluster_id = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).cluster_id
    status, answer = call(registry.url, "GET", "/v1/metadata/id")
    assert (status, answer["scope"]["clusters"]["kafka-cluster"]) == (200, cluster_id)


def test_ids_in_headers(client: SchemaRegistryClient, topic: str) -> None:
    from confluent_kafka.schema_registry import header_schema_id_serializer

    writer = AvroSerializer(
        client, json.dumps(EMPLOYEE), conf={"schema.id.serializer": header_schema_id_serializer}
    )
    context = SerializationContext(topic, MessageField.VALUE, [])
    raw = writer(PERSON, context)
    (name, value), *rest = context.headers
    assert (name, value[0], len(value), rest) == ("__value_schema_id", 1, 17, [])
    assert AvroDeserializer(client)(raw, context) == PERSON


def test_ids_are_not_given_again(bootstrap: str, tmp_path: Path) -> None:
    registry = instance(bootstrap, tmp_path)
    first = call(registry.url, "POST", "/subjects/a/versions", {"schema": '"string"'})[1]["id"]
    id_given = call(registry.url, "POST", "/subjects/b/versions", {"schema": '"long"'})[1]["id"]
    assert id_given > first
    for query in ("", "?permanent=true"):
        assert call(registry.url, "DELETE", f"/subjects/b{query}") == (200, [1])
    assert call(registry.url, "GET", f"/schemas/ids/{id_given}")[1]["error_code"] == 40403
    assert registry.end() == 0
    registry.start()
    registry.await_writer()
    status, answer = call(registry.url, "POST", "/subjects/b/versions", {"schema": '"long"'})
    assert registry.end() == 0
    assert status == 200
    assert answer["id"] > id_given


def test_the_topic_holds_confluents_records(
    bootstrap: str, registry: RegistryProcess, client: SchemaRegistryClient, topic: str
) -> None:
    schema_id = client.register_schema(f"{topic}-value", Schema('{"type": "int"}', "AVRO"))
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([registry.arguments[1]])
    wanted = f'{{"keytype":"SCHEMA","subject":"{topic}-value","version":1,"magic":1}}'.encode()
    while True:
        message = consumer.poll(60)
        assert message is not None
        decode(message.key(), message.value())
        if message.key() == wanted:
            break
    consumer.close()
    fields = json.loads(message.value())
    guid = fields.pop("guid")
    assert fields == {
        "subject": f"{topic}-value",
        "version": 1,
        "id": schema_id,
        "schema": '"int"',
        "deleted": False,
    }
    assert call(registry.url, "GET", f"/schemas/guids/{guid}/ids")[1] == [{"context": ".", "id": schema_id}]


def test_export_and_import(registry: RegistryProcess, bootstrap: str, tmp_path: Path, topic: str) -> None:
    def schema(*arguments: str) -> str:
        done = preloaded.run(
            [sys.executable, "-m", "barnabas", "schema", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    call(registry.url, "POST", f"/subjects/{topic}/versions", {"schema": '"int"'})
    call(registry.url, "POST", f"/subjects/{topic}/versions", {"schema": '"long"'})
    exported = schema("export", "--prefix", topic, "-r", registry.url)
    file = tmp_path / "schemas.jsonl"
    file.write_text(exported)
    other = instance(bootstrap, tmp_path)
    try:
        assert schema("import", str(file), "-r", other.url) == "imported 2 versions of 1 subjects\n"
        assert schema("export", "-r", other.url) == exported
        call(other.url, "POST", f"/subjects/{topic}/versions", {"schema": '"double"'})
        assert schema("get", topic, "-r", other.url) == '"double"\n'
    finally:
        assert other.end() == 0


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_a_schema_that_no_record_can_hold(registry: RegistryProcess, topic: str, kind: str) -> None:
    """10 MB: refused before it is read."""
    names = [f"field_number_{number}_{'x' * 40}" for number in range(100_000)]
    text = {
        "AVRO": lambda: json.dumps(
            {"type": "record", "name": "R", "fields": [{"name": n, "type": "string"} for n in names]}
        ),
        "JSON": lambda: json.dumps({"type": "object", "properties": {n: {"type": "string"} for n in names}}),
        "PROTOBUF": lambda: "message M { " + " ".join(f"optional string {n} = 1;" for n in names) + "}",
    }[kind]()
    for target in (f"/subjects/{topic}/versions", f"/compatibility/subjects/{topic}/versions"):
        status, answer = call(registry.url, "POST", target, {"schema": text, "schemaType": kind})
        assert (status, answer["error_code"]) == (422, 42209), answer
        assert "max.message.bytes" in answer["message"]


def test_confluents_java_client(registry: RegistryProcess, client: SchemaRegistryClient, topic: str) -> None:
    """Its calls, and records from Java to Python and back."""
    program, subject = foreign.java_schemas(), f"{topic}-value"
    context = SerializationContext(topic, MessageField.VALUE)
    user = json.dumps({"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]})
    record = AvroSerializer(client, user)({"name": "Python"}, context)
    report = foreign.run(program, registry.url, subject, base64.b64encode(record).decode())
    assert report["read"] == {"name": "Python", "age": 7}
    written = base64.b64decode(report["record"])
    assert AvroDeserializer(client)(written, context) == {"name": "Java", "age": 30}


@pytest.mark.go
def test_franz_gos_client(registry: RegistryProcess) -> None:
    """All calls of pkg/sr, the errors that it knows by number, and a record."""
    program = str(foreign.go_program("go", foreign.HERE / "go", "the Go modules"))
    foreign.run([program], registry.url, "franz-registry", registry.url)
