"""Schemas of values: those made of columns are read as the same columns, and declarations are read as they were made."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from barnabas.pipelines.formats.decoding import reader_of
from barnabas.pipelines.formats.encoding import encoding_of, writer_of
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import Relation, declared
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.fronts.sql.schemas import (
    KINDS,
    columns_of,
    declaration,
    plain_schema,
    schema_text,
    with_names,
)
from barnabas.schemas.framing import Schema, unframe_any

COLUMNS = "a INT, b BIGINT, c DOUBLE, d STRING, e BOOLEAN, l ARRAY<INT>, s STRUCT<x INT, y STRUCT<z STRING>>"


def relation(columns: str, form: str) -> Relation:
    (statement,) = read_statements(
        f"CREATE STREAM t (k INT KEY, {columns}) WITH (kafka_topic='t', value_format='{form}')"
    )
    assert isinstance(statement, s.Create)
    return declared(statement)


def schema_of(columns: str, form: str) -> Schema:
    source = relation(columns, form)
    return Schema(1, KINDS[form], schema_text(form, source.values))


@pytest.mark.parametrize(
    ("form", "more"),
    [
        ("AVRO", ", m MAP<STRING, INT>, f DECIMAL(5, 2), t TIMESTAMP, g DATE, h BYTES"),
        ("PROTOBUF", ", t TIMESTAMP, h BYTES"),
    ],
)
def test_a_schema_has_the_columns_that_it_was_made_of(form: str, more: str) -> None:
    schema = schema_of(COLUMNS + more, form)
    columns = columns_of(reader_of(schema).type)
    wanted = relation(COLUMNS + more, form).values
    assert [(column.name, str(column.type)) for column in columns] == [(c.name, str(c.type)) for c in wanted]
    assert not any(writer_of(schema).fields.values())


def test_json_with_a_schema_has_the_names_of_its_columns() -> None:
    schema = schema_of(COLUMNS + ", f DECIMAL(5, 2), t TIMESTAMP, h BYTES", "JSON_SR")
    types = {column.name: str(column.type) for column in columns_of(reader_of(schema).type)}
    assert types["S"] == "STRUCT<`X` BIGINT, `Y` STRUCT<`Z` VARCHAR(STRING)>>"
    assert list(types) == ["A", "B", "C", "D", "E", "L", "S", "F", "T", "H"]


def test_columns_are_found_whatever_their_case() -> None:
    fields = reader_of(schema_of("`userId` INT, `place` STRUCT<`cityName` STRING>", "AVRO")).type
    columns = with_names(
        relation("userid INT, place STRUCT<cityname STRING>", "AVRO").columns, fields, "t-value"
    )
    assert [column.typed for column in columns] == ["k", "userId", "place"]
    assert columns[2].type.typed == ("cityName",)
    with pytest.raises(SqlError, match="column OTHER: t-value has no such field; it has USERID, PLACE"):
        with_names(relation("other INT", "AVRO").columns, fields, "t-value")


def test_a_declaration_is_read_as_it_was_made() -> None:
    original = relation(
        "userId INT, `Odd Name` STRING, s STRUCT<`q` INT, cityName STRING>, m MAP<STRING, DECIMAL(4, 2)>",
        "AVRO",
    )
    (again,) = read_statements(
        declaration(original, {"KAFKA_TOPIC": "t", "VALUE_FORMAT": "AVRO", "PARTITIONS": 3})
    )
    assert isinstance(again, s.Create)
    assert [(c.name, str(c.type), c.role) for c in again.columns] == [
        (c.name, str(c.type), "KEY" if c.is_key else "") for c in original.columns
    ]
    assert again.columns[1].typed == "userId"
    assert again.columns[3].type.typed[1] == "cityName"
    assert again.properties == {"KAFKA_TOPIC": "t", "VALUE_FORMAT": "AVRO", "PARTITIONS": 3}


@pytest.mark.parametrize(
    ("form", "columns", "message"),
    [
        ("PROTOBUF", "f DECIMAL(5, 2)", "which PROTOBUF does not have"),
        ("AVRO", "s STRUCT<t TIME>", "which AVRO does not have"),
        ("JSON_SR", "t TIME", "column T is TIME, which JSON_SR does not have"),
        ("AVRO", "`with blank` INT", "a name has letters, digits and _ only"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(form: str, columns: str, message: str) -> None:
    with pytest.raises(SqlError) as raised:
        schema_of(columns, form)
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("form", "kind", "value", "wanted"),
    [
        ("AVRO", "INT", 5, b"\x0a"),
        ("AVRO", "BIGINT", -1, b"\x01"),
        ("AVRO", "STRING", "ada", b"\x06ada"),
        ("AVRO", "DOUBLE", 1.0, b"\0\0\0\0\0\0\xf0\x3f"),
        ("JSON_SR", "INT", 5, b"5"),
        ("JSON_SR", "STRING", "ada", b'"ada"'),
        ("JSON_SR", "BOOLEAN", True, b"true"),
    ],
)
def test_a_key_of_one_column_has_no_record_around_it(
    form: str, kind: str, value: object, wanted: bytes
) -> None:
    key = relation(f"v {kind}", "JSON").values[0]
    schema = Schema(1, KINDS[form], plain_schema(form, key))
    reader = reader_of(schema)
    assert reader.type.names == ["value"]
    made = encoding_of(schema).encode(pa.array([{"value": value}], reader.type))[0].as_py()
    assert made["error"] is None
    _, payload = unframe_any(made["v"])
    assert payload == wanted
    assert reader.decoder(schema)(payload) == {"value": value}


def test_the_record_of_a_schema_has_the_name_that_is_given() -> None:
    (made,) = read_statements(
        "CREATE STREAM t (k INT KEY, a INT) WITH (kafka_topic='t', value_format='AVRO', "
        "value_avro_schema_full_name='io.example.Paid');"
    )
    assert isinstance(made, s.Create)
    named = declared(made)
    assert named.formats.record == "io.example.Paid"
    tree = json.loads(schema_text("AVRO", named.values, named.formats.record))
    assert (tree["namespace"], tree["name"]) == ("io.example", "Paid")
    assert "package io.example;" in schema_text("PROTOBUF", named.values, named.formats.record)
    with pytest.raises(SqlError, match="is a name like com"):
        declared(replace(made, properties={**made.properties, "VALUE_SCHEMA_FULL_NAME": "a b"}))
