"""Connect's schemas as JSON Schema, and back. Source: Confluent's JsonSchemaData: connect.type, connect.index. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.connect import schemas
from barnabas.connect.schemas import Field, Schema

NUMBERS: Final = {**dict.fromkeys(schemas.INTEGERS, "integer"), "float32": "number", "float64": "number"}


def to_json_schema(schema: Schema) -> dict[str, Any]:
    """A JSON Schema (draft 7)."""
    json_schema = _bare(schema)
    return {"oneOf": [{"type": "null"}, json_schema]} if schema.optional else json_schema


def _bare(schema: Schema) -> dict[str, Any]:
    json_schema: dict[str, Any]
    if schema.type == "struct":
        properties = {}
        for index, field in enumerate(schema.fields):
            properties[field.name] = {"connect.index": index, **to_json_schema(field.schema)}
        json_schema = {"type": "object", "properties": properties}
    elif schema.type == "array":
        assert schema.items is not None
        json_schema = {"type": "array", "items": to_json_schema(schema.items)}
    elif schema.type == "map":
        assert schema.items is not None
        json_schema = {
            "type": "object",
            "connect.type": "map",
            "additionalProperties": to_json_schema(schema.items),
        }
    elif schema.type in NUMBERS:
        json_schema = {"type": NUMBERS[schema.type], "connect.type": schema.type}
    elif schema.type == "bytes":
        json_schema = {"type": "string", "connect.type": "bytes"}
    else:
        json_schema = {"type": schema.type}
    if schema.name is not None:
        json_schema["title"] = schema.name
    if schema.version is not None:
        json_schema["connect.version"] = schema.version
    if schema.parameters:
        json_schema["connect.parameters"] = dict(schema.parameters)
    return json_schema


def schema_of_json_schema(about: Any) -> Schema | None:
    """The Connect schema; None for what it cannot say, whose values stay as JSON has them."""
    if not isinstance(about, dict):
        return None
    either = about.get("oneOf") or about.get("anyOf")
    if either is not None:
        kinds = [one for one in either if one != {"type": "null"}]
        schema = schema_of_json_schema(kinds[0]) if len(kinds) == 1 else None
        return None if schema is None else schema.as_optional()
    kind = about.get("type")
    if isinstance(kind, list):
        names = [one for one in kind if one != "null"]
        schema = schema_of_json_schema({**about, "type": names[0]}) if len(names) == 1 else None
        return None if schema is None else schema.as_optional()
    return _plain(about, str(kind))


def _plain(about: Mapping[str, Any], kind: str) -> Schema | None:
    own = about.get("connect.type")
    more: dict[str, Any] = {
        "name": about.get("title"),
        "version": about.get("connect.version"),
        "parameters": tuple((about.get("connect.parameters") or {}).items()),
    }
    if kind == "object" and own == "map":
        items = schema_of_json_schema(about.get("additionalProperties"))
        return None if items is None else Schema("map", keys=schemas.STRING, items=items, **more)
    if kind == "object":
        return _struct(about, more)
    if kind == "array":
        items = schema_of_json_schema(about.get("items"))
        return None if items is None else Schema("array", items=items, **more)
    type_name = own or {
        "integer": "int64",
        "number": "float64",
        "boolean": "boolean",
        "string": "string",
    }.get(kind)
    return None if type_name not in schemas.TYPES else Schema(str(type_name), **more)


def _struct(about: Mapping[str, Any], more: Mapping[str, Any]) -> Schema | None:
    rows = about.get("properties")
    if not isinstance(rows, dict) or not rows:
        return None
    required = set(about.get("required") or ()) if "required" in about else None
    fields = []
    for name, row in sorted(
        rows.items(), key=lambda pair: pair[1].get("connect.index", 0) if isinstance(pair[1], dict) else 0
    ):
        schema = schema_of_json_schema(row)
        if schema is None:
            return None
        is_ours = "connect.index" in row
        needed = is_ours if required is None else name in required
        fields.append(Field(name, schema if needed or schema.optional else schema.as_optional()))
    return Schema("struct", fields=tuple(fields), **more)
