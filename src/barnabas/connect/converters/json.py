"""Kafka's JsonConverter. Source: org.apache.kafka.connect.json.JsonConverter, KIP-26, KIP-481, KIP-1054."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from barnabas.connect import schemas
from barnabas.connect.converters.base import Converter, Headers
from barnabas.connect.errors import DataError, OptionError
from barnabas.connect.options import ConnectorOption, Importance, Type
from barnabas.connect.schemas import Field, Schema

TO_JSON: Final = {"float32": "float", "float64": "double"}
FROM_JSON: Final = {"float": "float32", "double": "float64"}
NO_ENVELOPE: Final = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. If you '
    "are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
dumps: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class JsonConverter(Converter):
    """JSON, with or without its schema beside it."""

    doc = "JSON; with schemas.enable, each value has its schema beside it."
    options = (
        ConnectorOption(
            "schemas.enable",
            Type.BOOLEAN,
            True,
            Importance.HIGH,
            "Include schemas within each of the serialized values and keys.",
        ),
        ConnectorOption(
            "schemas.cache.size",
            Type.INT,
            1000,
            Importance.HIGH,
            "The maximum number of schemas that can be cached in this converter instance.",
        ),
        ConnectorOption(
            "decimal.format",
            Type.STRING,
            "BASE64",
            Importance.LOW,
            "Controls which format this converter will serialize decimals in. This value is case insensitive and can be "
            "either 'BASE64' (default) or 'NUMERIC'",
            choices=("BASE64", "NUMERIC"),
        ),
        ConnectorOption(
            "replace.null.with.default",
            Type.BOOLEAN,
            True,
            Importance.LOW,
            "Whether to replace fields that have a default value and that are null to the default value.",
        ),
        ConnectorOption(
            "schema.content",
            Type.STRING,
            None,
            Importance.HIGH,
            "When set, this is used as the schema for all messages, and they have no envelope.",
        ),
    )

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """See Converter."""
        super().configure(config, is_key)
        self.numeric = self.config["decimal.format"].upper() == "NUMERIC"
        self.defaults = self.config["replace.null.with.default"]
        self.fixed: Schema | None = None
        if self.config["schema.content"]:
            try:
                self.fixed = read_schema(json.loads(self.config["schema.content"]))
            except (ValueError, DataError) as error:
                raise OptionError(f"schema.content is not a schema: {error}", "schema.content") from None

    def encoder(self, topic: str) -> Callable[[Schema | None, Any, Headers], bytes | None]:
        """See Converter."""
        enveloped = self.config["schemas.enable"] and self.fixed is None
        numeric, defaults = self.numeric, self.defaults

        def encode(schema: Schema | None, value: Any, headers: Headers) -> bytes | None:
            if value is None and schema is None:
                return None
            try:
                text = dumps(to_json(schema, value, numeric, defaults))
            except (TypeError, ValueError) as error:
                raise DataError(f"the value cannot be written as JSON: {error}") from None
            if enveloped:
                about = "null" if schema is None else schema_text(schema)
                text = f'{{"schema":{about},"payload":{text}}}'
            elif value is None and text == "null":
                return None
            return text.encode("utf-8", "surrogatepass")

        return encode

    def decoder(self, topic: str) -> Callable[[bytes | None, Headers], tuple[Schema | None, Any]]:
        """See Converter."""
        enveloped = self.config["schemas.enable"]

        def decode(data: bytes | None, headers: Headers) -> tuple[Schema | None, Any]:
            if not data:
                return None, None
            try:
                value = json.loads(data)
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
                ) from None
            if self.fixed is not None:
                return self.fixed, from_json(self.fixed, value, self.defaults)
            if not enveloped:
                return None, value
            if not isinstance(value, dict) or value.keys() != {"schema", "payload"}:
                raise DataError(NO_ENVELOPE)
            about = value["schema"]
            if about is None:
                return None, value["payload"]
            schema = _schema_of(dumps(about))
            return schema, from_json(schema, value["payload"], self.defaults)

        return decode


# --- schemas ----------------------------------------------------------------------------------------------


@lru_cache(1000)
def schema_text(schema: Schema) -> str:
    """A schema as JSON text."""
    return dumps(schema_json(schema))


@lru_cache(1000)
def _schema_of(text: str) -> Schema:
    return read_schema(json.loads(text))


def schema_json(schema: Schema, field: str | None = None) -> dict[str, Any]:
    """A schema as JSON, as Kafka writes it."""
    about: dict[str, Any] = {"type": TO_JSON.get(schema.type, schema.type)}
    if schema.type == "array":
        assert schema.items is not None
        about["items"] = schema_json(schema.items)
    elif schema.type == "map":
        assert schema.keys is not None
        assert schema.items is not None
        about |= {"keys": schema_json(schema.keys), "values": schema_json(schema.items)}
    elif schema.type == "struct":
        about["fields"] = [schema_json(one.schema, one.name) for one in schema.fields]
    about["optional"] = schema.optional
    if schema.name is not None:
        about["name"] = schema.name
    if schema.version is not None:
        about["version"] = schema.version
    if schema.doc is not None:
        about["doc"] = schema.doc
    if schema.parameters:
        about["parameters"] = dict(schema.parameters)
    if schema.has_default:
        about["default"] = to_json(schema, schema.default, False, False)
    if field is not None:
        about["field"] = field
    return about


def read_schema(about: Any) -> Schema:
    """The schema of its JSON. Raises DataError."""
    if not isinstance(about, dict) or not isinstance(about.get("type"), str):
        raise DataError("Schema must contain 'type' field")
    kind = FROM_JSON.get(about["type"], about["type"])
    if kind not in schemas.TYPES:
        raise DataError(f"Unknown schema type: {about['type']}")
    fields: tuple[Field, ...] = ()
    keys = items = None
    if kind == "struct":
        rows = about.get("fields")
        if not isinstance(rows, list):
            raise DataError('Struct schema\'s "fields" argument is not an array.')
        fields = tuple(Field(str(_need(row, "field")), read_schema(row)) for row in rows)
    elif kind == "array":
        items = read_schema(_need(about, "items"))
    elif kind == "map":
        keys, items = read_schema(_need(about, "keys")), read_schema(_need(about, "values"))
    parameters = about.get("parameters") or {}
    schema = Schema(
        kind,
        about.get("optional") is True,
        about.get("name"),
        about.get("version"),
        about.get("doc"),
        parameters=tuple((str(name), str(text)) for name, text in parameters.items()),
        fields=fields,
        keys=keys,
        items=items,
    )
    if about.get("default") is None:
        return schema
    from dataclasses import replace

    return replace(schema, default=from_json(schema, about["default"], False))


def _need(about: Any, name: str) -> Any:
    if not isinstance(about, dict) or name not in about:
        raise DataError(f"Schema's '{name}' is missing")
    return about[name]


# --- values -----------------------------------------------------------------------------------------------


def to_json(schema: Schema | None, value: Any, numeric: bool, defaults: bool) -> Any:
    """A value as what `json` can write. Raises DataError."""
    if schema is None:
        return _plain(value)
    if value is None:
        if schema.has_default and defaults:
            return None if schema.default is None else to_json(schema, schema.default, numeric, defaults)
        if schema.optional:
            return None
        raise DataError("Conversion error: null value for field that is required and has no default value")
    kind = schema.type
    if schema.name in schemas.LOGICAL:
        if numeric and isinstance(value, Decimal):
            return _Number(value)
        carried = schemas.to_primitive(schema, value)
        return base64.b64encode(carried).decode() if isinstance(carried, bytes) else carried
    if kind == "struct":
        if not isinstance(value, dict):
            raise DataError(f"{type(value).__name__} is not a struct")
        return {
            field.name: to_json(field.schema, value.get(field.name), numeric, defaults)
            for field in schema.fields
        }
    if kind == "array":
        return [to_json(schema.items, item, numeric, defaults) for item in value]
    if kind == "map":
        assert schema.keys is not None
        if schema.keys.type == "string":
            return {key: to_json(schema.items, item, numeric, defaults) for key, item in value.items()}
        return [
            [to_json(schema.keys, key, numeric, defaults), to_json(schema.items, item, numeric, defaults)]
            for key, item in value.items()
        ]
    if kind == "bytes":
        return base64.b64encode(value).decode()
    if not isinstance(value, _SIMPLE[kind]):
        raise DataError(f"{value!r} is not of the type {schemas.described(schema)}")
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no such numbers; Kafka's converter quotes them.
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


_SIMPLE: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(schemas.INTEGERS, (int,)),
    "float32": (float, int),
    "float64": (float, int),
    "boolean": (bool,),
    "string": (str,),
}


class _Number(float):
    """A decimal that JSON writes with all its digits."""

    def __new__(cls, value: Decimal) -> _Number:
        number = super().__new__(cls, value)
        number.digits = f"{value:f}"  # type: ignore[attr-defined]
        return number

    def __repr__(self) -> str:
        return str(self.digits)  # type: ignore[attr-defined]


def _plain(value: Any) -> Any:
    """A value without a schema; those that JSON lacks as their schemas would be written."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    schema = schemas.inferred(value)
    if schema is None:
        raise DataError(f"a {type(value).__name__} cannot be written as JSON")
    return to_json(schema, value, False, False)


def from_json(schema: Schema, value: Any, defaults: bool) -> Any:
    """The other way round. Raises DataError."""
    if value is None:
        if schema.has_default and defaults:
            return schema.default
        if schema.optional:
            return None
        raise DataError(f"Invalid null value for required {schema.type} field")
    kind = schema.type
    try:
        if kind == "struct":
            return {
                field.name: from_json(field.schema, value.get(field.name), defaults)
                for field in schema.fields
            }
        if kind == "array":
            assert schema.items is not None
            return [from_json(schema.items, item, defaults) for item in value]
        if kind == "map":
            assert schema.keys is not None
            assert schema.items is not None
            pairs = value.items() if isinstance(value, dict) else value
            return {
                from_json(schema.keys, key, defaults): from_json(schema.items, item, defaults)
                for key, item in pairs
            }
        if schema.name == schemas.DECIMAL and isinstance(value, (int, float)):
            return Decimal(str(value))
        if kind == "bytes":
            data = base64.b64decode(value, validate=True)
            return schemas.from_primitive(schema, data)
    except (AttributeError, TypeError, ValueError, binascii.Error):
        raise DataError(f"{value!r:.100} is not of the type {schemas.described(schema)}") from None
    is_wrong_bool = isinstance(value, bool) and kind != "boolean"
    if is_wrong_bool or not isinstance(value, _SIMPLE[kind]):
        raise DataError(f"{value!r:.100} is not of the type {schemas.described(schema)}")
    if kind in schemas.FLOATS:
        return float(str(value))
    return schemas.from_primitive(schema, value) if schema.name in schemas.LOGICAL else value
