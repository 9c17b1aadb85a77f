"""A column of rows to a column of records that name their schema; a row that does not suit it gets the reason beside it."""

from __future__ import annotations

import datetime
import decimal
import json
from typing import Any, Final, Protocol

import pyarrow as pa

from barnabas.client.registry import Schema, frame
from barnabas.pipelines.formats.base import NoColumns, Unfit

TYPE: Final = pa.struct([("v", pa.binary()), ("error", pa.string())])


class Writer(Protocol):
    """fields: name -> whether a value has to be given."""

    fields: dict[str, bool]

    def encode(self, row: dict[str, Any]) -> bytes:
        """The payload. Raises Unfit."""
        ...


def writer_of(schema: Schema) -> Writer:
    """Raises NoColumns."""
    if schema.kind == "AVRO":
        from barnabas.pipelines.formats.avro import AvroWriter

        return AvroWriter(schema)
    if schema.kind == "JSON":
        return JsonWriter(schema)
    raise NoColumns(f"rows cannot be written by schemas of type {schema.kind}, only AVRO and JSON")


class JsonWriter:
    """Writes rows as JSON objects that their schema allows."""

    def __init__(self, schema: Schema) -> None:
        import jsonschema_rs

        try:
            tree = json.loads(schema.text)
            registry = jsonschema_rs.Registry(
                [(name, json.loads(text)) for name, text in schema.dependencies]
            )
            # Regular expressions in linear time: no record's value can make one take for ever.
            options = jsonschema_rs.RegexOptions()
            self._validator = jsonschema_rs.validator_for(tree, registry=registry, pattern_options=options)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            raise NoColumns(f"schema {schema.id} is not JSON Schema: {str(error)[:200]}") from error
        self._invalid = jsonschema_rs.ValidationError
        properties = tree.get("properties") if isinstance(tree, dict) else None
        if not isinstance(properties, dict):
            raise NoColumns(f"schema {schema.id} declares no properties")
        required = tree.get("required", ())
        self.fields = {name: name in required for name in properties}

    def encode(self, row: dict[str, Any]) -> bytes:
        """Raises Unfit. A field that is null and need not be there is left out."""
        given = {
            name: _plain(value) for name, value in row.items() if value is not None or self.fields.get(name)
        }
        try:
            self._validator.validate(given)
        except self._invalid as error:
            place = "/".join(str(part) for part in error.instance_path)
            raise Unfit(f"/{place}: {error.message[:200]}") from None
        except ValueError as error:
            raise Unfit(str(error)[:200]) from None
        return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    """A value of Arrow as JSON has it."""
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
            raise Unfit(f"{value} is no exact number in JSON: convert it to text")
        return float(value)
    if isinstance(value, bytes):
        raise Unfit("bytes are not JSON: convert them to text")
    return value


class Encoding:
    """Encodes batches by one schema."""

    def __init__(self, schema: Schema) -> None:
        self._id = schema.id
        self.writer = writer_of(schema)

    def encode(self, rows: pa.StructArray) -> pa.StructArray:
        """A struct of `v`, the record's bytes, and `error`, which is null where there are some."""
        records: list[bytes | None] = []
        errors: list[str | None] = []
        for row in rows.to_pylist(maps_as_pydicts="strict"):
            try:
                records.append(frame(self._id, self.writer.encode(row)))
                errors.append(None)
            except Unfit as error:
                records.append(None)
                errors.append(f"the fields do not suit schema {self._id}: {error}")
        columns = [pa.array(records, pa.binary()), pa.array(errors, pa.string())]
        return pa.StructArray.from_arrays(columns, fields=list(TYPE))


_encodings: dict[Schema, Encoding] = {}


def encoding_of(schema: Schema) -> Encoding:
    """The one that this process keeps."""
    found = _encodings.get(schema)
    if found is None:
        found = _encodings[schema] = Encoding(schema)
    return found
