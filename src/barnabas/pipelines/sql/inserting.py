"""INSERT INTO ... VALUES: one row as a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException, Producer

from barnabas.pipelines.fronts.sql.catalog import WITH_SCHEMA, Relation
from barnabas.pipelines.fronts.sql.constants import encoded, row_of
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.statements import InsertValues
from barnabas.pipelines.sql.schemas import Schemas

SECONDS: Final = 30.0


def insert_row(
    client: Mapping[str, str], relation: Relation, statement: InsertValues, schemas: Schemas
) -> None:
    """Writes the row; returns when the brokers have it. Raises SqlError."""
    row, at_ms = row_of(relation, statement)
    key, value = encoded(relation, row)
    if relation.formats.value in WITH_SCHEMA:
        value = schemas.encoded(relation, row)
    problems: list[str] = []
    producer = Producer({**client, "partitioner": "murmur2_random", "acks": "all"})
    try:
        producer.produce(
            relation.topic,
            value,
            key,
            timestamp=at_ms,
            on_delivery=lambda e, _: problems.append(str(e)) if e else None,
        )
        if producer.flush(SECONDS):
            raise SqlError(f"the brokers did not take the row within {SECONDS:g} s")
    except KafkaException as error:
        raise SqlError(f"the row cannot be written to {relation.topic}: {error}") from None
    if problems:
        raise SqlError(f"the row cannot be written to {relation.topic}: {problems[0]}")
