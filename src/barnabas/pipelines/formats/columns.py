"""Steps and outputs with schemas: what the driver asks of a registry, and the Spark columns that it compiles.

A query reads by the version that was the newest when it began: later versions are read by it as Avro, JSON Schema and
Protobuf resolve schemas. What its rows are written with stays the same as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.client.registry import Registry, RegistryError, Schema
from barnabas.pipelines.formats.avro import schema_of
from barnabas.pipelines.formats.base import NoColumns
from barnabas.pipelines.formats.decoding import NOT_FOUND, decoding_of, reader_of
from barnabas.pipelines.formats.encoding import TYPE, encoding_of, writer_of
from barnabas.pipelines.spark_private import arrow_type, spark_type
from barnabas.pipelines.steps.base import RESERVED, Frame, fail, quoted

if TYPE_CHECKING:
    from barnabas.pipelines.model import RegistryPlace, Step

NAME_OF_RECORDS: Final = re.compile(r"[^A-Za-z0-9_]")
_registers: ContextVar[bool] = ContextVar("registers", default=True)


@contextmanager
def nothing_registered() -> Iterator[None]:
    """What is compiled meanwhile is not going to run: a schema that is not there yet is not registered."""
    token = _registers.set(False)
    try:
        yield
    finally:
        _registers.reset(token)


def newest(place: RegistryPlace, step: Step) -> Schema:
    """The newest version of a subject. Raises PipelineError."""
    try:
        return Registry(place.url).newest(place.subject)
    except RegistryError as error:
        fail(step, str(error))


def decoded_columns(place: RegistryPlace, step: Step) -> tuple[Callable[[Column], Column], tuple[str, ...]]:
    """A column of records to a struct of `v`, the rows, and `error`; and the names of the fields. Raises PipelineError."""
    url, schema = place.url, newest(place, step)
    try:
        fields = reader_of(schema).type
    except NoColumns as error:
        fail(step, f"{place.subject}: {error}")
    made = pa.struct([("v", fields), ("error", pa.string())])

    def decode(records: pa.Array) -> pa.Array:
        return decoding_of(url, schema).decode(records)

    # Not deterministic, for Spark: it would decode once more for each place that names a field.
    udf = F.arrow_udf(decode, returnType=spark_type(made)).asNondeterministic()
    return udf, tuple(fields.names)


def encoded_column(frame: Frame, place: RegistryPlace, step: Step) -> Column:
    """All fields as a struct of `v`, the record's bytes, and `error`. Raises PipelineError."""
    if frame.open or not frame.fields:
        fail(
            step,
            "the fields must be known before: declare them in the parse step, or name them in a keep step",
        )
    row = F.struct(*[F.col(quoted(name)) for name in frame.fields])
    try:
        schema = _written_schema(frame, row, place)
        wanted = writer_of(schema).fields
    except (NoColumns, RegistryError) as error:
        fail(step, f"{place.subject}: {error}")
    version = f"version {schema.version} of {place.subject}"
    for name in frame.fields:
        if name not in wanted:
            fail(step, f"field {name!r} is not in {version}: drop it, or register a version that has it")
    for name, is_needed in wanted.items():
        if is_needed and name not in frame.fields:
            fail(step, f"{version} needs the field {name!r}, which is not there at this point")

    def encode(rows: pa.Array) -> pa.Array:
        return encoding_of(schema).encode(rows)

    udf = F.arrow_udf(encode, returnType=spark_type(TYPE)).asNondeterministic()
    made: Column = udf(row)
    return made


def _written_schema(frame: Frame, row: Column, place: RegistryPlace) -> Schema:
    """The newest version; where there is none, one that is made of the fields. Raises RegistryError, NoColumns."""
    registry = Registry(place.url)
    try:
        return registry.newest(place.subject)
    except RegistryError as error:
        if error.code not in NOT_FOUND:
            raise
    kind = frame.data.select(row.alias("x")).schema["x"].dataType
    text = schema_of(arrow_type(kind), NAME_OF_RECORDS.sub("_", place.subject.removesuffix("-value")))
    if not _registers.get():
        return Schema(0, "AVRO", text)
    registry.register(place.subject, "AVRO", text)
    return registry.newest(place.subject)


def check_field(name: str, step: Step) -> str:
    """A name that a schema gives a field. Raises PipelineError."""
    if name.startswith("_"):
        fail(
            step,
            f"a field cannot be called {name!r}: {RESERVED}; `prefix` goes before the names of all fields",
        )
    return name
