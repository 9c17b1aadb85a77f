"""Structs and maps changed field by field; changed schemas are made once for each schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.connect import schemas
from barnabas.connect.errors import DataError
from barnabas.connect.schemas import Field, Schema

SCHEMAS_MAX = 256


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    """Raises DataError."""
    if not isinstance(value, dict):
        raise DataError(
            f"Only Map objects supported in absence of schema for [{purpose}], found: {type_name(value)}"
        )
    return value


def require_struct(value: Any, purpose: str) -> dict[str, Any]:
    """Raises DataError."""
    if not isinstance(value, dict):
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {type_name(value)}")
    return value


def type_name(value: Any) -> str:
    """A value's type as Java calls it."""
    names = {
        str: "java.lang.String",
        int: "java.lang.Long",
        float: "java.lang.Double",
        bool: "java.lang.Boolean",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


def with_fields(schema: Schema, fields: list[Field]) -> Schema:
    """The same struct with other fields."""
    from dataclasses import replace

    return replace(schema, fields=tuple(fields))


class Changed:
    """Keeps what `change` makes of each schema."""

    def __init__(self, change: Callable[[Schema], Schema]) -> None:
        self._change = change
        self._known: dict[Schema, Schema] = {}

    def __call__(self, schema: Schema) -> Schema:
        changed = self._known.get(schema)
        if changed is None:
            if len(self._known) >= SCHEMAS_MAX:
                self._known.clear()
            changed = self._known[schema] = self._change(schema)
        return changed


def path_of(name: str) -> list[str]:
    """The parts of a field's name in the syntax V2 of KIP-821: dots part, backticks hold together."""
    parts, current, quoted = [], "", False
    for at, char in enumerate(name):
        if char == "`" and (quoted or not current):
            quoted = not quoted
        elif char == "." and not quoted:
            parts.append(current)
            current = ""
        else:
            current += char
        if at == len(name) - 1 and quoted:
            raise DataError(f"{name!r} has a backtick without its pair")
    return [*parts, current]


def found_at(schema: Schema | None, value: Any, path: list[str]) -> tuple[Schema | None, Any]:
    """The schema and value of a field; None where something on the way is missing."""
    for part in path:
        if schema is not None:
            field = schema.by_name.get(part)
            if field is None:
                return None, None
            schema = field.schema
        value = value.get(part) if isinstance(value, dict) else None
    return schema, value


optional_string = schemas.OPTIONAL_STRING
