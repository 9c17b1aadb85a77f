"""Parses schemas of any language. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.schemas.errors import InvalidSchema
from barnabas.schemas.formats.base import Dependency, Parsed
from barnabas.schemas.formats.pairs import Steps
from barnabas.schemas.model import AVRO, JSON, PROTOBUF, TYPES


def read_schema(
    kind: str, text: str, dependencies: Sequence[Dependency], *, new: bool, steps: Steps | None = None
) -> Parsed:
    """Parse a schema. kind: its language. new: check it more strictly.

    Raises InvalidSchema, which names the place, and OverBudget.
    """
    if kind == AVRO:
        from barnabas.schemas.formats.avro import read_avro

        return read_avro(text, dependencies, new=new, steps=steps)
    if kind == JSON:
        from barnabas.schemas.formats.json_schema import read_json_schema

        return read_json_schema(text, dependencies, new=new)
    if kind == PROTOBUF:
        from barnabas.schemas.formats.protobuf import read_protobuf

        return read_protobuf(text, dependencies)
    raise InvalidSchema(f"schemaType {kind!r} is not one of {', '.join(TYPES)}")
