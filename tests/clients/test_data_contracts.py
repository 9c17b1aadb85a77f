"""Rules of schemas: what our codecs make of a value is what confluent-kafka's serializers make of it, which run them too."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest
from confluent_kafka.schema_registry import (
    Rule,
    RuleKind,
    RuleMode,
    RuleParams,
    RuleSet,
    Schema,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from barnabas.client.registry import RegistryClient
from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.codecs.schemas import Codec, make_codec
from barnabas.schemas.framing import frame, unframe
from tests.clients.cli_support import Cli
from tests.pipelines.readers import consumed
from tests.support.examples import one_in
from tests.support.registry import RegistryProcess, call, own_registry

pytest.importorskip("celpy", reason="the extra `rules` is not installed")

ORDER = json.dumps(
    {
        "type": "record", "name": "Order", "namespace": "shop", "fields": [
            {"name": "id", "type": "string", "confluent:tags": ["PII"]},
            {"name": "price", "type": "double"},
            {"name": "count", "type": "int", "default": 1},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "raw", "type": "bytes", "default": ""},
            {"name": "to", "type": ["null", {"type": "record", "name": "To", "fields": [
                {"name": "street", "type": "string", "confluent:tags": ["PII"]},
                {"name": "codes", "type": {"type": "array", "items": "string"}}]}], "default": None},
        ],
    }
)  # fmt: skip
JSON_ORDER = json.dumps(
    {
        "type": "object", "title": "Order", "required": ["id", "price"], "properties": {
            "id": {"type": "string", "confluent:tags": ["PII"]},
            "price": {"type": "number"},
            "count": {"type": "integer"},
            "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "to": {"type": "object", "properties": {
                "street": {"type": "string", "confluent:tags": ["PII"]},
                "codes": {"type": "array", "items": {"type": "string"}}}},
        },
    }
)  # fmt: skip
PROTO = """syntax = "proto3";
package shop;
import "confluent/meta.proto";
message Order {
  string id = 1 [(confluent.field_meta) = { tags: ["PII"] }];
  double price = 2;
  int32 count = 3;
  optional string note = 4;
  To to = 5;
}
message To {
  string street = 1 [(confluent.field_meta).tags = "PII"];
  repeated string codes = 2;
}
"""
ORDERS: list[dict[str, Any]] = [
    {"id": "a", "price": 1.5, "count": 3, "note": "gift", "to": {"street": "Elm", "codes": ["1", "2"]}},
    {"id": "b@c.org", "price": -1.0, "count": 0, "note": None, "to": None},
    {"id": "", "price": 0.0, "count": 7, "note": "", "to": {"street": "", "codes": []}},
    {"id": "ä", "price": 1e9, "count": -5, "note": "x", "to": {"street": "x" * 50, "codes": ["ä"]}},
]


def rule(kind: str, type: str, expr: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "type": type, "expr": expr, "mode": "WRITE", **more}


CONDITION, TRANSFORM = "CONDITION", "TRANSFORM"
RULES: dict[str, list[dict[str, Any]]] = {
    "condition": [rule(CONDITION, "CEL", "message.price > 0.0")],
    "guarded": [rule(CONDITION, "CEL", "message.count > 0 ; message.price > 1.0")],
    "mail": [rule(CONDITION, "CEL", "message.id.isEmail() || message.count == 3")],
    "nothing such": [rule(CONDITION, "CEL", "message.nothing == 1")],
    "unreadable": [rule(CONDITION, "CEL", "message. ==")],
    "unknown type": [rule(CONDITION, "OTHER", "true")],
    "failure ignored": [rule(CONDITION, "CEL", "message.price > 0.0", onFailure="NONE")],
    "success refused": [rule(CONDITION, "CEL", "message.price > 0.0", onSuccess="ERROR", onFailure="NONE")],
    "disabled": [rule(CONDITION, "CEL", "false", disabled=True)],
    "field": [rule(TRANSFORM, "CEL_FIELD", "typeName == 'STRING' ; value + '!'")],
    "tagged": [rule(TRANSFORM, "CEL_FIELD", "'***'", tags=["PII"])],
    "only the first of a tag": [
        rule(TRANSFORM, "CEL_FIELD", "value + '1'", tags=["PII"]),
        rule(TRANSFORM, "CEL_FIELD", "value + '2'", tags=["PII"]),
    ],
    "one after the other": [
        rule(TRANSFORM, "CEL_FIELD", "value + '1'", tags=["PII"]),
        rule(CONDITION, "CEL", "message.id != '1'"),
    ],
    "field condition": [rule(CONDITION, "CEL_FIELD", "name == 'id' ; value != ''")],
    "type of a field changed": [rule(TRANSFORM, "CEL_FIELD", "5", tags=["PII"])],
    "on both ways": [rule(TRANSFORM, "CEL_FIELD", "value + '+'", tags=["PII"], mode="WRITEREAD")],
    "reading": [rule(CONDITION, "CEL", "message.price > 0.0", mode="READ")],
    "reading, either": [
        rule(CONDITION, "CEL", "message.price > 0.0", mode="WRITEREAD", onFailure="NONE,ERROR"),
        rule(TRANSFORM, "CEL_FIELD", "name + value", tags=["PII"], mode="READ"),
    ],
    "upgrades": [rule(CONDITION, "CEL", "false", mode="UPGRADE")],
}  # fmt: skip
WHOLE = {
    "AVRO": "{'id': message.id + 'x', 'price': message.price * 2.0, 'count': 1, 'note': null, 'raw': b'', 'to': null}",
    "JSON": "{'id': message.id + 'x', 'price': message.price * 2.0}",
    "PROTOBUF": "{'id': message.id + 'x', 'price': message.price * 2.0}",
}


@pytest.fixture(scope="module")
def registry(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    with own_registry(bootstrap, tmp_path_factory.mktemp("registry"), "rules") as process:
        yield process


@pytest.fixture
def schemas(registry: RegistryProcess) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


@pytest.fixture(scope="module")
def executors() -> RuleRegistry:
    from confluent_kafka.schema_registry.rules.cel.cel_executor import CelExecutor
    from confluent_kafka.schema_registry.rules.cel.cel_field_executor import CelFieldExecutor

    rule_registry = RuleRegistry()
    rule_registry.register_executor(CelExecutor())
    rule_registry.register_executor(CelFieldExecutor())
    return rule_registry


def rule_set(rows: list[dict[str, Any]]) -> RuleSet:
    rules = [
        Rule(
            row.get("name", f"rule {number}"), "", RuleKind[row["kind"]], RuleMode[row["mode"]], row["type"],
            row.get("tags") or [], RuleParams(row.get("params") or {}), row["expr"], row.get("onSuccess"),
            row.get("onFailure"), row.get("disabled", False),
        )
        for number, row in enumerate(rows)
    ]  # fmt: skip
    return RuleSet([], rules)


class Pair(NamedTuple):
    """Confluent's serializer, its deserializer, and our codec for the same registered schema."""

    write: Any
    read: Any
    codec: Codec
    schema_id: int


@cache
def message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", syntax="proto3", package="shop")
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=9, label=1)
    order.field.add(name="price", number=2, type=1, label=1)
    order.field.add(name="count", number=3, type=5, label=1)
    order.field.add(name="note", number=4, type=9, label=1, proto3_optional=True, oneof_index=0)
    order.field.add(name="to", number=5, type=11, label=1, type_name=".shop.To")
    order.oneof_decl.add(name="_note")
    to = file.message_type.add(name="To")
    to.field.add(name="street", number=1, type=9, label=1)
    to.field.add(name="codes", number=2, type=9, label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def pair(
    schemas: SchemaRegistryClient, url: str, executors: RuleRegistry, kind: str, rows: list[dict[str, Any]]
) -> tuple[Pair, SerializationContext]:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    text = {"AVRO": ORDER, "JSON": JSON_ORDER, "PROTOBUF": PROTO}[kind]
    number = schemas.register_schema(f"{topic}-value", Schema(text, kind, [], None, rule_set(rows)))
    # One that does not remember the text it registered: the deserializer of Protobuf wants descriptors.
    schemas = SchemaRegistryClient({"url": url})
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    if kind == "AVRO":
        write: Any = AvroSerializer(schemas, conf=latest, rule_registry=executors)
        read: Any = AvroDeserializer(schemas, rule_registry=executors)
    elif kind == "JSON":
        write = JSONSerializer(text, schemas, conf=latest, rule_registry=executors)
        read = JSONDeserializer(None, schema_registry_client=schemas, rule_registry=executors)
    else:
        message_type = message_class()
        write = ProtobufSerializer(message_type, schemas, conf=latest, rule_registry=executors)
        read = ProtobufDeserializer(message_type, {}, schemas, rule_registry=executors)
    registered = RegistryClient(url).by_id(number)
    codec = make_codec(registered.kind, registered.text, [], registered.contract)
    return Pair(write, read, codec, number), SerializationContext(topic, MessageField.VALUE)


def theirs(kind: str, order: dict[str, Any]) -> Any:
    if kind == "PROTOBUF":
        return json_format.ParseDict(ours(kind, order), message_class()())
    return copy.deepcopy({**order, "raw": b""} if kind == "AVRO" else ours(kind, order))


def ours(kind: str, order: dict[str, Any]) -> Any:
    if kind != "AVRO":
        return {name: value for name, value in order.items() if value is not None}
    note, to = order["note"], order["to"]
    return {
        **order, "raw": "", "note": None if note is None else {"string": note},
        "to": None if to is None else {"shop.To": to},
    }  # fmt: skip


def outcome(work: Any, *arguments: Any) -> tuple[bool, Any]:
    """Whether the work was done, and what came of it."""
    try:
        return True, work(*arguments)
    except (SerializationError, Mismatch):
        return False, None
    except (TypeError, ValueError, AttributeError) as error:
        if "IntType" not in str(error) and "must be string" not in str(error):
            raise
        return False, None  # what their encoder says of a value that a rule gave another type


@pytest.mark.parametrize(
    ("name", "kind"),
    one_in(4, [(name, kind) for name in [*RULES, "whole"] for kind in ("AVRO", "JSON", "PROTOBUF")]),
)
def test_the_same_as_confluents_serializers(
    schemas: SchemaRegistryClient, registry: RegistryProcess, executors: RuleRegistry, kind: str, name: str
) -> None:
    rows = RULES.get(name) or [rule(TRANSFORM, "CEL", WHOLE[kind])]
    both, context = pair(schemas, registry.url, executors, kind, rows)
    plain = make_codec(kind, RegistryClient(registry.url).by_id(both.schema_id).text, [])
    for order in ORDERS:
        written, data = outcome(both.write, theirs(kind, order), context)
        done, payload = outcome(both.codec.encode, ours(kind, order))
        assert (done, order) == (written, order)
        if written:
            assert unframe(data)[0] == both.schema_id
            assert plain.decode(payload) == plain.decode(unframe(data)[1])
        # What anybody may have written, without rules, is read alike.
        raw = plain.encode(ours(kind, order))
        taken, value = outcome(both.read, frame(both.schema_id, raw), context)
        read, value_read = outcome(both.codec.decode, raw)
        assert (read, order) == (taken, order)
        if taken:
            assert value_read == shown(plain, kind, value)


def shown(plain: Codec, kind: str, value: Any) -> Any:
    """What their deserializer gave, as our codec shows it."""
    if kind == "PROTOBUF":
        return json_format.MessageToDict(value, preserving_proto_field_name=True)
    if kind == "JSON":
        return value
    rest = {name: inner for name, inner in value.items() if name != "raw"}
    return plain.decode(plain.encode({**ours(kind, rest), "raw": value["raw"].decode("latin-1")}))


def tagged_class() -> Any:
    """A message class as protoc makes it, with tags: Confluent's serializer registers its descriptor."""
    extensions: Any = meta_pb2  # what it has comes from a descriptor
    file = descriptor_pb2.FileDescriptorProto(name="person.proto", syntax="proto3", package="people")
    file.dependency.append("confluent/meta.proto")
    person = file.message_type.add(name="Person")
    person.field.add(name="name", number=1, type=9, label=1).options.Extensions[
        extensions.field_meta
    ].tags.append("PII")
    person.field.add(name="town", number=2, type=9, label=1)
    inner = person.nested_type.add(name="Card")
    inner.field.add(name="number", number=1, type=9, label=3).options.Extensions[
        extensions.field_meta
    ].tags.append("PII")
    person.field.add(name="cards", number=3, type=11, label=3, type_name=".people.Person.Card")
    pool = descriptor_pool.DescriptorPool()
    for known in (descriptor_pb2, meta_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("people.Person"))


def test_tags_of_classes_that_confluents_serializer_registers(
    registry: RegistryProcess, executors: RuleRegistry
) -> None:
    topic, person_class = f"t-{uuid.uuid4().hex[:8]}", tagged_class()
    context = SerializationContext(topic, MessageField.VALUE)
    client = SchemaRegistryClient({"url": registry.url})
    person = person_class(name="Ann", town="Rome", cards=[{"number": ["1", "2"]}])
    ProtobufSerializer(person_class, client)(person, context)
    registered_schema = client.get_latest_version(f"{topic}-value").schema
    assert '[(confluent.field_meta) = { tags : [ "PII" ] }]' in registered_schema.schema_str
    rules = rule_set([rule(TRANSFORM, "CEL_FIELD", "'***'", tags=["PII"])])
    number = client.register_schema(
        f"{topic}-value",
        Schema(registered_schema.schema_str, "PROTOBUF", registered_schema.references, None, rules),
    )
    latest = {"auto.register.schemas": False, "use.latest.version": True}
    fresh = SchemaRegistryClient({"url": registry.url})
    theirs = ProtobufSerializer(person_class, fresh, conf=latest, rule_registry=executors)(person, context)
    schema = RegistryClient(registry.url).by_id(number)
    codec = make_codec(schema.kind, schema.text, [], schema.contract)
    masked = {"name": "***", "town": "Rome", "cards": [{"number": ["***", "***"]}]}
    assert codec.decode(unframe(theirs)[1]) == masked
    value = {"name": "Ann", "town": "Rome", "cards": [{"number": ["1", "2"]}]}
    assert codec.decode(codec.encode(value)) == masked


def test_a_rule_that_cannot_be_read_is_not_registered(
    schemas: SchemaRegistryClient, registry: RegistryProcess
) -> None:
    subject = f"s-{uuid.uuid4().hex[:8]}-value"
    bad = Schema(ORDER, "AVRO", [], None, rule_set(RULES["unreadable"]))
    assert call(registry.url, "PUT", f"/config/{subject}", {"validateRules": True})[0] == 200
    with pytest.raises(
        SchemaRegistryError, match=r"rule 'rule 0': 'message. ==' is not valid CEL"
    ) as refused:
        schemas.register_schema(subject, bad)
    assert refused.value.error_code == 42210
    schemas.register_schema(subject, Schema(ORDER, "AVRO", [], None, rule_set(RULES["mail"])))
    schemas.register_schema(f"{subject}-2", bad)


def test_names_that_are_kept(registry: RegistryProcess) -> None:
    subject = f"s-{uuid.uuid4().hex[:8]}"

    def register(names: str, reserved: str) -> tuple[int, Any]:
        fields = [{"name": name, "type": "int", "default": 0} for name in names.split(",")]
        schema = json.dumps({"type": "record", "name": "R", "fields": fields})
        body = {"schema": schema, "metadata": {"properties": {"confluent:reserved": reserved}}}
        return call(registry.url, "POST", f"/subjects/{subject}/versions", body)

    assert call(registry.url, "PUT", f"/config/{subject}", {"validateFields": True})[0] == 200
    assert register("a", "b,c")[0] == 200
    status, answer = register("a,b", "b,c")
    assert (status, answer["error_code"]) == (409, 409)
    assert "FIELD_CONFLICTS_WITH_RESERVED_FIELD" in answer["message"]
    assert "RESERVED_FIELD_REMOVED" in register("a,b", "c")[1]["message"]
    body = {"schema": json.dumps({"type": "object", "properties": {"$$a": {}}}), "schemaType": "JSON"}
    assert call(registry.url, "PUT", f"/config/{subject}-json", {"validateFields": True})[0] == 200
    status, answer = call(registry.url, "POST", f"/subjects/{subject}-json/versions", body)
    assert (status, answer["error_code"]) == (422, 42201)
    assert "must not begin with $$" in answer["message"]


def test_the_command_line_sends_what_a_rule_refuses_to_its_topic(
    cli: Cli, bootstrap: str, registry: RegistryProcess, schemas: SchemaRegistryClient
) -> None:
    topic, dead = cli.topic(), cli.topic()
    rows = [
        rule(CONDITION, "CEL", "message.price > 0.0", onFailure="DLQ", params={"dlq.topic": dead}),
        rule(TRANSFORM, "CEL_FIELD", "'***'", tags=["PII"]),
    ]
    schemas.register_schema(f"{topic}-value", Schema(ORDER, "AVRO", [], None, rule_set(rows)))
    lines = b'{"id":"a","price":1}\n{"id":"b","price":-1}\n{"id":"c","price":2}\n'
    done = cli("produce", topic, "-q", "-s", "value=avro", "-r", registry.url, stdin=lines, code=1)
    printed = done.stderr.decode()
    assert "line 2: value: rule 'rule 0' refuses the value: message.price > 0.0; sent to " + dead in printed
    assert [AvroDeserializer(schemas)(row.value)["price"] for row in consumed(bootstrap, topic)] == [1.0, 2.0]
    assert AvroDeserializer(schemas)(consumed(bootstrap, topic)[0].value)["id"] == "***"
    [letter] = consumed(bootstrap, dead)
    assert letter.value == b'{"id":"b","price":-1}'
