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
            statement = created("k INT KEY", f"value_format='AVRO', value_schema_id={number}")
            assert [column.name for column in statement.columns] == names
            (again,) = read_statements(statement.text)
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


def test_the_columns_of_a_key(broker, tmp_path: Path) -> None:
    """Keys with schemas: columns made of them, a schema by its id, and what cannot be."""
    with own_registry(broker.bootstrap, tmp_path, "sql-keys") as registry:
        schemas = Schemas(lambda: registry.url)

        def put(subject: str, text: str, kind: str = "AVRO") -> int:
            body = {"schema": text, "schemaType": kind}
            return call(registry.url, "POST", f"/subjects/{subject}/versions", body)[1]["id"]

        def created(text: str) -> s.Create:
            (made,) = read_statements(text)
            assert isinstance(made, s.Create)
            done = schemas.completed(made)
            (again,) = read_statements(done.text)
            assert isinstance(again, s.Create)
            assert declared(again).columns == declared(done).columns
            return done

        def columns(text: str) -> list[tuple[str, str, str, str]]:
            return [(c.name, c.typed, c.type.name, c.role) for c in created(text).columns]

        plain = put("t-key", '"long"')
        put("t-value", SCHEMAS[0])
        put("p-key", '{"type": "record", "name": "k", "fields": [{"name": "user", "type": "int"}, '
            '{"name": "day", "type": "string"}]}')  # fmt: skip
        put("one-key", '{"type": "record", "name": "k", "fields": [{"name": "a", "type": "int"}]}')
        proto = 'syntax = "proto3"; message K { int32 id = 1; }'
        put("q-key", proto, "PROTOBUF")
        rowkey = ("ROWKEY", "ROWKEY", "BIGINT", "KEY")
        assert columns("CREATE STREAM t WITH (kafka_topic='t', format='AVRO');")[0] == rowkey
        found = columns("CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (kafka_topic='t', format='AVRO');")
        assert found == [("ID", "id", "BIGINT", "PRIMARY KEY"), ("A", "a", "INTEGER", "")]
        by_id = f"kafka_topic='t', value_format='JSON', key_format='AVRO', key_schema_id={plain}"
        assert columns(f"CREATE STREAM t (a INT) WITH ({by_id});") == [rowkey, ("A", "a", "INTEGER", "")]
        two = [("USER", "user", "INTEGER", "KEY"), ("DAY", "day", "STRING", "KEY")]
        assert (
            columns(
                "CREATE STREAM p (a INT) WITH (kafka_topic='p', key_format='AVRO', value_format='JSON');"
            )[:2]
            == two
        )
        assert columns(
            "CREATE STREAM q (ID INT KEY, a INT) WITH (kafka_topic='q', key_format='PROTOBUF', value_format='JSON');"
        )[0] == ("ID", "id", "INTEGER", "KEY")
        for text, message in (
            ("t (k INT KEY, a INT) WITH (kafka_topic='t', value_format='JSON', key_format='AVRO', key_schema_id=1);",
             "KEY_SCHEMA_ID gives the columns of the key, so they are not named, too: K"),
            ("t (k INT KEY, a INT) WITH (kafka_topic='t', value_format='JSON', key_schema_id=1);",
             "the key's format is KAFKA"),
            ("t (k INT KEY, j INT KEY, a INT) WITH (kafka_topic='t', value_format='JSON', key_format='AVRO');",
             "t-key is one value, but the key has 2 columns"),
            ("t (a INT) WITH (kafka_topic='one', value_format='JSON', key_format='AVRO');", "one-key is a record"),
            ("t (a INT) WITH (kafka_topic='none', value_format='JSON', key_format='AVRO');", "no schema of none-key"),
            ("t (k INT KEY, j INT KEY, a INT) WITH (kafka_topic='p', value_format='JSON', key_format='AVRO');",
             "column K: p-key has no such field; it has USER, DAY"),
            ("t (k INT KEY, a INT) WITH (kafka_topic='q', value_format='JSON', key_format='AVRO');",
             "is PROTOBUF, not AVRO: key_format is AVRO"),
        ):  # fmt: skip
            with pytest.raises(SqlError) as raised:
                created("CREATE STREAM " + text)
            assert message in raised.value.message
