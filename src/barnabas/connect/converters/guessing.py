"""Schemas of values that come without one, for formats that need one."""

from __future__ import annotations

from typing import Any

from barnabas.connect import schemas
from barnabas.connect.errors import DataError
from barnabas.connect.schemas import Schema


def guessed(value: Any) -> Schema:
    """Fields are optional; lists have the type of their first element. Raises DataError."""
    if isinstance(value, dict):
        rows = {str(name): guessed(item).as_optional() for name, item in value.items()}
        return schemas.struct(rows)
    if isinstance(value, (list, tuple)):
        first = next((item for item in value if item is not None), "")
        return schemas.array(guessed(first).as_optional())
    if value is None:
        return schemas.OPTIONAL_STRING
    schema = schemas.inferred(value)
    if schema is None:
        raise DataError(f"a {type(value).__name__} has no schema")
    return schema
