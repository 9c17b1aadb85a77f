"""Transforms of fields. Source: Kafka's package org.apache.kafka.connect.transforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from barnabas.connect import schemas
from barnabas.connect.errors import DataError, OptionError
from barnabas.connect.options import ConnectorOption, Importance, Type
from barnabas.connect.records import Record, SinkRecord
from barnabas.connect.schemas import Field, Schema
from barnabas.connect.transforms.base import Transform
from barnabas.connect.transforms.shapes import (
    Changed,
    found_at,
    path_of,
    require_map,
    require_struct,
    with_fields,
)

BOTH: Final = ("key", "value")
SYNTAX: Final = ConnectorOption(
    "field.syntax.version",
    default="V1",
    importance=Importance.HIGH,
    doc="V2 supports paths to nested fields, V1 has only fields of the first level.",
    choices=("V1", "V2"),
)
REPLACE_NULL: Final = ConnectorOption(
    "replace.null.with.default", Type.BOOLEAN, True, doc="Whether null is replaced by a field's default."
)


class ExtractField(Transform):
    """The value of one field in place of the whole."""

    doc = "Extract the specified field from a Struct or Map."
    parts = BOTH
    options = (ConnectorOption("field", doc="Field name to extract."), SYNTAX, REPLACE_NULL)

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        name = self.config["field"]
        self._path = path_of(name) if self.config["field.syntax.version"].upper() == "V2" else [name]

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = self.read(record)
        if value is None:
            return self.put(record, None if schema is None else found_at(schema, None, self._path)[0], None)
        if schema is None:
            return self.put(
                record, None, found_at(None, require_map(value, "field extraction"), self._path)[1]
            )
        field_schema, inner = found_at(schema, require_struct(value, "field extraction"), self._path)
        if field_schema is None:
            raise DataError(f"Unknown field: {self.config['field']}")
        if inner is None and field_schema.has_default and self.config["replace.null.with.default"]:
            inner = field_schema.default
        return self.put(record, field_schema, inner)


class ValueToKey(Transform):
    """A key of fields of the value."""

    doc = "Replace the record key with a new key formed from a subset of fields in the record value."
    options = (
        ConnectorOption(
            "fields", Type.LIST, doc="Field names on the record value to extract as the record key."
        ),
        REPLACE_NULL,
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._names = self.config["fields"]
        if not self._names:
            raise OptionError("fields must not be empty", "fields")
        self._schema = Changed(self._key_schema)

    def _key_schema(self, schema: Schema) -> Schema:
        missing = next((name for name in self._names if name not in schema.by_name), None)
        if missing is not None:
            raise DataError(f"Field does not exist: {missing}")
        return schemas.struct([Field(name, schema.by_name[name].schema) for name in self._names])

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = record.value_schema, record.value
        purpose = "copying fields from value to key"
        if schema is None:
            fields = require_map(value, purpose)
            return replace(record, key_schema=None, key={name: fields.get(name) for name in self._names})
        fields = require_struct(value, purpose)
        key = {name: fields.get(name) for name in self._names}
        return replace(record, key_schema=self._schema(schema), key=key)


class HoistField(Transform):
    """The whole as the only field of a struct or map."""

    doc = "Wrap data using the specified field name in a Struct or Map."
    parts = BOTH
    options = (ConnectorOption("field", doc="Field name for the single field that will be created."),)

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._schema = Changed(lambda schema: schemas.struct({self.config["field"]: schema}))

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = self.read(record)
        return self.put(
            record, None if schema is None else self._schema(schema), {self.config["field"]: value}
        )


class ReplaceField(Transform):
    """Fields left out and renamed."""

    doc = "Filter or rename fields."
    parts = BOTH
    options = (
        ConnectorOption("exclude", Type.LIST, "", doc="Fields to exclude."),
        ConnectorOption("include", Type.LIST, "", doc="Fields to include; all if it is empty."),
        ConnectorOption("renames", Type.LIST, "", doc="Field rename mappings: old:new,..."),
        ConnectorOption("blacklist", Type.LIST, "", Importance.LOW, "The old name of exclude."),
        ConnectorOption("whitelist", Type.LIST, "", Importance.LOW, "The old name of include."),
        REPLACE_NULL,
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._exclude = set(self.config["exclude"] or self.config["blacklist"])
        self._include = set(self.config["include"] or self.config["whitelist"])
        pairs = [text.split(":") for text in self.config["renames"]]
        if any(len(pair) != 2 for pair in pairs):
            raise OptionError("renames must be old:new,...", "renames")
        self._renames = {old.strip(): new.strip() for old, new in pairs}
        self._schema = Changed(self._changed)

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _changed(self, schema: Schema) -> Schema:
        kept = [field for field in schema.fields if self._keeps(field.name)]
        return with_fields(schema, [Field(self._renames.get(f.name, f.name), f.schema) for f in kept])

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = self.read(record)
        if value is None:
            return record
        purpose = "field replacement"
        fields = require_map(value, purpose) if schema is None else require_struct(value, purpose)
        kept = {self._renames.get(name, name): inner for name, inner in fields.items() if self._keeps(name)}
        return self.put(record, None if schema is None else self._schema(schema), kept)


EMPTY: Final[Mapping[str, Any]] = {
    **dict.fromkeys(schemas.INTEGERS, 0),
    "float32": 0.0,
    "float64": 0.0,
    "boolean": False,
    "string": "",
}


class MaskField(Transform):
    """Fields made unreadable."""

    doc = "Mask specified fields with a valid null value for the field type, or with a replacement."
    parts = BOTH
    options = (
        ConnectorOption("fields", Type.LIST, doc="Names of fields to mask."),
        ConnectorOption("replacement", default=None, doc="The value for numbers and texts."),
        REPLACE_NULL,
    )

    def _masked(self, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        replacement = self.config["replacement"]
        if replacement is not None and isinstance(value, (str, int, float)) and not isinstance(value, bool):
            try:
                return type(value)(replacement)
            except ValueError:
                raise DataError(
                    f"Unable to convert {replacement} ({type(value).__name__}) to number"
                ) from None
        return _empty(schema, value)

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = self.read(record)
        if value is None:
            return record
        purpose = "masking fields"
        fields = require_map(value, purpose) if schema is None else require_struct(value, purpose)
        masked = dict(fields)
        for name in self.config["fields"]:
            if name in masked:
                field = None if schema is None else schema.by_name.get(name)
                masked[name] = self._masked(None if field is None else field.schema, masked[name])
        return self.put(record, schema, masked)


def _empty(schema: Schema | None, value: Any) -> Any:
    if schema is not None and schema.name in schemas.LOGICAL:
        return schemas.from_primitive(schema, b"\x00" if schema.type == "bytes" else 0)
    if isinstance(value, (bool, int, float, str)):
        return type(value)()
    if isinstance(value, (list, dict)):
        return type(value)()
    raise DataError(f"Cannot mask value of type: {type(value).__name__}")


class InsertField(Transform):
    """Fields with what the record has besides."""

    doc = "Insert field(s) using attributes from the record metadata or a configured static value."
    parts = BOTH
    options = (
        ConnectorOption("topic.field", default=None, doc="Field name for Kafka topic."),
        ConnectorOption("partition.field", default=None, doc="Field name for Kafka partition."),
        ConnectorOption("offset.field", default=None, doc="Field name for Kafka offset, of sinks only."),
        ConnectorOption("timestamp.field", default=None, doc="Field name for record timestamp."),
        ConnectorOption("static.field", default=None, doc="Field name for static data field."),
        ConnectorOption("static.value", default=None, doc="Static field value, if field name configured."),
        REPLACE_NULL,
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        names = ("topic", "partition", "offset", "timestamp", "static")
        self._wanted = [
            (part, text.rstrip("!?"), not text.endswith("!"))
            for part in names
            if (text := self.config[f"{part}.field"])
        ]
        if not self._wanted:
            raise OptionError("No field insertion configured")
        if self.config["static.field"] and self.config["static.value"] is None:
            raise OptionError("No value specified for static field", "static.value")
        self._schema = Changed(self._changed)

    def _changed(self, schema: Schema) -> Schema:
        kinds = {
            "topic": schemas.STRING,
            "partition": schemas.INT32,
            "offset": schemas.INT64,
            "timestamp": schemas.TIMESTAMP_SCHEMA,
            "static": schemas.STRING,
        }
        new = [
            Field(name, kinds[part].as_optional() if is_optional else kinds[part])
            for part, name, is_optional in self._wanted
        ]
        return with_fields(schema, [*schema.fields, *new])

    def _value(self, part: str, record: Record, has_schema: bool) -> Any:
        if part == "topic":
            return record.topic
        if part == "partition":
            return record.partition
        if part == "offset":
            if not isinstance(record, SinkRecord):
                raise DataError("Offset insertion is only supported for sink connectors")
            return record.offset
        if part == "timestamp":
            if record.timestamp_ms is None or not has_schema:
                return record.timestamp_ms
            return schemas.from_primitive(schemas.TIMESTAMP_SCHEMA, record.timestamp_ms)
        return self.config["static.value"]

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = self.read(record)
        if value is None:
            return record
        purpose = "field insertion"
        fields = require_map(value, purpose) if schema is None else require_struct(value, purpose)
        more = {name: self._value(part, record, schema is not None) for part, name, _ in self._wanted}
        return self.put(record, None if schema is None else self._schema(schema), {**fields, **more})


class Flatten(Transform):
    """Nested fields at the first level."""

    doc = "Flatten a nested data structure, generating names for each field by concatenating the field names."
    parts = BOTH
    options = (
        ConnectorOption("delimiter", default=".", doc="Delimiter to insert between field names."),
        REPLACE_NULL,
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._schema = Changed(
            lambda schema: with_fields(schema, list(self._fields("", schema, schema.optional)))
        )

    def _fields(self, prefix: str, schema: Schema, optional: bool):  # type: ignore[no-untyped-def]
        for field in schema.fields:
            name = f"{prefix}{field.name}"
            if field.schema.type == "struct":
                below = optional or field.schema.optional
                yield from self._fields(f"{name}{self.config['delimiter']}", field.schema, below)
            else:
                yield Field(name, field.schema.as_optional() if optional else field.schema)

    def _flat(
        self, prefix: str, value: Mapping[str, Any], schema: Schema | None, flat: dict[str, Any]
    ) -> None:
        if schema is not None:
            for field in schema.fields:
                inner, name = value.get(field.name), f"{prefix}{field.name}"
                if field.schema.type == "struct":
                    self._flat(f"{name}{self.config['delimiter']}", inner or {}, field.schema, flat)
                else:
                    flat[name] = inner
            return
        for key, inner in value.items():
            if isinstance(inner, dict):
                self._flat(f"{prefix}{key}{self.config['delimiter']}", inner, None, flat)
            else:
                flat[f"{prefix}{key}"] = inner

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = self.read(record)
        if value is None:
            return record
        fields = require_map(value, "flattening") if schema is None else require_struct(value, "flattening")
        flat: dict[str, Any] = {}
        self._flat("", fields, schema, flat)
        return self.put(record, None if schema is None else self._schema(schema), flat)


class SetSchemaMetadata(Transform):
    """The name and version of a schema."""

    doc = "Set the schema name, version or both on the record's key or value schema."
    parts = BOTH
    options = (
        ConnectorOption("schema.name", default=None, doc="Schema name to set."),
        ConnectorOption("schema.version", Type.INT, None, doc="Schema version to set."),
        REPLACE_NULL,
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        if self.config["schema.name"] is None and self.config["schema.version"] is None:
            raise OptionError("Neither schema name nor version configured")
        self._schema = Changed(self._changed)

    def _changed(self, schema: Schema) -> Schema:
        name, version = self.config["schema.name"], self.config["schema.version"]
        return replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )

    def apply(self, record: Record) -> Record:
        """See Transform."""
        schema, value = self.read(record)
        if schema is None:
            if value is None:
                return record
            raise DataError("Schema required for [updating schema metadata]")
        return self.put(record, self._schema(schema), value)


class Drop(Transform):
    """A part of the record is left out."""

    doc = "Drop the key or the value of records."
    parts = BOTH

    def apply(self, record: Record) -> Record:
        """See Transform."""
        return self.put(record, None, None)
