"""Avro: converts schemas to Arrow types, payloads to rows by schema resolution, and rows to payloads.

Types are the same as in Spark's own from_avro if that loses nothing. Unions of several types become text with the value
as JSON, except int with long and float with double. Times of day stay numbers.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from barnabas.pipelines.formats.avro_batches import AvroBatches, NoPlan
from barnabas.pipelines.formats.avro_records import AvroRecords
from barnabas.pipelines.formats.base import VALUE, Convert, NoColumns, Unfit
from barnabas.schemas.framing import Schema

DIGITS_MAX: Final = 38
PLAIN: Final = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
WIDER: Final = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}


def parse(schema: Schema) -> tuple[Any, dict[str, Any]]:
    """A schema as fastavro parses it, and its named types. Logical types except decimals are moved to `logical`,
    because fastavro would make Python's dates of their values. Raises Unfit."""
    import fastavro

    named: dict[str, Any] = {}
    try:
        for _, text in schema.dependencies:
            fastavro.parse_schema(_marked(json.loads(text)), named_schemas=named)
        return fastavro.parse_schema(_marked(json.loads(schema.text)), named_schemas=named), named
    except Exception as error:  # fastavro raises whatever a bad schema leads to
        raise Unfit(f"schema {schema.id} is not Avro: {str(error)[:200]}") from error


def _marked(node: Any) -> Any:
    if isinstance(node, list):
        return [_marked(item) for item in node]
    if not isinstance(node, dict):
        return node
    marked = {name: _marked(value) if name in HOLDS_TYPES else value for name, value in node.items()}
    logical = marked.get("logicalType")
    if isinstance(logical, str) and logical != "decimal":
        del marked["logicalType"]
        marked["logical"] = logical
    return marked


HOLDS_TYPES: Final = frozenset({"type", "items", "values", "fields"})


class AvroReader:
    """Reads records of any version into the fields of one version."""

    def __init__(self, schema: Schema) -> None:
        try:
            self._schema, self._named = parse(schema)
        except Unfit as error:
            raise NoColumns(str(error)) from error
        self._id = schema.id
        arrow_type, convert = self._type(self._schema, "", ())
        self._is_record = pa.types.is_struct(arrow_type)
        self.read_type = arrow_type if self._is_record else pa.struct([(VALUE, arrow_type)])
        self.type = spark_type(self.read_type)
        self._convert = convert
        self._batches: AvroBatches | None = None
        with suppress(NoPlan):
            self._batches = AvroBatches(
                schema.id, self._schema, self._named, self.read_type, is_record=self._is_record
            )

    def columns(self, records: pa.Array) -> pa.StructArray | None:
        """See formats.base.Reader."""
        return self._batches.decode(records) if self._batches is not None else None

    def _type(self, node: Any, path: str, above: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
        if isinstance(node, str):
            if node in PLAIN:
                return PLAIN[node], None
            node = self._named[node]
        if isinstance(node, list):
            return self._union(node, path, above)
        kind = node["type"]
        if isinstance(kind, (dict, list)):
            return self._type(kind, path, above)
        if kind in ("record", "error"):
            return self._record(node, path, above)
        if kind == "array":
            inner, convert = self._type(node["items"], f"{path}[]", above)
            return pa.list_(inner), _list_converter(convert)
        if kind == "map":
            inner, convert = self._type(node["values"], f"{path}{{}}", above)
            return pa.map_(pa.string(), inner), _map_converter(convert)
        if node.get("logicalType") == "decimal":
            return _decimal(node)
        if kind not in PLAIN:
            return self._type(kind, path, above)
        return LOGICAL.get((kind, str(node.get("logical"))), PLAIN[kind]), None

    def _record(self, node: Any, path: str, above: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
        name = node["name"]
        if name in above:
            raise NoColumns(f"{path or name}: {name} contains itself, which columns cannot")
        fields, converts = [], {}
        for row in node["fields"]:
            inside = f"{path}.{row['name']}" if path else row["name"]
            arrow_type, convert = self._type(row["type"], inside, (*above, name))
            fields.append(pa.field(row["name"], arrow_type))
            if convert is not None:
                converts[row["name"]] = convert
        if not fields:
            raise NoColumns(f"{path or name}: the record has no fields")
        return pa.struct(fields), _struct_converter(converts)

    def _union(self, node: list[Any], path: str, above: tuple[str, ...]) -> tuple[pa.DataType, Convert]:
        kinds = [kind for kind in node if kind != "null"]
        if not kinds:
            return PLAIN["null"], None
        if len(kinds) > 1:
            plain = frozenset(kind for kind in kinds if isinstance(kind, str))
            wider = WIDER.get(plain) if len(plain) == len(kinds) else None
            if wider is None:
                return pa.string(), _json_text
            return PLAIN[wider], None
        arrow_type, convert = self._type(kinds[0], path, above)
        return arrow_type, _optional(convert) if "null" in node else convert

    def decoder(self, writer: Schema) -> Callable[[bytes], Any]:
        """See formats.base.Reader."""
        from fastavro import schemaless_reader

        schema, own, convert = self._schema, self._schema, self._convert
        if writer.id != self._id:
            schema, _ = parse(writer)
        target = None if schema is own else own
        is_record = self._is_record

        def decode(payload: bytes) -> Any:
            source = io.BytesIO(payload)
            try:
                value = schemaless_reader(source, schema, target)
            except Exception as error:  # fastavro raises whatever the bytes lead to
                raise Unfit(f"the bytes do not suit schema {writer.called}: {_reason(error)}") from None
            if source.tell() != len(payload):
                raise Unfit(
                    f"{len(payload) - source.tell()} bytes follow the value of schema {writer.called}"
                )
            if convert is not None:
                value = convert(value)
            return value if is_record else {VALUE: value}

        return decode


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}{': ' if text else ''}{text}"


def _struct_converter(converts: Mapping[str, Callable[[Any], Any]]) -> Convert:
    if not converts:
        return None

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        for name, inner in converts.items():
            row[name] = inner(row[name])
        return row

    return convert


def _optional(convert: Convert) -> Convert:
    if convert is None:
        return None
    inner = convert
    return lambda value: None if value is None else inner(value)


def _list_converter(convert: Convert) -> Convert:
    if convert is None:
        return None
    inner = convert
    return lambda rows: [inner(row) for row in rows]


def _map_converter(convert: Convert) -> Callable[[Any], Any]:
    if convert is None:
        return lambda entries: list(entries.items())
    return lambda entries: [(key, convert(value)) for key, value in entries.items()]


def _json_text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False, default=_shown)


def _shown(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _decimal(node: Any) -> tuple[pa.DataType, Convert]:
    precision, scale = int(node["precision"]), int(node.get("scale", 0))
    if precision > DIGITS_MAX:
        return pa.string(), str
    return pa.decimal128(precision, scale), None


def spark_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type with times in microseconds, as in Spark."""
    if pa.types.is_timestamp(arrow_type):
        return pa.timestamp("us", arrow_type.tz)
    if pa.types.is_struct(arrow_type):
        return pa.struct([pa.field(field.name, spark_type(field.type)) for field in arrow_type])
    if pa.types.is_list(arrow_type):
        return pa.list_(spark_type(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return pa.map_(arrow_type.key_type, spark_type(arrow_type.item_type))
    return arrow_type


class AvroWriter:
    """Writes rows with one schema."""

    def __init__(self, schema: Schema) -> None:
        import fastavro

        named: dict[str, Any] = {}
        try:
            for _, text in schema.dependencies:
                fastavro.parse_schema(json.loads(text), named_schemas=named)
            self._schema = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
        except Exception as error:
            raise NoColumns(f"schema {schema.id} is not Avro: {str(error)[:200]}") from error
        self._id = schema.id
        self._named = named
        self._plans: dict[pa.DataType, AvroRecords | None] = {}
        self._write = fastavro.schemaless_writer
        self._check = _range_check(self._schema, named, ())
        self.is_plain = not (isinstance(self._schema, dict) and self._schema.get("type") == "record")
        self.fields = {VALUE: True}
        """Name -> whether a value is required."""
        if not self.is_plain:
            self.fields = {field["name"]: "default" not in field for field in self._schema["fields"]}

    def records(self, rows: pa.StructArray) -> tuple[pa.Array, list[int]] | None:
        """See formats.encoding.Writer."""
        if self.is_plain:
            return None
        if rows.type not in self._plans:
            self._plans[rows.type] = None
            with suppress(NoPlan):
                self._plans[rows.type] = AvroRecords(self._id, self._schema, self._named, rows.type)
        plan = self._plans[rows.type]
        return None if plan is None else plan.encode(rows)

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """The payload of a row. Raises Unfit."""
        datum = row[VALUE] if self.is_plain else row
        if self._check is not None:
            self._check(datum)
        out = io.BytesIO()
        try:
            self._write(out, self._schema, datum, strict_allow_default=True)
        except Exception as error:  # fastavro raises whatever the value leads to
            raise Unfit(_reason(error)) from None
        return out.getvalue()


def _range_check(node: Any, named: Mapping[str, Any], above: tuple[str, ...]) -> Callable[[Any], None] | None:
    """A function that raises Unfit for whole numbers that are too large for an `int`, which fastavro would write. None
    if there is no `int`."""
    if isinstance(node, str) and node in named:
        node = named[node]
    if isinstance(node, list):
        checks = [check for kind in node if (check := _range_check(kind, named, above))]
        return checks[0] if len(checks) == 1 and "long" not in node else None
    kind = node["type"] if isinstance(node, dict) else node
    if kind == "int":
        return _check_int
    if not isinstance(node, dict) or node.get("name") in above:
        return None
    if kind in ("record", "error"):
        inside = (*above, node["name"])
        fields = {row["name"]: _range_check(row["type"], named, inside) for row in node["fields"]}
        wanted = {name: check for name, check in fields.items() if check is not None}
        return _check_fields(wanted) if wanted else None
    if kind in ("array", "map"):
        check = _range_check(node["items" if kind == "array" else "values"], named, above)
        return _check_each(check) if check is not None else None
    return _range_check(kind, named, above) if isinstance(kind, (dict, list)) else None


def _check_int(value: Any) -> None:
    if isinstance(value, int) and not -0x80000000 <= value <= 0x7FFFFFFF:
        raise Unfit(f"{value} is too large for an int")


def _check_fields(checks: Mapping[str, Callable[[Any], None]]) -> Callable[[Any], None]:
    def check(row: Any) -> None:
        if isinstance(row, dict):
            for name, inner in checks.items():
                if name in row:
                    inner(row[name])

    return check


def _check_each(inner: Callable[[Any], None]) -> Callable[[Any], None]:
    def check(values: Any) -> None:
        if values is not None:
            for value in values.values() if isinstance(values, dict) else values:
                inner(value)

    return check


def schema_of(type: pa.StructType, name: str) -> str:
    """A schema for rows of a type; every field may be null. Raises NoColumns for names and types unknown to Avro."""
    return json.dumps(_record_of(type, name, ""))


def _record_of(type: pa.StructType, name: str, path: str) -> dict[str, Any]:
    rows = []
    for field in type:
        inside = f"{path}.{field.name}" if path else field.name
        if not field.name.isascii() or not field.name.isidentifier():
            raise NoColumns(f"{inside} is not a field name in Avro (letters, digits and _): rename it")
        kind = _kind_of(field.type, f"{name}_{field.name}", inside)
        rows.append({"name": field.name, "type": ["null", kind], "default": None})
    return {"type": "record", "name": name, "fields": rows}


def _kind_of(type: pa.DataType, name: str, path: str) -> Any:
    if type in KINDS:
        return KINDS[type]
    if pa.types.is_decimal(type):
        return {"type": "bytes", "logicalType": "decimal", "precision": type.precision, "scale": type.scale}
    if pa.types.is_timestamp(type):
        local = "" if type.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-micros"}
    if pa.types.is_struct(type):
        return _record_of(type, name, path)
    if pa.types.is_list(type):
        return {"type": "array", "items": ["null", _kind_of(type.value_type, name, path)]}
    if pa.types.is_map(type) and type.key_type == pa.string():
        return {"type": "map", "values": ["null", _kind_of(type.item_type, name, path)]}
    raise NoColumns(f"{path} is of type {type}, which Avro does not have: convert it")


KINDS: Final[dict[pa.DataType, Any]] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}
