"""Rows of a pipeline as records for a sink connector."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from barnabas.connect import schemas
from barnabas.connect.records import SinkRecord
from barnabas.connect.schemas import Field, Schema
from barnabas.pipelines.kinds.targets.base import (
    DeliveryError,
    Task,
    deletions,
    documents,
    field_names,
    identities,
)

SCALARS: Final[Mapping[pa.DataType, Schema]] = {
    pa.bool_(): schemas.BOOLEAN,
    pa.int8(): schemas.INT8,
    pa.int16(): schemas.INT16,
    pa.int32(): schemas.INT32,
    pa.int64(): schemas.INT64,
    pa.float32(): schemas.FLOAT32,
    pa.float64(): schemas.FLOAT64,
    pa.string(): schemas.STRING,
    pa.large_string(): schemas.STRING,
    pa.binary(): schemas.BYTES,
    pa.large_binary(): schemas.BYTES,
    pa.date32(): schemas.DATE_SCHEMA,
}
ROWS_BITS: Final = 20
"""A record that became several rows has places for a million of them."""
BATCH_BITS: Final = 32
DecodeKey = Callable[[str, bytes | None], tuple[Schema | None, Any]]


def schema_of(kind: pa.DataType) -> Schema | None:
    """Connect's schema of a column; None if it has none."""
    if pa.types.is_timestamp(kind):
        return schemas.TIMESTAMP_SCHEMA
    if pa.types.is_decimal(kind):
        return schemas.decimal(kind.scale)
    return SCALARS.get(kind)


class Rows:
    """The rows of one task of a micro-batch. topic: what records are said to come from; None: their own topic. The places
    of records are the same whenever the micro-batch is repeated:

    - that of the record, if a row comes from one alone;
    - its offset times 2^20 and the number of the row, if a record has become several;
    - the number of the micro-batch times 2^32 and that of the row, in a partition for each task, if it comes from no
      single record, as the rows of aggregates.
    """

    def __init__(self, task: Task, topic: str | None, key: DecodeKey) -> None:
        self._task, self._topic, self._key = task, topic, key
        self._records_numbered = 0
        self._last: tuple[Any, ...] = ()
        self._nth = 0
        self._schema: Schema | None = None

    def records(self, batch: pa.RecordBatch) -> list[SinkRecord]:
        """A record for each row of a batch. Raises DeliveryError for a column that Connect has no type for."""
        values = self._documents(batch) if self._task.nested or self._task.open else self._structs(batch)
        return [
            self._record(place, key, at, None if gone else value)
            for place, key, at, gone, value in zip(
                self._places(batch),
                _column(batch, "_key"),
                _column(batch, "_timestamp"),
                deletions(batch),
                values,
                strict=True,
            )
        ]

    def _record(
        self, place: tuple[str, int, int], key: bytes | None, at: dt.datetime | None, value: Any
    ) -> SinkRecord:
        topic, partition, offset = place
        key_schema, key_value = self._key(topic, key)
        return SinkRecord(
            topic,
            value,
            key_value,
            None if value is None else self._schema,
            key_schema,
            timestamp_ms=None if at is None else schemas.timestamp_ms(at),
            partition=partition,
            offset=offset,
            original_topic=topic,
            original_partition=partition,
            raw_key=key,
        )

    @staticmethod
    def _documents(batch: pa.RecordBatch) -> Iterator[Any]:
        return map(json.loads, documents(batch))

    def _structs(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        names = field_names(batch)
        columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
        if self._schema is None:
            self._schema = schemas.struct([_field(n, c.type) for n, c in zip(names, columns, strict=True)])
        columns_of_values = [column.to_pylist() for column in columns]
        for index, column in enumerate(columns):
            if pa.types.is_timestamp(column.type):
                columns_of_values[index] = [
                    None if at is None else _in_utc(at) for at in columns_of_values[index]
                ]
        return (dict(zip(names, row, strict=True)) for row in zip(*columns_of_values, strict=True))

    def _places(self, batch: pa.RecordBatch) -> Iterator[tuple[str, int, int]]:
        columns = [_column(batch, name) for name in ("_topic", "_partition", "_offset")]
        for topic, partition, offset, identity in zip(*columns, identities(batch), strict=True):
            record = (topic, partition, offset)
            if offset is None:
                self._records_numbered += 1
                yield (
                    self._topic or self._task.query,
                    self._task.part,
                    ((self._task.batch_id << BATCH_BITS) + self._records_numbered - 1),
                )
                continue
            self._nth = self._nth + 1 if record == self._last else 0
            self._last = record
            if identity is not None and identity != f"{topic}-{partition}-{offset}":
                offset = (offset << ROWS_BITS) + self._nth
            yield self._topic or topic, partition, offset


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    cells: list[Any] = batch.column(batch.schema.get_field_index(name)).to_pylist()
    return cells


def _field(name: str, kind: pa.DataType) -> Field:
    schema = schema_of(kind)
    if schema is None:
        raise DeliveryError(
            f"field {name} is {kind}, which connectors have no type for: convert it in a step"
        )
    return Field(name, schema.as_optional())


def _in_utc(at: dt.datetime) -> dt.datetime:
    return at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at.astimezone(dt.UTC)
