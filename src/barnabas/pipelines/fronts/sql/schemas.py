"""Schemas of values: those that a query writes with, made of its columns, and columns that are made of a schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from barnabas.pipelines.fronts.sql.catalog import Column, Relation
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.types import PLAIN, SqlType, array_of, map_of

KINDS: Final = {"AVRO": "AVRO", "PROTOBUF": "PROTOBUF", "JSON_SR": "JSON"}
"""Formats with schemas, and what a registry calls them."""
NAMESPACE: Final = "io.confluent.ksql.avro_schemas"
RECORD: Final = "KsqlDataSourceSchema"
"""The names that ksqlDB gives to records in its Avro schemas."""
WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def schema_text(form: str, columns: Sequence[Column], record: str = "") -> str:
    """A schema of keys or values with these columns, each of which may be null. record: its full name; JSON Schema has none.
    Raises SqlError."""
    for column in columns:
        if not WORD.fullmatch(column.name):
            raise SqlError(f"column {column.name}: in {form} a name has letters, digits and _ only")
    return WRITERS[form](columns, record)


def plain_schema(form: str, column: Column) -> str:
    """A schema in AVRO or JSON_SR of keys that are one column, without a record around it. Raises SqlError."""
    schema = _avro_type(column.type, column.name) if form == "AVRO" else _json_type(column.type, column.name)
    return json.dumps(schema)


# --- Avro ---------------------------------------------------------------------------------------------

AVRO: Final[Mapping[str, Any]] = {
    "BOOLEAN": "boolean",
    "INTEGER": "int",
    "BIGINT": "long",
    "DOUBLE": "double",
    "STRING": "string",
    "BYTES": "bytes",
    "DATE": {"type": "int", "logicalType": "date"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-millis"},
}


def _avro(columns: Sequence[Column], record: str) -> str:
    namespace, _, name = (record or f"{NAMESPACE}.{RECORD}").rpartition(".")
    schema = _avro_record([(column.name, column.type) for column in columns], name)
    return json.dumps({**schema, **({"namespace": namespace} if namespace else {})})


def _avro_record(fields: Sequence[tuple[str, SqlType]], name: str) -> dict[str, Any]:
    rows = [
        {"name": field, "type": ["null", _avro_type(kind, f"{name}_{field}")], "default": None}
        for field, kind in fields
    ]
    return {"type": "record", "name": name, "fields": rows}


def _avro_type(kind: SqlType, name: str) -> Any:
    if kind.name == "DECIMAL":
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": kind.digits[0],
            "scale": kind.digits[1],
        }
    if kind.name == "ARRAY":
        return {"type": "array", "items": ["null", _avro_type(kind.items[0], name)]}
    if kind.name == "MAP":
        return {"type": "map", "values": ["null", _avro_type(kind.items[1], f"{name}_MapValue")]}
    if kind.name == "STRUCT":
        return _avro_record(list(zip(kind.fields, kind.items, strict=True)), name)
    return _known(AVRO, kind, name.removeprefix(f"{RECORD}_"), "AVRO")


def _known(types: Mapping[str, Any], kind: SqlType, column: str, form: str) -> Any:
    """Raises SqlError for a type that a format does not have."""
    if kind.name not in types:
        raise SqlError(f"column {column} is {kind}, which {form} does not have: CAST it")
    return types[kind.name]


# --- Protobuf -----------------------------------------------------------------------------------------

PROTO: Final = {
    "BOOLEAN": "bool",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "DOUBLE": "double",
    "STRING": "string",
    "BYTES": "bytes",
    "TIMESTAMP": "google.protobuf.Timestamp",
}


def _protobuf(columns: Sequence[Column], record: str) -> str:
    package, _, name = record.rpartition(".")
    lines = _message(name or "ConnectDefault1", [(column.name, column.type) for column in columns], "")
    imports = (
        ['import "google/protobuf/timestamp.proto";', ""]
        if any("google.protobuf" in line for line in lines)
        else []
    )
    head = ['syntax = "proto3";', *([f"package {package};"] if package else []), ""]
    return "\n".join([*head, *imports, *lines, ""])


def _message(name: str, fields: Sequence[tuple[str, SqlType]], indent: str) -> list[str]:
    lines, inner = [], []
    for number, (field, kind) in enumerate(fields, 1):
        label = "optional "
        if kind.name == "ARRAY":
            label, kind = "repeated ", kind.items[0]
        if kind.name == "STRUCT":
            inner += _message(
                f"{field}_Message", list(zip(kind.fields, kind.items, strict=True)), indent + "  "
            )
            shown = f"{field}_Message"
        elif kind.name == "MAP":
            if label == "repeated " or kind.items[1].items:
                raise SqlError(
                    f"column {field}: a PROTOBUF map has plain values, and is no element of an array"
                )
            label, shown = (
                "",
                f"map<{_proto_type(kind.items[0], field)}, {_proto_type(kind.items[1], field)}>",
            )
        else:
            shown = _proto_type(kind, field)
        lines.append(f"{indent}  {label}{shown} {field} = {number};")
    return [f"{indent}message {name} {{", *inner, *lines, f"{indent}}}"]


def _proto_type(kind: SqlType, field: str) -> str:
    if kind.name not in PROTO:
        raise SqlError(f"column {field} is {kind}, which PROTOBUF does not have: CAST it, or use AVRO")
    return PROTO[kind.name]


# --- JSON Schema --------------------------------------------------------------------------------------

JSON: Final[Mapping[str, Mapping[str, Any]]] = {
    "BOOLEAN": {"type": "boolean"},
    "INTEGER": {"type": "integer", "connect.type": "int32"},
    "BIGINT": {"type": "integer", "connect.type": "int64"},
    "DOUBLE": {"type": "number", "connect.type": "float64"},
    "DECIMAL": {"type": "number", "connect.type": "bytes", "title": "org.apache.kafka.connect.data.Decimal"},
    "STRING": {"type": "string"},
    "BYTES": {"type": "string", "connect.type": "bytes"},
    "DATE": {"type": "integer", "connect.type": "int32", "title": "org.apache.kafka.connect.data.Date"},
    "TIMESTAMP": {
        "type": "integer",
        "connect.type": "int64",
        "title": "org.apache.kafka.connect.data.Timestamp",
    },
}


def _json(columns: Sequence[Column], record: str) -> str:
    return json.dumps(_json_object([(column.name, column.type) for column in columns]))


def _json_object(fields: Sequence[tuple[str, SqlType]]) -> dict[str, Any]:
    properties = {
        name: {"connect.index": at, "oneOf": [{"type": "null"}, _json_type(kind, name)]}
        for at, (name, kind) in enumerate(fields)
    }
    return {"type": "object", "properties": properties}


def _json_type(kind: SqlType, name: str) -> Mapping[str, Any]:
    if kind.name == "ARRAY":
        return {"type": "array", "items": {"oneOf": [{"type": "null"}, _json_type(kind.items[0], name)]}}
    if kind.name == "MAP":
        inner = {"oneOf": [{"type": "null"}, _json_type(kind.items[1], name)]}
        return {"type": "object", "connect.type": "map", "additionalProperties": inner}
    if kind.name == "STRUCT":
        return _json_object(list(zip(kind.fields, kind.items, strict=True)))
    json_type: Mapping[str, Any] = _known(JSON, kind, name, "JSON_SR")
    return json_type


WRITERS: Final[Mapping[str, Callable[[Sequence[Column], str], str]]] = {
    "AVRO": _avro,
    "PROTOBUF": _protobuf,
    "JSON_SR": _json,
}

# --- columns of a schema ------------------------------------------------------------------------------

ARROW: Final = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "INTEGER",
    pa.int16(): "INTEGER",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "DOUBLE",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BYTES",
    pa.date32(): "DATE",
}


def columns_of(fields: pa.StructType) -> tuple[Column, ...]:
    """The columns that values of a schema have; those of types that SQL does not know are left out."""
    columns = []
    for field in fields:
        kind = sql_type(field.type)
        if kind is not None:
            columns.append(Column(field.name.upper(), kind, field.name))
    return tuple(columns)


def sql_type(kind: pa.DataType) -> SqlType | None:
    """The type that stands for one of Arrow's; None if there is none."""
    if kind in ARROW:
        return SqlType(ARROW[kind])
    if pa.types.is_timestamp(kind):
        return SqlType("TIMESTAMP")
    if pa.types.is_decimal(kind):
        return SqlType("DECIMAL", digits=(kind.precision, kind.scale))
    if pa.types.is_list(kind):
        item = sql_type(kind.value_type)
        return None if item is None else array_of(item)
    if pa.types.is_map(kind):
        item = sql_type(kind.item_type)
        return None if item is None else map_of(SqlType("STRING"), item)
    if pa.types.is_struct(kind):
        pairs = [(field.name, sql_type(field.type)) for field in kind]
        known = [(name, item) for name, item in pairs if item is not None]
        names = tuple(name for name, _ in known)
        return SqlType(
            "STRUCT", tuple(item for _, item in known), tuple(n.upper() for n in names), typed=names
        )
    return None


def with_names(columns: Sequence[Column], fields: pa.StructType, subject: str) -> tuple[Column, ...]:
    """The columns with the names that their fields have in a schema, whatever their case. Raises SqlError for a column that
    the schema does not have."""
    by_name = {column.name: column for column in columns_of(fields)}
    columns_named = []
    for column in columns:
        if column.is_key or column.header:
            columns_named.append(column)
            continue
        theirs = by_name.get(column.name)
        if theirs is None:
            raise SqlError(
                f"column {column.name}: {subject} has no such field; it has {', '.join(by_name) or 'none'}"
            )
        columns_named.append(replace(column, typed=theirs.typed, type=_named_alike(column.type, theirs.type)))
    return tuple(columns_named)


def _named_alike(kind: SqlType, theirs: SqlType) -> SqlType:
    """A type whose structs have the names of the fields of another one."""
    if kind.name != theirs.name or not kind.items:
        return kind
    if kind.name != "STRUCT":
        return replace(kind, items=tuple(map(_named_alike, kind.items, theirs.items)))
    known = dict(
        zip(theirs.fields, zip(theirs.typed or theirs.fields, theirs.items, strict=True), strict=True)
    )
    typed = tuple(known[name][0] if name in known else name for name in kind.fields)
    pairs = zip(kind.fields, kind.items, strict=True)
    items = tuple(_named_alike(item, known[name][1]) if name in known else item for name, item in pairs)
    return replace(kind, items=items, typed=typed)


def declaration(relation: Relation, properties: Mapping[str, Any]) -> str:
    """A statement that declares a stream or table with its columns, so that nobody has to be asked for them again."""
    shown = []
    for column in relation.columns:
        role = " PRIMARY KEY" if relation.kind == "TABLE" else " KEY"
        header = (
            " HEADERS"
            if column.header == "*"
            else f" HEADER({_text(column.header)})"
            if column.header
            else ""
        )
        shown.append(
            f"{_name(column.name, column.typed)} {type_text(column.type)}{role if column.is_key else header}"
        )
    options = ", ".join(f"{name}={_text(value)}" for name, value in properties.items())
    source = "SOURCE " if relation.is_source else ""
    return f"CREATE {source}{relation.kind} `{relation.name}` ({', '.join(shown)}) WITH ({options})"


def _text(value: Any) -> str:
    if isinstance(value, bool | int | float):
        return str(value).lower()
    return "'" + str(value).replace("'", "''") + "'"


def _name(name: str, typed: str) -> str:
    """A name as it is to be typed, so that it is read as this one."""
    return typed if typed.upper() == name and WORD.fullmatch(typed) else f"`{name}`"


def type_text(kind: SqlType) -> str:
    """A type as a statement has it."""
    if kind.name == "DECIMAL":
        return f"DECIMAL({kind.digits[0]}, {kind.digits[1]})"
    if kind.name == "STRUCT":
        pairs = zip(kind.fields, kind.typed or kind.fields, kind.items, strict=True)
        return (
            f"STRUCT<{', '.join(f'{_name(name, typed)} {type_text(item)}' for name, typed, item in pairs)}>"
        )
    if kind.items:
        return f"{kind.name}<{', '.join(map(type_text, kind.items))}>"
    assert kind.name in PLAIN
    return kind.name


def in_capitals(kind: SqlType) -> SqlType:
    """A type whose structs have the names in a schema that they have in SQL."""
    return replace(kind, items=tuple(map(in_capitals, kind.items)), typed=())
