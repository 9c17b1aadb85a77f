"""Streams whose columns are those of a schema that is named by its id."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import declared
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.sql.schemas import Schemas
from tests.support.registry import call, own_registry

SCHEMAS = (
    '{"type": "record", "name": "t", "fields": [{"name": "a", "type": "int"}]}',
    '{"type": "record", "name": "t", "fields": [{"name": "a", "type": "int"}, '
    '{"name": "b", "type": ["null", "string"], "default": null}]}',
)


def test_a_schema_is_named_by_its_id(broker, tmp_path: Path) -> None:
    """VALUE_SCHEMA_ID, with a registry: an older version, and what cannot be."""
    with own_registry(broker.bootstrap, tmp_path, "sql-ids") as registry:
        schemas = Schemas(lambda: registry.url)
        ids = [
            call(registry.url, "POST", "/subjects/t-value/versions", {"schema": text})[1]["id"]
            for text in SCHEMAS
        ]

        def created(columns: str, more: str) -> s.Create:
            text = f"CREATE STREAM t ({columns}) WITH (kafka_topic='t', {more});"
            (made,) = read_statements(text)
            assert isinstance(made, s.Create)
            return schemas.completed(made)

        for number, names in zip(ids, (["K", "A"], ["K", "A", "B"]), strict=True):
            made = created("k INT KEY", f"value_format='AVRO', value_schema_id={number}")
            assert [column.name for column in made.columns] == names
            (again,) = read_statements(made.text)
            assert isinstance(again, s.Create)
            assert [column.name for column in declared(again).columns] == names
        for columns, more, message in (
            ("k INT KEY, a INT", "value_format='AVRO', value_schema_id=1", "so they are not named, too: A"),
            ("k INT KEY", "value_format='AVRO', value_schema_id=4711", "the schema 4711 in the registry"),
            ("k INT KEY", "value_format='AVRO', value_schema_id='x'", "it is the id of a schema, a number"),
            ("k INT KEY", f"value_format='PROTOBUF', value_schema_id={ids[0]}", "is AVRO, not PROTOBUF"),
            ("k INT KEY, a INT", "value_format='JSON', value_schema_id=1", "the format is JSON"),
        ):
            with pytest.raises(SqlError) as raised:
                created(columns, more)
            assert message in raised.value.message
