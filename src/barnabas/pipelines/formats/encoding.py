"""Encodes a column of rows as records that name their schema, with the reason for each that cannot be encoded."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any, Final, Protocol

import pyarrow as pa

from barnabas.pipelines.formats.base import VALUE, NoColumns, Unfit
from barnabas.pipelines.formats.json_schema import is_plain
from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.codecs.contracts import Contract, contract_of_schema
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.framing import Schema, frame
from barnabas.schemas.json_validation import BadSchema, JsonSchema, Unsuited

TYPE: Final = pa.struct([("v", pa.binary()), ("error", pa.string())])


class Writer(Protocol):
    """fields: name -> whether a value is required. is_plain: the schema is not that of a record, and the only field, VALUE,
    is what it is of."""

    fields: dict[str, bool]
    is_plain: bool

    def encode(self, row: dict[str, Any]) -> bytes:
        """The payload of a row. Raises Unfit."""
        ...

    def records(self, rows: pa.StructArray) -> tuple[pa.Array, list[int]] | None:
        """The records of all rows, framed, and the indices of the rows without one, for which `encode` is called; None
        if this is not quicker."""
        ...


def writer_of(schema: Schema) -> Writer:
    """The writer for a schema. Raises NoColumns."""
    if schema.kind == "AVRO":
        from barnabas.pipelines.formats.avro import AvroWriter

        return AvroWriter(schema)
    if schema.kind == "JSON":
        return JsonWriter(schema)
    if schema.kind == "PROTOBUF":
        from barnabas.pipelines.formats.protobuf_writer import ProtobufWriter

        return ProtobufWriter(schema)
    raise NoColumns(f"schemas of type {schema.kind} are not supported")


def contract_for(schema: Schema) -> Contract | None:
    """The rules of a schema for its records; None without rules. Raises NoColumns."""
    try:
        return contract_of_schema(schema)
    except InvalidSchema as error:
        raise NoColumns(f"schema {schema.id} cannot be used: {error.message}") from error


class JsonWriter:
    """Writes rows as JSON objects that match their schema."""

    def __init__(self, schema: Schema) -> None:
        try:
            self._schema = JsonSchema(schema.text, schema.dependencies)
        except BadSchema as error:
            raise NoColumns(f"schema {schema.id} is not JSON Schema: {str(error)[:200]}") from error
        tree = self._schema.tree
        properties = tree.get("properties") if isinstance(tree, dict) else None
        self.is_plain = is_plain(tree)
        if self.is_plain:
            self.fields = {VALUE: True}
            return
        if not isinstance(properties, dict):
            raise NoColumns(f"schema {schema.id} declares no properties")
        required = tree.get("required", ())
        self.fields = {name: name in required for name in properties}

    def records(self, rows: pa.StructArray) -> tuple[pa.Array, list[int]] | None:
        """See Writer."""
        return None

    def encode(self, row: dict[str, Any]) -> bytes:
        """The payload of a row, without fields that are null and not required. Raises Unfit."""
        fields: Any = {
            name: _plain(value) for name, value in row.items() if value is not None or self.fields.get(name)
        }
        if self.is_plain:
            fields = fields[VALUE]
        try:
            self._schema.check(fields)
        except Unsuited as error:
            raise Unfit(str(error)) from None
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """A value of Arrow as one that JSON has. Raises Unfit."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        if value == value.to_integral_value():
            return int(value)
        if decimal.Decimal(repr(float(value))) != value:
            raise Unfit(f"{value} is not an exact number in JSON: convert it to text")
        return float(value)
    if isinstance(value, bytes):
        raise Unfit("bytes are not JSON: convert them to text")
    return value


def rows_of(column: pa.Array) -> list[Any]:
    """A column's values as Python objects; structs are made of their fields' lists, quicker than one by one."""
    if not pa.types.is_struct(column.type):
        values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
        return values
    names = column.type.names
    fields = [rows_of(field) for field in column.flatten()]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*fields, strict=True)]
    if column.null_count:
        return [
            row if is_there else None
            for row, is_there in zip(rows, column.is_valid().to_pylist(), strict=True)
        ]
    return rows


class Encoding:
    """Encodes batches with one schema."""

    def __init__(self, schema: Schema) -> None:
        self._id = schema.id
        self.writer = writer_of(schema)
        self._contract = contract_for(schema)

    def encode(self, rows: pa.StructArray) -> pa.StructArray:
        """Returns a struct of `v`, the record's bytes, and `error`, which is null if there are bytes."""
        quick = self.writer.records(rows) if self._contract is None else None
        if quick is None:
            return _with_errors(*self._one_by_one(rows))
        encoded, left = quick
        if not left:
            return _with_errors(encoded, pa.nulls(len(rows), pa.string()))
        records: list[bytes | None] = encoded.to_pylist()
        errors: list[str | None] = [None] * len(rows)
        for place, record, error in zip(left, *self._one_by_one(rows.take(pa.array(left))), strict=True):
            records[place], errors[place] = record, error
        return _with_errors(records, errors)

    def _one_by_one(self, rows: pa.StructArray) -> tuple[list[bytes | None], list[str | None]]:
        """The record or the error of each row."""
        records: list[bytes | None] = []
        errors: list[str | None] = []
        for row in rows_of(rows):
            try:
                payload = self.writer.encode(row)
                if self._contract is not None:
                    payload = self._contract.written(payload)
                records.append(frame(self._id, payload))
                errors.append(None)
            except (Unfit, Mismatch) as error:
                records.append(None)
                errors.append(f"the fields do not suit schema {self._id}: {error}")
        return records, errors


def _with_errors(records: Any, errors: Any) -> pa.StructArray:
    columns = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip((records, errors), TYPE, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(TYPE))


_encodings: dict[Schema, Encoding] = {}


def encoding_of(schema: Schema) -> Encoding:
    """The encoding for a schema, one per process."""
    encoding = _encodings.get(schema)
    if encoding is None:
        encoding = _encodings[schema] = Encoding(schema)
    return encoding
