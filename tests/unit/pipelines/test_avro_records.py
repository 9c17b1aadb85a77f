"""Rows to Avro records by compiled code: fastavro reads what was given, row for row, and what it refuses is refused."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from barnabas.pipelines.formats.avro import AvroWriter, schema_of
from barnabas.pipelines.formats.encoding import Encoding
from barnabas.schemas.framing import Schema, unframe

UTC = datetime.UTC
PLAIN: list[tuple[Any, pa.DataType]] = [
    ("boolean", pa.bool_()),
    ("int", pa.int32()),
    ("int", pa.int8()),
    ("int", pa.int64()),
    ("long", pa.int64()),
    ("long", pa.int16()),
    ("float", pa.float32()),
    ("float", pa.float64()),
    ("double", pa.float64()),
    ("double", pa.float32()),
    ("bytes", pa.binary()),
    ("string", pa.string()),
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC")),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("us")),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}, pa.decimal128(38, 0)),
]
MOMENTS = [
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime.datetime(2026, 1, 31, 12, 0, 0, 123_456),
    datetime.datetime(1, 1, 1),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999),
]


class Made:
    """Schemas, types and values at random; names of their own."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.names = 0

    def name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    def pair(self, depth: int) -> tuple[Any, pa.DataType]:
        """A schema and a type of columns for it."""
        kinds = ["plain", "plain", "enum", "fixed", "decimal"] + (["array", "map", "record"] if depth else [])
        match self.rng.choice(kinds):
            case "enum":
                return {"type": "enum", "name": self.name(), "symbols": ["A", "BC", "D"]}, pa.string()
            case "fixed":
                return {"type": "fixed", "name": self.name(), "size": 3}, pa.binary()
            case "decimal":
                fixed = {"type": "fixed", "name": self.name(), "size": 5, "logicalType": "decimal"}
                return {**fixed, "precision": 9, "scale": 3}, pa.decimal128(9, 3)
            case "array":
                items, item_type = self.nullable(depth - 1)
                return {"type": "array", "items": items}, pa.list_(item_type)
            case "map":
                items, item_type = self.nullable(depth - 1)
                return {"type": "map", "values": items}, pa.map_(pa.string(), item_type)
            case "record":
                return self.record(depth - 1)
        return self.rng.choice(PLAIN)

    def nullable(self, depth: int) -> tuple[Any, pa.DataType]:
        kind, arrow_type = self.pair(depth)
        return self.rng.choice([kind, ["null", kind], [kind, "null"], [kind]]), arrow_type

    def record(self, depth: int) -> tuple[Any, pa.StructType]:
        fields, columns = [], []
        for _ in range(self.rng.randrange(1, 6)):
            kind, arrow_type = self.nullable(depth)
            name = self.name()
            fields.append({"name": name, "type": kind})
            columns.append(pa.field(name, arrow_type))
        if self.rng.random() < 0.3:
            fields.append({"name": self.name(), "type": ["null", "string"], "default": None})
        if self.rng.random() < 0.3:
            inner = {"type": "record", "name": self.name(), "fields": [{"name": "x", "type": "int"}]}
            fields.append({"name": self.name(), "type": inner, "default": {"x": 70_000}})
        self.rng.shuffle(columns)
        return {"type": "record", "name": self.name(), "fields": fields}, pa.struct(columns)

    def value(self, type: pa.DataType, nulls: float) -> Any:
        rng = self.rng
        if rng.random() < nulls:
            return None
        if pa.types.is_struct(type):
            return {field.name: self.value(field.type, nulls) for field in type}
        if pa.types.is_list(type):
            return [self.value(type.value_type, nulls) for _ in range(rng.randrange(4))]
        if pa.types.is_map(type):
            return [(f"k{i}", self.value(type.item_type, nulls)) for i in range(rng.randrange(4))]
        if pa.types.is_integer(type):
            bits = rng.randrange(1, type.bit_width)
            return rng.choice([0, -1, 1, rng.getrandbits(bits) >> 1, -(1 << bits), (1 << bits) - 1])
        if pa.types.is_floating(type):
            return rng.choice([0.0, -0.5, 1e30, float("inf"), rng.randrange(100) / 4])
        if pa.types.is_decimal(type):
            digits = rng.randrange(1, type.precision + 1)
            whole = rng.choice([0, -1, 127, 128, -128, -129, rng.randrange(10**digits), 1 - 10**digits])
            with decimal.localcontext(prec=60):
                return decimal.Decimal(whole).scaleb(-type.scale)
        if pa.types.is_timestamp(type):
            return rng.choice(MOMENTS).replace(tzinfo=UTC if type.tz else None)
        return {
            pa.bool_(): rng.random() < 0.5,
            pa.string(): rng.choice(["", "ä", "A", "BC", "long" * 40]),
            pa.binary(): rng.choice([b"", b"abc", b"\xff\x00\x01", b"x" * 200]),
            pa.date32(): rng.choice(
                [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2026, 1, 2)]
            ),
        }[type]


def one_by_one(schema: Schema, rows: pa.StructArray) -> list[Any]:
    """What fastavro reads of what it wrote, or None where it refuses the row."""
    slow = Encoding(schema)
    slow.writer.records = lambda rows: None  # type: ignore[method-assign]
    encoded = slow.encode(rows)
    return [None if record is None else read(schema, record) for record in encoded.field("v").to_pylist()]


def read(schema: Schema, record: bytes) -> Any:
    number, payload = unframe(record)
    assert number == schema.id
    source = io.BytesIO(payload)
    value = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(schema.text)), None)
    assert source.tell() == len(payload)
    return value


@pytest.mark.parametrize("seed", range(150))
def test_what_fastavro_writes(seed: int) -> None:
    generated = Made(seed)
    tree, type = generated.record(3)
    schema = Schema(seed << 20, "AVRO", json.dumps(tree))
    values = [
        generated.value(type, generated.rng.choice([0, 0, 0.02, 0.2])) or {}
        for _ in range(generated.rng.randrange(1, 40))
    ]
    first = generated.rng.randrange(len(values))
    rows = pa.array(values, type).slice(first)
    encoding = Encoding(schema)
    assert encoding.writer.records(rows) is not None
    for _ in range(2):  # what was looked at before is not
        encoded = encoding.encode(rows)
        wanted = one_by_one(schema, rows)
        records, errors = encoded.field("v").to_pylist(), encoded.field("error").to_pylist()
        assert [None if record is None else read(schema, record) for record in records] == wanted
        assert [error is None for error in errors] == [value is not None for value in wanted]


@pytest.mark.parametrize(
    ("kind", "type", "good", "bad", "why"),
    [
        ("int", pa.int64(), 1, 1 << 31, "too large for an int"),
        ("int", pa.int64(), -(1 << 31), -(1 << 31) - 1, "too large for an int"),
        ("string", pa.string(), "a", None, ""),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B", "C", "C"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.binary(), b"ab", b"abc", ""),
        (["null", {"type": "array", "items": "int"}], pa.list_(pa.int32()), [1], [None], ""),
        ({"type": "fixed", "name": "D", "size": 1, "logicalType": "decimal", "precision": 2}, pa.decimal128(2, 0),
         decimal.Decimal(99), None, ""),
    ],
)  # fmt: skip
def test_a_row_that_does_not_suit(kind: Any, type: pa.DataType, good: Any, bad: Any, why: str) -> None:
    tree = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    schema = Schema(7, "AVRO", json.dumps(tree))
    rows = pa.array([{"f": good}, {"f": bad}, {"f": good}], pa.struct([("f", type)]))
    encoded = Encoding(schema).encode(rows)
    assert [record and read(schema, record) for record in encoded.field("v").to_pylist()] == [
        {"f": good}, None, {"f": good},
    ]  # fmt: skip
    errors = encoded.field("error").to_pylist()
    assert (errors[0], errors[2]) == (None, None)
    assert errors[1].startswith("the fields do not suit schema 7: ")
    assert why in errors[1]


@pytest.mark.parametrize(
    ("kind", "type"),
    [
        (["int", "string"], pa.string()),
        ("null", pa.string()),
        ("string", pa.int32()),
        ("double", pa.int64()),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us")),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("ns", "UTC")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 3)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}, pa.decimal128(9, 2)),
        (
            {"type": "record", "name": "I", "fields": [{"name": "y", "type": "int"}]},
            pa.struct([("x", pa.int32())]),
        ),
        ({"type": "array", "items": "int"}, pa.large_list(pa.int32())),
        ({"type": "map", "values": "int"}, pa.map_(pa.int32(), pa.int32())),
    ],
)
def test_types_that_are_left_to_fastavro(kind: Any, type: pa.DataType) -> None:
    tree = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind}]}
    writer = AvroWriter(Schema(1, "AVRO", json.dumps(tree)))
    assert writer.records(pa.array([], pa.struct([("f", type)]))) is None


def test_a_map_whose_entries_are_a_part_of_their_columns() -> None:
    keys, items = pa.array([str(i) for i in range(20)]), pa.array(range(20), pa.int64())
    fields = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.int64())]
    entries = pa.StructArray.from_arrays([keys, items], fields=fields).slice(5, 6)
    starts = pa.array([0, 2, 4], pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.map_(pa.string(), pa.int64()), 2, [None, starts], children=[entries])
    tree = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "m", "type": {"type": "map", "values": "long"}}],
    }
    schema = Schema(7, "AVRO", json.dumps(tree))
    encoded = AvroWriter(schema).records(pa.StructArray.from_arrays([column], names=["m"]))
    assert encoded is not None
    assert [read(schema, record) for record in encoded[0].to_pylist()] == [
        {"m": {"5": 5, "6": 6}},
        {"m": {"7": 7, "8": 8}},
    ]


def test_types_that_hold_themselves_and_names_of_other_schemas() -> None:
    tree = {"type": "record", "name": "Node", "fields": [
        {"name": "n", "type": "x.Number"}, {"name": "next", "type": ["null", "Node"], "default": None}]}  # fmt: skip
    number = {"type": "record", "name": "Number", "namespace": "x", "fields": [{"name": "v", "type": "long"}]}
    schema = Schema(1, "AVRO", json.dumps(tree), (("x.Number", json.dumps(number)),))
    inner = pa.struct([("n", pa.struct([("v", pa.int64())]))])
    type = pa.struct([*inner, ("next", inner)])
    rows = pa.array([{"n": {"v": 1}, "next": {"n": {"v": 2}}}, {"n": {"v": 3}, "next": None}], type)
    quick = AvroWriter(schema).records(rows)
    assert quick is not None
    writer = AvroWriter(schema)
    slow = [writer.encode(row) for row in rows.to_pylist()]
    assert [unframe(record)[1] for record in quick[0].to_pylist()] == slow


def test_the_schema_that_is_made_of_columns_is_written_quickly() -> None:
    """Whatever columns Spark has: else a query without a schema of its own would be slow."""
    generated = Made(1)
    fields = [pa.field(f"f{i}", type) for i, (_, type) in enumerate(PLAIN)]
    nested = pa.struct(
        [*fields, ("l", pa.list_(pa.struct(fields))), ("m", pa.map_(pa.string(), pa.string()))]
    )
    schema = Schema(1, "AVRO", schema_of(nested, "R"))
    rows = pa.array([generated.value(nested, 0.1) for _ in range(50)], nested)
    quick = AvroWriter(schema).records(rows.drop_null())
    assert quick is not None
    assert quick[1] == []
