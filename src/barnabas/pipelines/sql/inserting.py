"""INSERT INTO ... VALUES: rows as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaException, Producer

from barnabas.pipelines.fronts.sql.catalog import ENCODED, Relation
from barnabas.pipelines.fronts.sql.constants import encoded, has_key, row_of
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.statements import InsertValues
from barnabas.pipelines.sql.schemas import Schemas

SECONDS: Final = 30.0


class Inserter:
    """Writes rows, each as soon as it is given."""

    def __init__(self, client: Mapping[str, str], schemas: Schemas) -> None:
        self._producer = Producer({**client, "partitioner": "murmur2_random", "acks": "all", "linger.ms": 0})
        self._schemas = schemas

    def insert(self, relation: Relation, statement: InsertValues) -> None:
        """Writes the row; returns when the brokers have it. Raises SqlError."""
        row, at_ms = row_of(relation, statement)
        key, value = encoded(relation, row)
        if relation.formats.key in ENCODED and has_key(relation, row):
            key = self._schemas.encoded_key(relation, row)
        if relation.formats.value in ENCODED:
            value = self._schemas.encoded(relation, row)
        problems: list[str] = []
        try:
            self._producer.produce(
                relation.topic,
                value,
                key,
                timestamp=at_ms,
                on_delivery=lambda e, _: problems.append(str(e)) if e else None,
            )
            if self._producer.flush(SECONDS):
                raise SqlError(f"the brokers did not take the row within {SECONDS:g} s")
        except KafkaException as error:
            raise SqlError(f"the row cannot be written to {relation.topic}: {error}") from None
        if problems:
            raise SqlError(f"the row cannot be written to {relation.topic}: {problems[0]}")
