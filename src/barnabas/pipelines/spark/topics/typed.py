"""Decodes and encodes keys and values in the data source, as structs with the schemas of a registry.

    spark.readStream.format("barnabas").option("subscribe", "orders") \\
        .option("value.schema", "registry").option("schema.registry.url", "http://localhost:8081") ...

The driver looks up the newest version of the subject. A query converts all records to that version, whichever version
they were written with. A sink writes each micro-batch with the version that is the newest then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.registry import RegistryClient, RegistryError
from barnabas.pipelines.formats.base import NoColumns
from barnabas.pipelines.formats.columns import ARROW_TYPES, ddl_schema
from barnabas.pipelines.formats.decoding import decoding_of, reader_of, with_carried
from barnabas.pipelines.formats.encoding import encoding_of
from barnabas.pipelines.formats.subjects import require_fields, written_schema
from barnabas.pipelines.spark.private import arrow_type, spark_type
from barnabas.pipelines.spark.topics.options import OptionError, SchemaPlace, SinkOptions, SourceOptions
from barnabas.schemas.framing import Schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

ERROR = "error"


class Undecodable(ValueError):
    """A record cannot be decoded. The message has its partition, an offset at or before it, and the reason."""


class Unencodable(ValueError):
    """A row cannot be encoded; the message has the reason."""


# --- reading ----------------------------------------------------------------------------------------------


def looked_up(options: SourceOptions) -> SourceOptions:
    """The options with the newest version of each subject. Raises OptionError."""
    if not options.schemas:
        return options
    places = []
    for place in options.schemas:
        if place.part not in options.columns:
            raise OptionError(f"{place.part}.schema is set, but columns does not include {place.part}")
        try:
            schema = RegistryClient(place.url).newest(place.subject)
            reader_of(schema)
        except (RegistryError, NoColumns) as error:
            raise OptionError(f"{place.part}.schema=registry: {place.subject}: {error}") from error
        places.append(replace(place, schema=schema))
    return replace(options, schemas=tuple(places))


def source_schema(options: SourceOptions) -> str | StructType:
    """The schema of the rows, for Spark. options: from `looked_up`."""
    if not options.schemas:
        return ddl_schema(options.columns)
    fields = [(name, _read_type(options, name) or ARROW_TYPES[name]) for name in options.columns]
    if options.keeps_undecodable:
        fields.append((ERROR, pa.string()))
    struct: StructType = spark_type(pa.struct(fields))
    return struct


def _read_type(options: SourceOptions, name: str) -> pa.DataType | None:
    for place in options.schemas:
        if place.part == name:
            assert place.schema is not None, "the options are looked up"
            return column_type(place.schema)
    return None


@lru_cache(maxsize=1_000)
def column_type(schema: Schema) -> pa.DataType:
    """The Arrow type of decoded records, converted to the types that Spark supports."""
    return arrow_type(spark_type(reader_of(schema).type))


def decoded_rows(options: SourceOptions, rows: pa.RecordBatch, where: str) -> pa.RecordBatch:
    """Rows in which structs replace the bytes of records. rows: with headers. where: partition and offset, for errors.

    Raises Undecodable, RegistryError.
    """
    columns: dict[str, Any] = dict(zip(rows.schema.names, rows.columns, strict=True))
    errors = pa.nulls(rows.num_rows, pa.string())
    for place in options.schemas:
        assert place.schema is not None, "the options are looked up"
        column = columns[place.part]
        whole = with_carried(column, columns["headers"], place.part)
        decoded = decoding_of(place.url, place.schema).decode(whole)
        values, reasons = decoded.field("v"), decoded.field("error")
        if column.null_count:  # null is not encoded, so it is no error
            reasons = pc.if_else(pc.is_null(column), pa.scalar(None, pa.string()), reasons)
        bad = pc.is_valid(reasons)
        if pc.any(bad).as_py():
            if not options.keeps_undecodable:
                reason = reasons.filter(bad)[0].as_py()
                raise Undecodable(
                    f"{place.part} of a record at or after {where}: {reason}; undecodable=null reads it as null"
                )
            reason_texts = pc.binary_join_element_wise(f"{place.part}: ", reasons, "")
            errors = pc.coalesce(errors, reason_texts)
        columns[place.part] = values.cast(column_type(place.schema))
    if options.keeps_undecodable:
        columns[ERROR] = errors
    names = [name for name in columns if name in options.columns or name == ERROR]
    return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)


# --- writing ----------------------------------------------------------------------------------------------


def with_schemas(options: SinkOptions, schema: StructType) -> SinkOptions:
    """The options with the schema for writing of each subject: its newest version, or one that is made from the
    columns. Raises OptionError."""
    places = []
    for place in options.schemas:
        if place.part not in schema.names:
            raise OptionError(f"{place.part}.schema is set, but there is no column {place.part}")
        rows = arrow_type(schema[place.part].dataType)
        try:
            written = written_schema(place.url, place.subject, rows)
            require_fields(written, place.subject, rows.names)
        except (RegistryError, NoColumns) as error:
            raise OptionError(f"{place.part}.schema=registry: {error}") from error
        places.append(replace(place, schema=written))
    return replace(options, schemas=tuple(places))


def encoded_rows(
    schemas: tuple[SchemaPlace, ...], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows in which bytes replace structs. Raises Unencodable."""
    for batch in batches:
        columns: dict[str, Any] = dict(zip(batch.schema.names, batch.columns, strict=True))
        for place in schemas:
            assert place.schema is not None, "the options are looked up"
            columns[place.part] = _encoded(place, place.schema, columns[place.part])
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _encoded(place: SchemaPlace, schema: Schema, rows: pa.Array) -> pa.Array:
    valid_rows = rows.filter(pc.is_valid(rows)) if rows.null_count else rows
    encoded = encoding_of(schema).encode(valid_rows)
    reasons = encoded.field("error")
    if reasons.null_count != len(reasons):
        reason = reasons.drop_null()[0].as_py()
        raise Unencodable(f"{place.part} of a row for {place.subject}: {reason}")
    values = encoded.field("v")
    if not rows.null_count:
        return values
    return pc.replace_with_mask(pa.nulls(len(rows), pa.binary()), pc.is_valid(rows), values)
