"""Chooses the schema of a subject that rows are written with. Asks the registry; needs no Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from barnabas.client.registry import RegistryClient, RegistryError
from barnabas.pipelines.formats.avro import schema_of
from barnabas.pipelines.formats.base import NoColumns
from barnabas.pipelines.formats.decoding import NOT_FOUND
from barnabas.pipelines.formats.encoding import writer_of
from barnabas.schemas.framing import Schema

NAME_OF_RECORDS: Final = re.compile(r"[^A-Za-z0-9_]")


def written_schema(url: str, subject: str, rows: pa.StructType, *, registers: bool = True) -> Schema:
    """The newest version of a subject; if there is none, one made of the rows' type, and registered if `registers`.

    Raises RegistryError, NoColumns.
    """
    registry = RegistryClient(url)
    try:
        return registry.newest(subject)
    except RegistryError as error:
        if error.code not in NOT_FOUND:
            raise
    text = schema_of(rows, NAME_OF_RECORDS.sub("_", re.sub("-(value|key)$", "", subject)))
    if not registers:
        return Schema(0, "AVRO", text)
    registry.register(subject, "AVRO", text)
    return registry.newest(subject)


def require_fields(schema: Schema, subject: str, names: Sequence[str]) -> None:
    """Raises NoColumns if rows with these fields cannot be written with a subject's schema."""
    version = f"version {schema.version} of {subject}"
    try:
        wanted = writer_of(schema).fields
    except NoColumns as error:
        raise NoColumns(f"{subject}: {error}") from error
    for name in names:
        if name not in wanted:
            raise NoColumns(f"field {name!r} is not in {version}: drop it, or register a version that has it")
    for name, is_needed in wanted.items():
        if is_needed and name not in names:
            raise NoColumns(f"{version} needs the field {name!r}, which is missing at this point")
