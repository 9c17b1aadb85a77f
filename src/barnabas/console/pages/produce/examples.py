"""A JSON value that fits a schema, for whoever writes a record by hand to begin with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.schemas.codecs import Mismatch
from barnabas.schemas.codecs.protobuf import ProtobufCodec
from barnabas.schemas.codecs.schemas import AVRO, JSON, PROTOBUF
from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency

DEPTH_MAX: Final = 8
PLAIN: Final[Mapping[str, Any]] = {
    "null": None, "boolean": False, "int": 0, "long": 0, "float": 0.0, "double": 0.0, "bytes": "", "string": "",
    "integer": 0, "number": 0, "array": [], "object": {},
}  # fmt: skip
"""Of Avro's types, and of JSON Schema's."""


def example_of(kind: str, text: str, dependencies: Sequence[Dependency] = ()) -> Any:
    """The value; None for a schema that cannot be read."""
    try:
        if kind == PROTOBUF:
            return ProtobufCodec(text, dependencies).mapped(b"\0")
        schema = json.loads(text)
        if kind == AVRO:
            return _avro(schema, {}, 0)
        return _json(schema, schema, 0) if kind == JSON else None
    except (ValueError, RecursionError, Mismatch, InvalidSchema, ImportError):
        return None


def _avro(schema: Any, named: dict[str, Any], depth: int) -> Any:
    """In Avro's JSON encoding: a value of a union is wrapped in its type's name, except null."""
    if isinstance(schema, str):
        bare = schema.rpartition(".")[2]
        if bare in named and depth < DEPTH_MAX:
            return _avro(named[bare], named, depth + 1)
        return PLAIN.get(schema)
    if isinstance(schema, list):
        if "null" in schema or not schema:
            return None
        name = schema[0] if isinstance(schema[0], str) else schema[0].get("name", schema[0].get("type"))
        return {str(name): _avro(schema[0], named, depth + 1)}
    if not isinstance(schema, dict):
        return None
    kind = schema.get("type")
    if "name" in schema:
        named[str(schema["name"]).rpartition(".")[2]] = schema
    if kind in ("record", "error"):
        fields = schema.get("fields") or ()
        return {str(field["name"]): _avro(field.get("type"), named, depth + 1) for field in fields}
    if kind == "enum":
        return next(iter(schema.get("symbols") or ()), "")
    if kind == "fixed":
        return "\0" * min(int(schema.get("size") or 0), 1_000)
    if kind == "map":
        return {}
    return _avro(kind, named, depth + 1) if depth < DEPTH_MAX else None


def _json(schema: Any, whole: Any, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return None
    for word in ("const", "default"):
        if word in schema:
            return schema[word]
    for word in ("examples", "enum"):
        if schema.get(word):
            return next(iter(schema[word]))
    reference = str(schema.get("$ref", ""))
    if reference.startswith("#/"):
        target = whole
        for part in reference[2:].split("/"):
            target = target.get(part) if isinstance(target, dict) else None
        return _json(target, whole, depth + 1)
    for word in ("oneOf", "anyOf", "allOf"):
        if schema.get(word):
            return _json(schema[word][0], whole, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kind = next(iter(kind), None)
    if kind == "object":
        properties = schema.get("properties") or {}
        return {str(name): _json(inner, whole, depth + 1) for name, inner in properties.items()}
    value = PLAIN.get(str(kind))
    return schema.get("minimum", value) if kind in ("integer", "number") else value
