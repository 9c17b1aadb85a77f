"""Steps and outputs with schemas: the driver's requests to a registry, and the Spark columns that it compiles.

A query reads with the version that was the newest when it began: records of later versions are read with it by the
rules of Avro, JSON Schema or Protobuf for different versions. The version that it writes with stays the same, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from barnabas.client.registry import RegistryClient, RegistryError
from barnabas.pipelines.formats.base import VALUE, NoColumns
from barnabas.pipelines.formats.decoding import decoding_of, reader_of
from barnabas.pipelines.formats.encoding import TYPE, contract_for, encoding_of, writer_of
from barnabas.pipelines.formats.subjects import require_fields, written_schema
from barnabas.pipelines.spark.frame import RESERVED, Frame, fail, quoted
from barnabas.pipelines.spark.private import arrow_type, each, spark_type
from barnabas.schemas.framing import Schema, frame, schema_header

if TYPE_CHECKING:
    from barnabas.pipelines.plan.operators import RegistryPlace
    from barnabas.pipelines.plan.places import Place

BARE_HEAD: Final = frame(0, b"\0")
"""What stands before a message of a schema that is not in a registry, while it is decoded and encoded."""
_registers: ContextVar[bool] = ContextVar("registers", default=True)


@contextmanager
def nothing_registered() -> Iterator[None]:
    """For compiling queries that are not going to run: missing schemas are not registered."""
    token = _registers.set(False)
    try:
        yield
    finally:
        _registers.reset(token)


def newest(place: RegistryPlace, step: Place) -> Schema:
    """The newest version of a subject. Raises PipelineError."""
    if place.text:
        return Schema(0, "PROTOBUF", place.text)
    try:
        return RegistryClient(place.url).newest(place.subject)
    except RegistryError as error:
        fail(step, str(error))


def decoded_columns(place: RegistryPlace, step: Place) -> tuple[Callable[[Column], Column], tuple[str, ...]]:
    """A function from records to structs of `v`, the row, and `error`; and the fields. Raises PipelineError."""
    url, schema = place.url, newest(place, step)
    try:
        fields = reader_of(schema).type
        contract_for(schema)  # checked here, because executors report errors in many lines
    except NoColumns as error:
        fail(step, f"{place.subject}: {error}")
    struct = pa.struct([("v", fields), ("error", pa.string())])

    def decode(records: pa.Array) -> pa.Array:
        return decoding_of(url, schema).decode(records)

    # Declared nondeterministic: otherwise Spark decodes once more for each use of a field.
    udf = F.arrow_udf(decode, returnType=spark_type(struct)).asNondeterministic()
    return udf, tuple(fields.names)


def bare(record: Column) -> Column:
    """The bytes of the first message of a schema that they do not name, as if they named it."""
    return F.concat(F.lit(BARE_HEAD), record)


def framed(record: Column, headers: Column, part: str) -> Column:
    """Keys or values with the header that names their schema, if any, in front of them, see formats/decoding.py."""
    named = each(
        "filter", headers, lambda h: (h["key"] == F.lit(schema_header(part))) & (F.length(h["value"]) > 0)
    )
    carried = F.get(named, F.lit(0))["value"]
    return F.when(carried.isNull(), record).otherwise(F.concat(carried, record))


def encoded_column(frame: Frame, place: RegistryPlace, step: Place) -> Column:
    """All fields as a struct of `v`, the record's bytes, and `error`. Raises PipelineError."""
    if frame.open or not frame.fields:
        fail(
            step,
            "the fields must be known before: declare them in the parse step, or name them in a keep step",
        )
    row = F.struct(*[F.col(quoted(name)) for name in frame.fields])
    rows = arrow_type(frame.data.select(row.alias("x")).schema["x"].dataType)
    try:
        if place.text:
            schema = newest(place, step)
        else:
            schema = written_schema(place.url, place.subject, rows, registers=_registers.get())
    except (NoColumns, RegistryError) as error:
        fail(step, f"{place.subject}: {error}")
    try:
        if len(frame.fields) == 1 and writer_of(schema).is_plain:
            row = F.struct(F.col(quoted(frame.fields[0])).alias(VALUE))
        else:
            require_fields(schema, place.subject, frame.fields)
        contract_for(schema)
    except NoColumns as error:
        fail(step, str(error))

    def encode(rows: pa.Array) -> pa.Array:
        return encoding_of(schema).encode(rows)

    udf = F.arrow_udf(encode, returnType=spark_type(TYPE)).asNondeterministic()
    encoded: Column = udf(row)
    if not place.text:
        return encoded
    length = F.length(encoded["v"]) - len(BARE_HEAD)
    return F.struct(
        F.substring(encoded["v"], F.lit(len(BARE_HEAD) + 1), length).alias("v"),
        encoded["error"].alias("error"),
    )


def check_field(name: str, step: Place) -> str:
    """The name of a field in a schema, if fields may have it. Raises PipelineError."""
    if name.startswith("_"):
        fail(
            step,
            f"a field cannot be called {name!r}: {RESERVED}; set `prefix`, which goes before the names of all fields",
        )
    return name
