"""Records as Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from barnabas.connect.errors import ConnectError, DataError
from barnabas.connect.records import SinkRecord
from barnabas.connect.schemas import DATE, DECIMAL, TIME, TIMESTAMP, Schema

PLAIN: Final = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
LOGICAL: Final = {
    DATE: pa.date32(),
    TIME: pa.time64("us"),
    TIMESTAMP: pa.timestamp("us", "UTC"),
}
DIGITS: Final = 38


def arrow_type(schema: Schema) -> pa.DataType:
    """The Arrow type of a schema's values."""
    if schema.name == DECIMAL:
        return pa.decimal128(DIGITS, int(schema.parameter("scale") or 0))
    if schema.name in LOGICAL:
        return LOGICAL[schema.name]
    if schema.type == "struct":
        return pa.struct([pa.field(field.name, arrow_type(field.schema)) for field in schema.fields])
    if schema.type == "array":
        assert schema.items is not None
        return pa.list_(arrow_type(schema.items))
    if schema.type == "map":
        assert schema.keys is not None
        assert schema.items is not None
        return pa.map_(arrow_type(schema.keys), arrow_type(schema.items))
    return PLAIN[schema.type]


def _plain(schema: Schema, value: Any) -> Any:
    """A value as Arrow takes it: maps as pairs."""
    if value is None:
        return None
    if schema.type == "struct":
        return {field.name: _plain(field.schema, value.get(field.name)) for field in schema.fields}
    if schema.type == "array" and schema.items is not None:
        return [_plain(schema.items, item) for item in value]
    if schema.type == "map" and schema.items is not None:
        return [(key, _plain(schema.items, item)) for key, item in value.items()]
    return value


def table_of(records: Sequence[SinkRecord]) -> pa.Table:
    """One table of records with structs or objects as values. Without schemas, types are what the values look like, and
    fields that are null in all of them are left out. Raises ConnectError if they do not fit into one table."""
    parts: list[pa.Table] = []
    begin = 0
    for end in range(1, len(records) + 1):
        schema = records[begin].value_schema
        if end < len(records) and records[end].value_schema == schema:
            continue
        rows = [record.value for record in records[begin:end]]
        try:
            if schema is None:
                parts.append(_without_nothing(pa.Table.from_pylist(rows, _names(rows))))
            else:
                fields = pa.schema(
                    [pa.field(field.name, arrow_type(field.schema)) for field in schema.fields]
                )
                parts.append(pa.Table.from_pylist([_plain(schema, row) for row in rows], fields))
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise ConnectError(f"values do not fit into the columns of one table: {error}") from error
        begin = end
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowException as error:
        raise ConnectError(
            f"records have fields of the same name, but of different types: {error}"
        ) from error


def _names(rows: Sequence[dict[str, Any]]) -> pa.Schema:
    """The schema of objects: from_pylist itself takes only the fields of the first one."""
    columns = {
        name: pa.array([row.get(name) for row in rows]).type
        for name in dict.fromkeys(n for r in rows for n in r)
    }
    return pa.schema(list(columns.items()))


def _without_nothing(table: pa.Table) -> pa.Table:
    return table.select([field.name for field in table.schema if not pa.types.is_null(field.type)])


def require_row(record: SinkRecord) -> None:
    """Raises DataError if a value cannot be a row."""
    if not isinstance(record.value, dict):
        raise DataError(
            f"the value is {type(record.value).__name__}, not a struct or an object with fields: use a JSON or Avro "
            "converter, or the transform HoistField"
        )
