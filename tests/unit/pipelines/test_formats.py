"""Records with schemas to columns and back: what other people's serializers write is read, and the reverse."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import random
import uuid
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from barnabas.client.registry import RegistryClient, RegistryError
from barnabas.pipelines.formats import decoding
from barnabas.pipelines.formats.avro import AvroWriter, schema_of
from barnabas.pipelines.formats.base import NoColumns, Unfit
from barnabas.pipelines.formats.columns import ARROW_TYPES
from barnabas.pipelines.formats.decoding import Decoding, with_carried
from barnabas.pipelines.formats.encoding import Encoding
from barnabas.schemas.framing import NotFramed, Schema, frame, unframe

UTC = datetime.UTC


class Known(RegistryClient):
    """A registry that holds what it is given. down: it does not answer."""

    def __init__(self, *schemas: Schema) -> None:
        super().__init__("http://nowhere:1")
        self.held = {schema.id: schema for schema in schemas}
        self.asked: list[int] = []
        self.down = False

    def by_id(self, schema_id: int) -> Schema:
        self.asked.append(schema_id)
        if self.down:
            raise RegistryError("no registry answers", 0)
        if schema_id not in self.held:
            raise RegistryError("Schema not found", 40403)
        return self.held[schema_id]

    def by_guid(self, guid: str) -> Schema:
        self.asked.append(int(uuid.UUID(guid)))
        schema = self.held.get(int(uuid.UUID(guid)))
        if schema is None:
            raise RegistryError("Schema not found", 40403)
        return schema._replace(id=0, guid=guid)


def avro(number: int, fields: Any, *dependencies: tuple[str, str]) -> Schema:
    tree = {"type": "record", "name": "Order", "fields": fields} if isinstance(fields, list) else fields
    return Schema(number, "AVRO", json.dumps(tree), dependencies)


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def written(schema: Schema, value: Any) -> bytes:
    """What fastavro, and so everybody's serializer, writes."""
    named: dict[str, Any] = {}
    for _, text in schema.dependencies:
        fastavro.parse_schema(json.loads(text), named_schemas=named)
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(json.loads(schema.text), named_schemas=named), value
    )
    return frame(schema.id, out.getvalue())


def decoded(
    reader: Schema, *records: bytes | None, known: RegistryClient | None = None
) -> tuple[list[Any], list[Any]]:
    decoded_rows = Decoding(known or Known(reader), reader).decode(pa.array(records, pa.binary()))
    return decoded_rows.field("v").to_pylist(), decoded_rows.field("error").to_pylist()


MOMENT = datetime.datetime(2026, 1, 31, 12, 0, 0, 123_000, UTC)


@pytest.mark.parametrize(
    ("kind", "value", "type", "read"),
    [
        ("boolean", True, pa.bool_(), True),
        ("int", -5, pa.int32(), -5),
        ("long", 1 << 40, pa.int64(), 1 << 40),
        ("float", 0.5, pa.float32(), 0.5),
        ("double", 0.1, pa.float64(), 0.1),
        ("bytes", b"\xff", pa.binary(), b"\xff"),
        ("string", "ä", pa.string(), "ä"),
        (["null", "string"], None, pa.string(), None),
        (["null", "long"], 3, pa.int64(), 3),
        (["int", "long"], 1 << 40, pa.int64(), 1 << 40),
        (["int", "string"], "x", pa.string(), '"x"'),
        (["int", "string"], 7, pa.string(), "7"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(), b"ab"),
        ({"type": "array", "items": "int"}, [1, 2], pa.list_(pa.int32()), [1, 2]),
        ({"type": "map", "values": "int"}, {"a": 1}, pa.map_(pa.string(), pa.int32()), [("a", 1)]),
        ({"type": "int", "logicalType": "date"}, datetime.date(2026, 1, 2), pa.date32(), datetime.date(2026, 1, 2)),
        ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT, pa.timestamp("us", "UTC"), MOMENT),
        ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT, pa.timestamp("us", "UTC"), MOMENT),
        ({"type": "long", "logicalType": "time-micros"}, datetime.time(0, 0, 1), pa.int64(), 1_000_000),
        ({"type": "string", "logicalType": "uuid"}, "6f1c0fdc-5b2b-4f0e-9c0e-1f1e6f1c0fdc", pa.string(),
         "6f1c0fdc-5b2b-4f0e-9c0e-1f1e6f1c0fdc"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, decimal.Decimal("12.50"),
         pa.decimal128(9, 2), decimal.Decimal("12.50")),
        (["null", {"type": "array", "items": {"type": "map", "values": "long"}}], [{"a": 1}],
         pa.list_(pa.map_(pa.string(), pa.int64())), [[("a", 1)]]),
        ({"type": "record", "name": "In", "fields": [field("x", ["null", {"type": "map", "values": "int"}])]},
         {"x": None}, pa.struct([("x", pa.map_(pa.string(), pa.int32()))]), {"x": None}),
    ],
)  # fmt: skip
def test_types_of_avro(kind: Any, value: Any, type: pa.DataType, read: Any) -> None:
    schema = avro(1, [field("f", kind)])
    assert Decoding(Known(), schema).reader.type == pa.struct([("f", type)])
    assert decoded(schema, written(schema, {"f": value})) == ([{"f": read}], [None])


MANY = [
    field("flag", ["null", "boolean"]), field("i", "int"), field("l", ["long", "null"]), field("f", "float"),
    field("d", "double"), field("raw", ["null", "bytes"]), field("text", "string"),
    field("e", {"type": "enum", "name": "E", "symbols": ["A", "BC"]}),
    field("x", ["null", {"type": "fixed", "name": "F", "size": 3}]), field("nothing", "null"),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    field("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
    field("list", {"type": "array", "items": ["null", {"type": "record", "name": "In", "fields": [field("n", "int")]}]}),
    field("map", ["null", {"type": "map", "values": {"type": "array", "items": "string"}}]),
]  # fmt: skip


def some_row(rng: random.Random) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return rng.choice([None, value])

    return {
        "flag": maybe(rng.random() < 0.5), "i": rng.randrange(-(1 << 31), 1 << 31), "l": maybe(rng.getrandbits(63)),
        "f": 0.5, "d": rng.random(), "raw": maybe(rng.randbytes(rng.randrange(5))), "text": "ä" * rng.randrange(4),
        "e": rng.choice(["A", "BC"]), "x": maybe(b"abc"), "nothing": None, "at": maybe(MOMENT),
        "price": decimal.Decimal(rng.randrange(-(10**9) + 1, 10**9)).scaleb(-2),
        "list": [maybe({"n": n}) for n in range(rng.randrange(4))],
        "map": maybe({key: ["x"] * rng.randrange(3) for key in "ab"[: rng.randrange(3)]}),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_a_batch_at_once_is_what_records_are_one_by_one(seed: int) -> None:
    """The compiled way reads what the other one reads; damage is found by both, and never leads it out of its bounds."""
    rng = random.Random(seed)
    schema, other = avro(1, MANY), avro(2, MANY)
    rows = [some_row(rng) for _ in range(rng.randrange(1, 40))]
    records = [written(schema, row) for row in rows]
    decoding = Decoding(Known(schema, other), schema)
    column = pa.array([b"before", *records, b"behind"], pa.binary()).slice(1, len(records))
    assert decoding.reader.columns(column) is not None
    slow = [written(other, row) for row in rows]  # the same schema by another id takes the slow way
    assert decoding.reader.columns(pa.array(slow, pa.binary())) is None
    assert decoding.decode(column).to_pylist() == decoding.decode(pa.array(slow, pa.binary())).to_pylist()
    for _ in range(20):
        broken = bytearray(rng.choice(records)[5:])
        for _ in range(rng.randrange(1, 4)):
            broken[rng.randrange(len(broken))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        del broken[len(broken) - rng.choice([0, 0, 1, 3]) :]
        (fast,), (error,) = decoded(schema, frame(1, bytes(broken)))
        (read,), (reason,) = decoded(schema, frame(2, bytes(broken)), known=Known(schema, other))
        assert (repr(fast), error is None) == (repr(read), reason is None)


def test_versions_that_come_while_a_query_runs() -> None:
    first = avro(1, [field("id", "int"), field("name", "string", aliases=["title"])])
    more = avro(
        2, [field("id", "int"), field("name", "string"), field("tags", {"type": "array", "items": "string"})]
    )
    fewer = avro(3, [field("title", "string"), field("id", "int")])
    broken = avro(4, [field("id", "string"), field("name", "string")])
    known = Known(first, more, fewer, broken)
    records = [
        written(more, {"id": 1, "name": "a", "tags": ["x"]}),
        written(fewer, {"id": 2, "title": "b"}),
        written(broken, {"id": "3", "name": "c"}),
        written(first, {"id": 4, "name": "d"}),
    ]
    rows, errors = decoded(first, *records, *records, known=known)
    assert rows == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, None, {"id": 4, "name": "d"}] * 2
    assert [error is None for error in errors] == [True, True, False, True] * 2
    assert errors[2].startswith("the bytes do not suit schema 4")
    assert sorted(known.asked) == [1, 2, 3, 4]


def test_what_cannot_be_decoded_says_why() -> None:
    schema = avro(1, [field("n", "long")])
    other = Schema(2, "JSON", "{}")
    good = written(schema, {"n": 1})
    records = [
        None,
        b"",
        b"{}",
        b"\0\0\0",
        frame(9, b"\2"),
        frame(2, b"{}"),
        frame(1, b""),
        good + b"\0",
        good,
    ]
    rows, errors = decoded(schema, *records, known=Known(schema, other))
    assert rows == [None] * 8 + [{"n": 1}]
    assert errors[-1] is None
    for error, reason in zip(
        errors,
        (
            "there are no bytes", "the bytes do not begin with the id of a schema", "0x7b7d", "0x000000",
            "the registry has no schema with id 9", "schema 2 is of type JSON, not AVRO", "do not suit schema 1",
            "1 bytes follow the value",
        ),
        strict=False,
    ):  # fmt: skip
        assert reason in error


def test_schemas_that_headers_name() -> None:
    ours, other = avro(1, [field("n", "int")]), avro(2, [field("n", "int"), field("m", "int")])
    guids = {number: uuid.UUID(int=number) for number in (100, 200, 300)}
    known = Known(ours, other)
    known.held |= {100: ours._replace(id=7), 200: other}  # a registry may call a schema by another id there

    def guid(number: int) -> bytes:
        return b"\1" + guids[number].bytes

    def plain(schema: Schema, row: dict[str, int]) -> bytes:
        return written(schema, row)[5:]

    records = [plain(ours, {"n": n}) for n in range(4)]
    headers: list[Any] = [
        [{"key": "trace", "value": b"t"}, {"key": "__value_schema_id", "value": guid(100)}]
    ] * 4
    decoding = Decoding(known, ours)

    def read(values: list[bytes | None], said: list[Any]) -> list[Any]:
        # A slice, as the source makes them: what is before it counts for nothing.
        rows = pa.array([b"before", *values], pa.binary())[1:]
        heads = pa.array([[{"key": "__value_schema_id", "value": b"x"}], *said], ARROW_TYPES["headers"])[1:]
        decoded_rows = decoding.decode(with_carried(rows, heads, "value"))
        return [
            error or row["n"]
            for row, error in zip(
                decoded_rows.field("v").to_pylist(), decoded_rows.field("error").to_pylist(), strict=True
            )
        ]

    assert read(records, headers) == [0, 1, 2, 3]
    assert known.asked == [100], "a batch of one GUID is read at once, and its schema is asked for once"
    mixed = [*records, plain(other, {"n": 8, "m": 1}), written(ours, {"n": 9}), b"x", None, records[1]]
    by_id = [
        {"key": "__value_schema_id", "value": b"\0\0\0\0\1"},
        {"key": "__value_schema_id", "value": guid(200)},
    ]
    carried = [
        *headers,
        [{"key": "__value_schema_id", "value": guid(200)}],
        None,
        [{"key": "__key_schema_id", "value": guid(100)}],
        headers[0],
        by_id,
    ]
    assert read(mixed, carried) == [
        0, 1, 2, 3, 8, 9, "the bytes do not begin with the id of a schema: 0x78", "there are no bytes to decode", 1,
    ]  # fmt: skip
    unknown = [{"key": "__value_schema_id", "value": guid(300)}]
    why = f"the registry has no schema with GUID {guids[300]}"
    assert read(records[:2], [unknown, headers[0]]) == [why, 1]
    assert read([b""], [[{"key": "__value_schema_id", "value": b""}]]) == [
        "the bytes do not begin with the id of a schema: 0x"
    ]


def test_one_value_that_no_column_takes_costs_one_row() -> None:
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    schema, plain = avro(1, [field("at", kind)]), avro(2, [field("at", "long")])
    records = [written(plain, {"at": number}) for number in (0, (1 << 63) - 1, 1000)]
    rows, errors = decoded(schema, *records, known=Known(schema, plain))
    assert rows == [
        {"at": datetime.datetime(1970, 1, 1, tzinfo=UTC)}, None, {"at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)},
    ]  # fmt: skip
    assert [error is None for error in errors] == [True, False, True]
    assert errors[1].startswith("a value does not fit its column")


def test_a_registry_that_does_not_answer_is_no_fault_of_the_record() -> None:
    schema, later = avro(1, [field("n", "long")]), avro(2, [field("n", "long")])
    known = Known(schema, later)
    at = Decoding(known, schema)
    known.down = True
    with pytest.raises(RegistryError):
        at.decode(pa.array([written(later, {"n": 1})], pa.binary()))
    known.down = False
    assert at.decode(pa.array([written(later, {"n": 1})], pa.binary())).field("v").to_pylist() == [{"n": 1}]


def test_an_id_that_is_registered_later() -> None:
    schema, later = avro(1, [field("n", "long")]), avro(2, [field("n", "long")])
    known, now = Known(schema), [0.0]
    at = Decoding(known, schema, lambda: now[0])
    records = pa.array([written(later, {"n": 1})] * 3, pa.binary())
    assert at.decode(records).field("v").to_pylist() == [None] * 3
    assert known.asked == [2]
    known.held[2] = later
    now[0] = decoding.FORGET_S
    assert at.decode(records).field("v").to_pylist() == [{"n": 1}] * 3


def test_a_record_that_needs_a_migration_rule() -> None:
    rule = {"name": "up", "kind": "TRANSFORM", "type": "JSONATA", "mode": "UPGRADE", "expr": "$"}
    contracts = [
        json.dumps({"ruleSet": {"migrationRules": [{**rule, "disabled": off}]}}) for off in (False, True)
    ]
    old, plain = avro(1, [field("n", "long")]), avro(2, [field("n", "long")])
    for contract, wanted in zip(contracts, (None, {"n": 1}), strict=True):
        new = plain._replace(contract=contract)
        rows, errors = decoded(new, written(old, {"n": 1}), written(new, {"n": 2}), known=Known(old, new))
        assert rows == [wanted, {"n": 2}]
        assert wanted is not None or "migration rules, which are not applied here" in errors[0]


def test_a_schema_that_refers_to_others() -> None:
    item = json.dumps({"type": "record", "name": "shop.Item", "fields": [field("sku", "string")]})
    schema = avro(1, [field("items", {"type": "array", "items": "shop.Item"})], ("shop.Item", item))
    assert decoded(schema, written(schema, {"items": [{"sku": "a"}]})) == (
        [{"items": [{"sku": "a"}]}],
        [None],
    )


def test_a_schema_that_is_no_record() -> None:
    schema = avro(1, "string")
    assert decoded(schema, written(schema, "x")) == ([{"value": "x"}], [None])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (avro(1, [field("next", ["null", "Order"])]), "next: Order contains itself"),
        (avro(1, []), "has no fields"),
        (Schema(1, "AVRO", '{"type": "recrd"}'), "schema 1 is not Avro"),
        (Schema(1, "JSON", "{"), "schema 1 is not JSON"),
        (Schema(1, "JSON", "{}"), "declares no properties"),
        (Schema(1, "JSON", '{"properties": {"a": {"$ref": "#"}}}'), "contains itself"),
        (Schema(1, "PROTOBUF", "message {"), "schema 1 is not Protobuf"),
        (Schema(1, "PROTOBUF", 'syntax = "proto3"; message A { A a = 1; }'), "A contains itself"),
        (Schema(1, "XML", ""), "type XML"),
    ],
)
def test_schemas_that_cannot_be_columns(schema: Schema, reason: str) -> None:
    with pytest.raises(NoColumns, match=reason):
        Decoding(Known(), schema)


def test_json_schema() -> None:
    tree = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": "number"},
            "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
            "any": {},
        },
        "$defs": {"tag": {"type": "object", "properties": {"t": {"type": ["null", "boolean"]}}}},
    }
    schema = Schema(1, "JSON", json.dumps(tree))
    rows = [
        {"id": 1, "price": 2, "name": None, "tags": [{"t": True}, {"u": 1}], "any": {"x": [1]}, "more": 1},
        {"id": "1"}, {"id": True}, {"id": 1 << 70}, [], {"tags": 1}, {"id": 2.0},
    ]  # fmt: skip
    rows_read, errors = decoded(schema, *[frame(1, json.dumps(row).encode()) for row in rows], frame(1, b"{"))
    nothing = dict.fromkeys(tree["properties"])
    assert rows_read[0] == {
        "id": 1, "price": 2.0, "name": None, "tags": [{"t": True}, {"t": None}], "any": '{"x": [1]}',
    }  # fmt: skip
    assert rows_read[1:] == [None, None, None, None, None, {**nothing, "id": 2}, None]
    for error, reason in zip(
        errors[1:6],
        ("not of type integer", "true", "does not fit", "[] is not an object", "1 is not an array"),
        strict=True,
    ):
        assert reason in error


PROTO = """
syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto"; import "google/protobuf/wrappers.proto";
message Order {
  string id = 1; int64 count = 2; optional double price = 3; repeated string tags = 4; map<string, int32> sizes = 5;
  Kind kind = 6; Item item = 7; google.protobuf.Timestamp at = 8; google.protobuf.StringValue note = 9; uint64 big = 10;
  message Item { bytes raw = 1; }
  enum Kind { NONE = 0; NEW = 1; }
}
message Other { string id = 1; }
"""


def test_protobuf() -> None:
    schema = Schema(1, "PROTOBUF", PROTO)
    from barnabas.schemas.formats.protobuf import read_protobuf

    descriptor = descriptor_pb2.FileDescriptorProto()
    read_protobuf(PROTO).descriptor.CopyToProto(descriptor)
    pool = descriptor_pool.DescriptorPool()
    for name in descriptor.dependency:
        pool.AddSerializedFile(descriptor_pool.Default().FindFileByName(name).serialized_pb)
    pool.AddSerializedFile(descriptor.SerializeToString())
    order_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    order = order_class(id="a", count=5, tags=["x"], sizes={"l": 2}, kind=1, big=(1 << 64) - 1)
    order.item.raw = b"\xff"
    order.at.seconds = 1
    order.note.value = "n"
    records = [
        b"\0" + order.SerializeToString(),
        b"\0" + order_class().SerializeToString(),
        b"\2\2",
        b"\2\4",
        b"\0\xff",
        b"",
    ]
    rows, errors = decoded(schema, *[frame(1, payload) for payload in records])
    written = Encoding(schema).encode(pa.array(rows[:2], Decoding(Known(schema), schema).reader.type))
    assert written.field("error").to_pylist() == [None, None]
    for record, message in zip(written.field("v").to_pylist(), (order, order_class()), strict=True):
        head, payload = unframe(record)
        assert (head, payload[:1], order_class.FromString(payload[1:])) == (1, b"\0", message)
    assert rows[0] == {
        "id": "a", "count": 5, "price": None, "tags": ["x"], "sizes": [("l", 2)], "kind": "NEW", "item": {"raw": b"\xff"},
        "at": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "note": "n", "big": decimal.Decimal((1 << 64) - 1),
    }  # fmt: skip
    assert rows[1] == {
        "id": "", "count": 0, "price": None, "tags": [], "sizes": [], "kind": "NONE", "item": None, "at": None, "note": None,
        "big": decimal.Decimal(0),
    }  # fmt: skip
    assert rows[2:] == [None] * 4
    for error, reason in zip(
        errors[2:],
        ("a shop.Other, not a shop.Order", "names? a message that", "do not suit", "do not name"),
        strict=True,
    ):
        assert reason.replace("?", "") in error or reason.replace("s?", "") in error


def test_rows_that_suit_no_message() -> None:
    schema = Schema(1, "PROTOBUF", PROTO)
    rows = [
        {"count": 1 << 63},
        {"kind": "OLD"},
        {"sizes": {"l": 1 << 40}},
        {"big": decimal.Decimal(-1)},
        {"id": "a"},
    ]
    type = pa.struct(
        [("id", pa.string()), ("count", pa.decimal128(20)), ("kind", pa.string()), ("big", pa.decimal128(20)),
         ("sizes", pa.map_(pa.string(), pa.int64()))]
    )  # fmt: skip
    rows_given = [{**row, "sizes": list(row.get("sizes", {}).items())} for row in rows]  # type: ignore[attr-defined]
    encoded = Encoding(schema).encode(pa.array(rows_given, type))
    assert [error is None for error in encoded.field("error").to_pylist()] == [False] * 4 + [True]
    assert "'OLD' is not one of the names of shop.Order.Kind" in encoded.field("error")[1].as_py()


ROWS = pa.struct(
    [("id", pa.int64()), ("price", pa.decimal128(9, 2)), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string())),
     ("sizes", pa.map_(pa.string(), pa.int32())), ("item", pa.struct([("sku", pa.string()), ("raw", pa.binary())]))]
)  # fmt: skip


def test_a_schema_made_of_fields_reads_what_it_wrote() -> None:
    schema = Schema(7, "AVRO", schema_of(ROWS, "orders"))
    rows = [
        {"id": 1, "price": decimal.Decimal("1.50"), "at": MOMENT, "tags": ["a"], "sizes": [("l", 1)],
         "item": {"sku": "s", "raw": b"r"}},
        dict.fromkeys(ROWS.names),
    ]  # fmt: skip
    encoded = Encoding(schema).encode(pa.array(rows, ROWS))
    assert encoded.field("error").to_pylist() == [None, None]
    records = encoded.field("v").to_pylist()
    assert decoded(schema, *records) == (rows, [None, None])
    schema_id, payload = unframe(records[0])
    read = fastavro.schemaless_reader(
        io.BytesIO(payload), fastavro.parse_schema(json.loads(schema.text)), None
    )
    assert (schema_id, read["price"], read["at"]) == (7, decimal.Decimal("1.50"), MOMENT)


def test_a_row_that_does_not_suit_its_schema() -> None:
    schema = avro(
        1, [field("id", "int"), field("kind", {"type": "enum", "name": "K", "symbols": ["A"]}, default="A")]
    )
    rows = pa.array(
        [
            {"id": 1, "kind": "A"},
            {"id": 1 << 40, "kind": "A"},
            {"id": 1, "kind": "B"},
            {"id": None, "kind": "A"},
        ]
    )
    encoded = Encoding(schema).encode(rows)
    assert [value is None for value in encoded.field("v").to_pylist()] == [False, True, True, True]
    assert all("do not suit schema 1" in error for error in encoded.field("error").to_pylist()[1:])


@pytest.mark.parametrize("kind", ["record", "error"])
def test_a_whole_number_that_does_not_suit_a_record_in_a_record(kind: str) -> None:
    inner = {"type": kind, "name": "In", "fields": [field("n", "int")]}
    writer = AvroWriter(avro(1, [field("a", inner), field("b", ["null", "In"])]))
    assert writer.encode({"a": {"n": 1}, "b": {"n": 2}}) == b"\x02\x02\x04"
    for row in ({"a": {"n": 1 << 31}, "b": None}, {"a": {"n": 1}, "b": {"n": 1 << 31}}):
        with pytest.raises(Unfit, match="too large for an int"):
            writer.encode(row)


def test_rows_as_json() -> None:
    tree = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 3}},
        "required": ["id"],
    }
    encoded = Encoding(Schema(3, "JSON", json.dumps(tree))).encode(
        pa.array([{"id": 1, "name": None}, {"id": None, "name": "a"}, {"id": 1, "name": "long"}])
    )
    assert encoded.field("v").to_pylist() == [frame(3, b'{"id":1}'), None, None]
    assert "/name" in encoded.field("error")[2].as_py()


@pytest.mark.parametrize(
    ("type", "reason"),
    [
        (pa.struct([("a b", pa.int64())]), "a b is not a field name"),
        (pa.struct([("a", pa.struct([("ä", pa.int64())]))]), "a.ä is not a field name"),
        (pa.struct([("a", pa.duration("us"))]), "a is of type duration"),
    ],
)
def test_fields_that_avro_cannot_hold(type: pa.StructType, reason: str) -> None:
    with pytest.raises(NoColumns, match=reason):
        schema_of(type, "x")


def test_the_head_of_a_record() -> None:
    assert unframe(frame((1 << 32) - 1, b"x")) == ((1 << 32) - 1, b"x")
    with pytest.raises(NotFramed):
        unframe(b"\1\0\0\0\1x")
