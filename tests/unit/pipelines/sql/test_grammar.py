"""Statements of ksqlDB's language as plain data, and what is said about those that are wrong."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.grammar import is_complete, read_statements
from barnabas.pipelines.fronts.sql.types import INTEGER, SqlType

GOOD = """
CREATE STREAM pageviews (user_id VARCHAR KEY, page STRING, s STRUCT<a INT, b ARRAY<MAP<STRING,INT>>>)
  WITH (KAFKA_TOPIC='pv', value_format='json', partitions=3);
CREATE OR REPLACE TABLE IF NOT EXISTS users (id bigint primary key, price DECIMAL(9, 2)) with ('kafka_topic'='users');
CREATE TABLE c AS SELECT user_id, count(*) AS n, sum(x) total FROM pageviews p
  WINDOW HOPPING (SIZE 1 MINUTE, ADVANCE BY 10 SECONDS, RETENTION 7 DAYS, GRACE PERIOD 10 SECONDS)
  WHERE page LIKE '%x%' GROUP BY (user_id, page) HAVING count(*) > 1 EMIT FINAL;
CREATE STREAM e WITH (kafka_topic='e') AS SELECT p.user_id, u.name FROM pageviews p LEFT OUTER JOIN users u
  ON p.user_id = u.id JOIN clicks WITHIN (1 HOUR, 2 MINUTES) GRACE PERIOD 5 SECONDS ON clicks.id = p.user_id
  PARTITION BY u.name EMIT CHANGES LIMIT 5;
INSERT INTO pageviews (a, b) VALUES (-1, 'it''s');
INSERT INTO foo SELECT * FROM bar;
SELECT a->b AS x, CASE WHEN a > 1 THEN 'x' ELSE 'y' END y, `Mixed` FROM c WHERE k IN ('1', '2') EMIT CHANGES;
SELECT * FROM c WINDOW SESSION (60 SECONDS) GROUP BY a;
SHOW STREAMS EXTENDED; LIST ALL TOPICS; DESCRIBE EXTENDED foo; DESCRIBE foo EXTENDED; DESCRIBE FUNCTION len;
EXPLAIN CTAS_X_1; EXPLAIN SELECT a FROM b EMIT CHANGES;
TERMINATE ALL; PAUSE CSAS_E_1; RESUME CSAS_E_1;
PRINT 'my-topic' FROM BEGINNING INTERVAL 2 LIMIT 3; PRINT my-topic;
SET 'auto.offset.reset'='earliest'; UNSET 'auto.offset.reset'; DEFINE x = '1'; UNDEFINE x; RUN SCRIPT '/a/b.sql';
ALTER STREAM a ADD COLUMN b INT, ADD c STRING; ASSERT NOT EXISTS TOPIC foo TIMEOUT 3 SECONDS;
DROP STREAM IF EXISTS a DELETE TOPIC;
"""


def one(text: str) -> s.Statement:
    (statement,) = read_statements(text)
    return statement


def test_every_statement_is_understood() -> None:
    kinds = [type(statement).__name__ for statement in read_statements(GOOD)]
    assert kinds[:8] == [
        "Create", "Create", "CreateAs", "CreateAs", "InsertValues", "InsertSelect", "Query", "Query",
    ]  # fmt: skip
    assert len(kinds) == 28


def test_names_are_capitals_unless_they_are_quoted() -> None:
    statement = one("create stream Clicks (`Id` int key, Name string) with (kafka_topic='Clicks')")
    assert isinstance(statement, s.Create)
    assert (statement.name, [c.name for c in statement.columns]) == ("CLICKS", ["Id", "NAME"])
    assert [c.typed for c in statement.columns] == ["Id", "Name"]
    assert statement.properties == {"KAFKA_TOPIC": "Clicks"}


def test_types_may_be_nested() -> None:
    statement = one("CREATE STREAM x (a STRUCT<b ARRAY<MAP<STRING, DECIMAL(5,2)>>>) WITH (kafka_topic='x')")
    assert isinstance(statement, s.Create)
    assert str(statement.columns[0].type) == "STRUCT<`B` ARRAY<MAP<VARCHAR(STRING), DECIMAL(5, 2)>>>"


def test_windows_and_joins() -> None:
    table, stream = list(read_statements(GOOD))[2:4]
    assert isinstance(table, s.CreateAs)
    assert table.select.window == s.Window("HOPPING", "1 minute", "10 seconds", "10 seconds", "7 days")
    assert [item.alias for item in table.select.items] == ["", "N", "TOTAL"]
    assert len(table.select.group_by) == 2
    assert isinstance(stream, s.CreateAs)
    assert [(j.kind, j.within, j.grace) for j in stream.select.joins] == [
        ("left", None, None), ("inner", ("1 hour", "2 minutes"), "5 seconds"),
    ]  # fmt: skip
    assert (stream.select.emit, stream.select.limit) == ("CHANGES", 5)


def test_lessons_of_2018_are_read_as_they_are_printed() -> None:
    text = "create stream s (id varchar) \\\n  with (kafka_topic='s', \\\n value_format='JSON');\nselect * from s;"
    assert [type(x).__name__ for x in read_statements(text)] == ["Create", "Query"]


def test_variables_are_replaced_and_must_be_defined() -> None:
    assert one_with("SELECT * FROM ${name};", {"name": "clicks"}).select.source.name == "CLICKS"
    with pytest.raises(SqlError, match="the variable other is not defined"):
        list(read_statements("SELECT * FROM ${other};", {}))


def one_with(text: str, variables: dict[str, str]) -> s.Query:
    (statement,) = read_statements(text, variables)
    assert isinstance(statement, s.Query)
    return statement


@pytest.mark.parametrize(
    ("text", "message", "under"),
    [
        ("CREAT STREAM x", "did you mean CREATE?", "CREAT"),
        ("CREATE STREM x (a INT)", "did you mean STREAM?", "STREM"),
        ("CREATE STREAM x (a ITN)", "did you mean INT?", "ITN"),
        ("SELECT a, FROM b", "a column or an expression is expected", "FROM"),
        ("SELECT a FORM b", "", "FORM"),
        ("SELECT a FROM b WHERE", "the end of the statement", ""),
        ("SHOW STREM", "did you mean STREAMS?", "STREM"),
        ("SELECT * FROM a WINDOW TUMBLING (SIZE 3 PARSECS)", "no unit of time", "PARSECS"),
        ("CREATE STREAM x (a INT, A INT) WITH (kafka_topic='x')", "declared twice", "A"),
    ],
)
def test_mistakes_are_shown_with_a_caret_below_the_word(text: str, message: str, under: str) -> None:
    with pytest.raises(SqlError) as raised:
        list(read_statements(text))
    complaint, line, carets = raised.value.shown(text).splitlines()
    assert message in complaint
    assert line == text
    if under:
        start = carets.index("^")
        assert text[start : start + len(carets.strip())] == under


def test_statements_that_are_cut_anywhere_give_a_message_only() -> None:
    for text in GOOD.split(";"):
        text = text.strip()
        for end in range(1, len(text)):
            with suppress(SqlError):
                list(read_statements(text[:end]))


def test_the_shell_knows_when_a_statement_is_complete() -> None:
    assert is_complete("SHOW STREAMS;\n")
    assert not is_complete("SELECT 'a;")
    assert not is_complete("SELECT *\nFROM x\n")
    assert is_complete("-- only a comment\n")


@pytest.mark.parametrize(
    "text", ["SELECT " + "(" * 3_000 + " FROM x", "CREATE STREAM x (a " + "ARRAY<" * 3_000]
)
def test_statements_that_are_nested_too_deeply_are_refused(text: str) -> None:
    with pytest.raises(SqlError, match="nested too deeply"):
        list(read_statements(text))


def test_types_have_names_from_the_statement_that_makes_them_on() -> None:
    types: dict[str, SqlType] = {}
    statements: list[Any] = []
    for statement in read_statements(
        "CREATE TYPE place AS STRUCT<city STRING, zip INT>; CREATE STREAM x (a ARRAY<place>) WITH (kafka_topic='x');",
        types=types,
    ):
        statements.append(statement)
        if isinstance(statement, s.CreateType):
            types[statement.name] = statement.type
    assert str(statements[1].columns[0].type) == "ARRAY<STRUCT<`CITY` VARCHAR(STRING), `ZIP` INTEGER>>"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SPOOL 'x.log'", s.Spool("x.log")),
        ("SPOOL OFF", s.Spool(None)),
        ("DROP TYPE IF EXISTS place", s.DropType("PLACE", True)),
        ("SHOW CONNECTORS", s.Show("CONNECTORS")),
        ("LIST SOURCE CONNECTORS", s.Show("CONNECTORS", of="SOURCE")),
        ("SHOW TYPES", s.Show("TYPES")),
        ("DESCRIBE STREAMS EXTENDED", s.Describe("STREAMS", True, every=True)),
        ("ALTER SYSTEM 'a.b' = '1'", s.SetProperty("a.b", "1")),
        ("ASSERT NOT EXISTS SCHEMA SUBJECT 'x-value' TIMEOUT 3 SECONDS", s.AssertSchema("x-value", None, False, 3.0)),
        ("ASSERT SCHEMA ID 4", s.AssertSchema(None, 4)),
        ("ASSERT STREAM x (a INT KEY)", s.AssertSource("STREAM", "X", (s.ColumnDef("A", "a", INTEGER, "KEY"),), {})),
    ],
)  # fmt: skip
def test_statements_for_tests_and_shells(text: str, wanted: s.Statement) -> None:
    (statement,) = read_statements(text)
    assert replace(statement, text="") == wanted


def test_values_that_are_asserted_are_expressions() -> None:
    (statement,) = read_statements("ASSERT VALUES x (a, b) VALUES (1, 'y')")
    assert isinstance(statement, s.AssertValues)
    assert (statement.columns, len(statement.values), statement.null) == (("A", "B"), 2, False)
    (statement,) = read_statements("ASSERT NULL VALUES x (a) KEY (1)")
    assert isinstance(statement, s.AssertValues)
    assert statement.null


def test_a_backslash_may_also_begin_a_line() -> None:
    (statement,) = read_statements(
        "CREATE STREAM x\n      \\ WITH\n (kafka_topic='x') \\\n AS SELECT * FROM y"
    )
    assert isinstance(statement, s.CreateAs)


def test_a_variable_counts_from_its_definition_on() -> None:
    variables: dict[str, str] = {}
    statements = []
    for statement in read_statements(
        "DEFINE a = 'clicks';\nSELECT * FROM ${a};\nSELECT nope, FROM ${a};", variables
    ):
        if isinstance(statement, s.Define):
            variables[statement.name] = statement.value or ""
        statements.append(statement)
        if len(statements) == 2:
            break
    assert isinstance(statements[1], s.Query)
    assert statements[1].select.source.name == "CLICKS"
    with pytest.raises(SqlError) as raised:
        list(read_statements("\n  SELECT a, FROM ${a};", variables))
    assert raised.value.spot is not None
    assert (raised.value.spot.line, raised.value.spot.column) == (2, 13)
