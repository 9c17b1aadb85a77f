"""Converts a batch of Avro records to Arrow columns at once, with compiled code, see avro_columns.pyx."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from barnabas.pipelines.formats.avro_columns import Column, ColumnType, fill

DIGITS_MAX: Final = 38
KINDS: Final = {
    "null": ColumnType.NOTHING,
    "boolean": ColumnType.BOOLEAN,
    "int": ColumnType.INT,
    "long": ColumnType.LONG,
    "float": ColumnType.FLOAT,
    "double": ColumnType.DOUBLE,
    "bytes": ColumnType.BYTES,
    "string": ColumnType.BYTES,
}


class NoPlan(Exception):
    """A schema that compiled code does not support: unions of several types, decimals of more than 38 digits."""


class AvroBatches:
    """Reads batches whose records are all of one schema. type: the columns, as a struct. Not thread-safe."""

    def __init__(
        self, schema_id: int, schema: Any, named: Mapping[str, Any], type: pa.StructType, *, is_record: bool
    ) -> None:
        """schema: as fastavro parses it. Raises NoPlan."""
        self._id = schema_id
        self._type = type
        column = _column(schema, named)
        self._column = column if is_record else Column(ColumnType.RECORD, children=[column])

    def decode(self, records: pa.Array) -> pa.StructArray | None:
        """The rows of records (binary); None if one of them is null, of another schema or damaged."""
        if records.null_count or not pa.types.is_binary(records.type):
            return None
        _, offsets, data = records.buffers()
        if offsets is None:
            return None
        try:
            places = memoryview(offsets).cast("B").cast("i")
            buffer = b"" if data is None else memoryview(data).cast("B")
            if not fill(self._column, buffer, places, records.offset, len(records), self._id):
                return None
            array_ = _array(self._column, self._type)
            array_.validate(full=True)  # UTF-8, digits of decimals
            return array_
        except (pa.ArrowInvalid, OverflowError):
            return None
        finally:
            self._column.clear()


def _column(node: Any, named: Mapping[str, Any]) -> Column:
    """Raises NoPlan. A schema that contains itself was refused before."""
    if isinstance(node, str):
        if node in KINDS:
            return Column(KINDS[node])
        node = named[node]
    if isinstance(node, list):
        return _union(node, named)
    kind = node["type"]
    if isinstance(kind, (dict, list)):
        return _column(kind, named)
    if node.get("logicalType") == "decimal":
        if int(node["precision"]) > DIGITS_MAX:
            raise NoPlan
        return (
            Column(ColumnType.DECIMAL)
            if kind == "bytes"
            else Column(ColumnType.FIXED_DECIMAL, size=int(node["size"]))
        )
    if kind in ("record", "error"):
        return Column(ColumnType.RECORD, children=[_column(row["type"], named) for row in node["fields"]])
    if kind == "array":
        return Column(ColumnType.ARRAY, children=[_column(node["items"], named)])
    if kind == "map":
        return Column(ColumnType.MAP, children=[Column(ColumnType.BYTES), _column(node["values"], named)])
    if kind == "enum":
        return Column(ColumnType.ENUM, symbols=[symbol.encode() for symbol in node["symbols"]])
    if kind == "fixed":
        return Column(ColumnType.FIXED, size=int(node["size"]))
    return _column(kind, named)


def _union(node: list[Any], named: Mapping[str, Any]) -> Column:
    others = [kind for kind in node if kind != "null"]
    if len(node) != 2 or len(others) != 1:
        raise NoPlan
    column = _column(others[0], named)
    if column.null_branch >= 0 or column.kind == ColumnType.NOTHING:
        raise NoPlan
    column.null_branch = node.index("null")
    return column


def _array(column: Column, type: pa.DataType) -> pa.Array:
    validity, offsets, values = (
        None if buffer is None else pa.py_buffer(buffer) for buffer in column.buffers()
    )
    rows, nulls = column.rows, column.nulls
    if column.kind == ColumnType.RECORD:
        inside = [_array(child, field.type) for child, field in zip(column.children, type, strict=True)]
        return pa.Array.from_buffers(type, rows, [validity], nulls, children=inside)
    if column.kind == ColumnType.ARRAY:
        items = _array(column.children[0], type.value_type)
        return pa.Array.from_buffers(type, rows, [validity, offsets], nulls, children=[items])
    if column.kind == ColumnType.MAP:
        pairs = [_array(column.children[0], type.key_type), _array(column.children[1], type.item_type)]
        entries = pa.StructArray.from_arrays(pairs, fields=[type.key_field, type.item_field])
        return pa.Array.from_buffers(type, rows, [validity, offsets], nulls, children=[entries])
    if column.kind == ColumnType.FIXED:
        binary = pa.Array.from_buffers(pa.binary(column.size), rows, [validity, values], nulls)
        return binary.cast(type)
    buffers = [validity, values] if offsets is None else [validity, offsets, values]
    return pa.Array.from_buffers(type, rows, buffers, nulls)
