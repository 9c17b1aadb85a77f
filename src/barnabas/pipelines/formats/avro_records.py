"""Converts a batch of rows in Arrow columns to Avro records at once, with compiled code, see avro_writer.pyx.

Writes the same bytes as fastavro. Types for which fastavro accepts more than one kind of value (unions of several
types, times without a zone for timestamps with one) are left to it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from barnabas.pipelines.formats.avro_batches import NoPlan
from barnabas.pipelines.formats.avro_writer import Put, Source, write

WIDTHS: Final = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8}
REALS: Final = {pa.float32(): 4, pa.float64(): 8}
ZONED: Final = {"timestamp-millis": 1_000, "timestamp-micros": 1}
LOCAL: Final = {"local-timestamp-millis": 1_000, "local-timestamp-micros": 1}


class AvroRecords:
    """Writes rows of one Arrow type with one schema. Not thread-safe."""

    def __init__(self, schema_id: int, schema: Any, named: Mapping[str, Any], type: pa.StructType) -> None:
        """schema: as fastavro parses it, a record. Raises NoPlan."""
        self._id = schema_id
        self._named = named
        self._root = self._source(schema, type)

    def encode(self, rows: pa.StructArray) -> tuple[pa.Array, list[int]] | None:
        """The framed records, and the indices of rows that do not match the schema, without bytes; None over 2 GB."""
        try:
            _bind(self._root, rows)
            places, data, failed = write(self._root, len(rows), self._id)
        except OverflowError:
            return None
        finally:
            _bind(self._root, None)
        buffers = [None, pa.py_buffer(places), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(rows), buffers), failed

    def _source(self, node: Any, type: pa.DataType) -> Source:
        """Raises NoPlan."""
        if isinstance(node, str) and node in self._named:
            node = self._named[node]
        if isinstance(node, list):
            return self._union(node, type)
        kind = node["type"] if isinstance(node, dict) else node
        if isinstance(kind, (dict, list)):
            return self._source(kind, type)
        if kind in ("record", "error") and pa.types.is_struct(type):
            return self._record(node, type)
        if kind == "array" and pa.types.is_list(type):
            return Source(Put.ARRAY, children=[self._source(node["items"], type.value_type)])
        if kind == "map" and pa.types.is_map(type) and type.key_type == pa.string():
            keys = Source(Put.BYTES)
            return Source(Put.MAP, children=[keys, self._source(node["values"], type.item_type)])
        if kind == "enum" and type == pa.string():
            return Source(Put.ENUM, symbols=[symbol.encode() for symbol in node["symbols"]])
        logical = node.get("logicalType") if isinstance(node, dict) else None
        if logical == "decimal":
            return _decimal(node, kind, type)
        if kind == "fixed" and type == pa.binary() and logical is None:
            return Source(Put.FIXED, size=int(node["size"]))
        return _plain(kind, logical, type)

    def _union(self, node: list[Any], type: pa.DataType) -> Source:
        others = [kind for kind in node if kind != "null"]
        if len(others) != 1 or len(node) > 2:
            raise NoPlan
        source = self._source(others[0], type)
        if source.branch >= 0 or source.kind == Put.CONSTANT:
            raise NoPlan
        source.branch = node.index(others[0])
        source.null_branch = node.index("null") if "null" in node else -1
        return source

    def _record(self, node: Any, type: pa.StructType) -> Source:
        names = [field["name"] for field in node["fields"]]
        columns = type.names
        if len(set(columns)) != len(columns) or not set(columns) <= set(names):
            raise NoPlan
        children = []
        for field in node["fields"]:
            if field["name"] in columns:
                children.append(self._source(field["type"], type.field(field["name"]).type))
            elif "default" in field:
                children.append(Source(Put.CONSTANT, constant=self._default(field)))
            else:
                raise NoPlan
        source = Source(Put.RECORD, children=children)
        source.symbols = [name.encode() if name in columns else b"" for name in names]
        return source

    def _default(self, field: Any) -> bytes:
        """The bytes of a field's default. Raises NoPlan."""
        import fastavro

        whole = {"type": "record", "name": "barnabas_default", "fields": [field]}
        # The field's type refers to named types, or defines them.
        for names in (dict(self._named), {}):
            out = io.BytesIO()
            with suppress(Exception):  # fastavro raises whatever the default leads to
                parsed = fastavro.parse_schema(whole, named_schemas=names)
                fastavro.schemaless_writer(out, parsed, {})
                return out.getvalue()
        raise NoPlan


def _plain(kind: str, logical: str | None, type: pa.DataType) -> Source:
    """Raises NoPlan."""
    if kind in ("int", "long") and type in WIDTHS:
        return Source(Put.INT if kind == "int" else Put.LONG, width=WIDTHS[type])
    if kind == "int" and logical == "date" and type == pa.date32():
        return Source(Put.INT, width=4)
    if kind == "long" and pa.types.is_timestamp(type) and type.unit == "us":
        divisor = (ZONED if type.tz else LOCAL).get(str(logical))
        if divisor is not None:
            return Source(Put.TIME, divisor=divisor)
    if kind in ("float", "double") and type in REALS and logical is None:
        return Source(Put.FLOAT if kind == "float" else Put.DOUBLE, width=REALS[type])
    if kind == "boolean" and type == pa.bool_() and logical is None:
        return Source(Put.BOOLEAN)
    if kind == "string" and type == pa.string() and logical in (None, "uuid"):
        return Source(Put.BYTES)
    if kind == "bytes" and type == pa.binary() and logical is None:
        return Source(Put.BYTES)
    raise NoPlan


def _decimal(node: Any, kind: str, type: pa.DataType) -> Source:
    """Raises NoPlan."""
    if not pa.types.is_decimal128(type):
        raise NoPlan
    if type.scale != int(node.get("scale", 0)) or type.precision > int(node["precision"]):
        raise NoPlan
    return Source(Put.DECIMAL) if kind == "bytes" else Source(Put.FIXED_DECIMAL, size=int(node["size"]))


def _bind(source: Source, array: pa.Array | None) -> None:
    """Bind a source and those inside of it to an array; None releases the last one."""
    source.bind(array)
    if source.kind == Put.RECORD:
        for name, child in zip(source.symbols, source.children, strict=True):
            if name:
                _bind(child, None if array is None else array.field(name.decode()))
    elif source.kind == Put.ARRAY:
        _bind(source.children[0], None if array is None else array.values)
    elif source.kind == Put.MAP:
        # Not `keys` and `items`: these are the whole columns even if the entries are a slice of them.
        entries = None if array is None else array.values
        for index, child in enumerate(source.children):
            _bind(child, None if entries is None else entries.field(index))
