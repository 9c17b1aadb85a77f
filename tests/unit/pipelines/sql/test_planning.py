"""Queries as pipelines: what is read, how it is written, and what is refused. tests/pipelines/test_sql.py runs them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import Catalog, declared
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.fronts.sql.planning import Planned, Settings, plan
from barnabas.pipelines.fronts.yaml.spec import parse_spec

DECLARED = """
CREATE STREAM views (user_id VARCHAR KEY, page STRING, n INT, at TIMESTAMP, tags ARRAY<STRING>, who STRUCT<city STRING>)
  WITH (kafka_topic='views', value_format='JSON');
CREATE STREAM clicks (user_id VARCHAR KEY, url STRING) WITH (kafka_topic='clicks', value_format='JSON');
CREATE TABLE users (id VARCHAR PRIMARY KEY, name STRING) WITH (kafka_topic='users', value_format='JSON');
"""


def catalog() -> Catalog:
    catalog_ = Catalog()
    for statement in read_statements(DECLARED):
        assert isinstance(statement, s.Create)
        catalog_.add(declared(statement))
    return catalog_


def planned(text: str) -> Planned:
    (statement,) = read_statements(text)
    is_query = isinstance(statement, s.Query)
    assert isinstance(statement, s.CreateAs | s.Query)
    return plan(
        catalog(),
        statement.select,
        query_id="Q_1",
        name="RESULT" if is_query else statement.name,
        kind=None if is_query else statement.kind,
        properties={} if is_query else statement.properties,
        settings=Settings("earliest"),
    )


def steps(query: Planned) -> list[dict[str, Any]]:
    (source,) = query.document["sources"].values()
    return list(source["steps"])


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM views EMIT CHANGES",
        "CREATE STREAM x AS SELECT user_id, UCASE(page) AS page, page AS old FROM views WHERE n > 3 EMIT CHANGES",
        "CREATE STREAM x AS SELECT user_id, EXPLODE(tags) AS tag, who->city FROM views EMIT CHANGES",
        "CREATE STREAM x AS SELECT page, n FROM views PARTITION BY page EMIT CHANGES",
        "CREATE TABLE x AS SELECT user_id, COUNT(*) FROM views GROUP BY user_id EMIT CHANGES",
        "CREATE TABLE x AS SELECT page, n, COUNT(*) AS c, TOPK(n, 3) AS top FROM views GROUP BY page, n EMIT CHANGES",
        "CREATE TABLE x AS SELECT user_id, COUNT(*) AS c, WINDOWSTART AS b FROM views WINDOW HOPPING (SIZE 1 HOUR, "
        "ADVANCE BY 10 MINUTES, RETENTION 7 DAYS) GROUP BY user_id EMIT CHANGES",
        "CREATE TABLE x AS SELECT user_id, COUNT(*) AS c FROM views WINDOW SESSION (60 SECONDS) GROUP BY user_id",
        "CREATE STREAM x AS SELECT v.user_id, u.name FROM views v LEFT JOIN users u ON v.user_id = u.id EMIT CHANGES",
        "CREATE STREAM x AS SELECT * FROM views v JOIN clicks c WITHIN 1 HOUR ON LCASE(v.user_id) = c.user_id "
        "JOIN users u ON v.user_id = u.id EMIT CHANGES",
        "CREATE TABLE x AS SELECT id, UCASE(name) AS name FROM users WHERE name LIKE 'A%' EMIT CHANGES",
        "CREATE STREAM x WITH (value_format='DELIMITED') AS SELECT user_id, page FROM views EMIT CHANGES",
        "CREATE TABLE x AS SELECT user_id, SUM(n) AS s FROM views WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY user_id "
        "HAVING COUNT(*) > 3 AND SUM(n) < 9 EMIT CHANGES",
        "CREATE TABLE x AS SELECT name, COUNT(*) AS c FROM users GROUP BY name HAVING COUNT(*) > 1 EMIT CHANGES",
        "CREATE STREAM x WITH (key_format='DELIMITED') AS SELECT page, n, at FROM views PARTITION BY page, n EMIT CHANGES",
    ],
)
def test_each_query_is_a_valid_pipeline(text: str) -> None:
    query = planned(text)
    spec = parse_spec(yaml.safe_dump(dict(query.document), sort_keys=False), "statement")
    assert spec.name == "Q_1"


def test_only_the_columns_that_a_query_uses_are_parsed() -> None:
    parse = next(
        step["parse"]
        for step in steps(planned("CREATE STREAM x AS SELECT user_id, page FROM views"))
        if "parse" in step
    )
    assert parse == {"json": {"PAGE": "string", "page": "string"}, "quoted": "number"}


def test_the_result_has_columns_with_types_and_the_key_of_its_source() -> None:
    query = planned(
        "CREATE STREAM x AS SELECT user_id, n / 2 AS half, n / 2.0 AS exact, LEN(page) + 1 AS l, at FROM views"
    )
    assert [(c.name, str(c.type), c.is_key) for c in query.result.columns] == [
        ("USER_ID", "VARCHAR(STRING)", True),
        ("HALF", "INTEGER", False),
        ("EXACT", "DECIMAL(2, 1)", False),
        ("L", "INTEGER", False),
        ("AT", "TIMESTAMP", False),
    ]


def test_a_key_of_several_columns_is_json() -> None:
    query = planned("CREATE TABLE x AS SELECT page, n, COUNT(*) AS c FROM views GROUP BY page, n")
    assert query.result.formats.key == "JSON"
    assert [c.name for c in query.result.keys] == ["PAGE", "N"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT pge FROM views EMIT CHANGES", "there is no column PGE; did you mean PAGE?"),
        ("SELECT * FROM vews EMIT CHANGES", "there is no stream or table VEWS; did you mean VIEWS?"),
        ("SELECT UPCASE(page) FROM views", "there is no function UPCASE; did you mean UCASE?"),
        ("SELECT LEN(page, 2) FROM views", "LEN takes 1 arguments, not 2"),
        ("SELECT page + n FROM views", "cannot be calculated with each other"),
        ("SELECT * FROM views WHERE page > 3", "cannot be compared: CAST one of them"),
        ("SELECT * FROM views WHERE n", "a condition is BOOLEAN"),
        ("SELECT COUNT(*) FROM views", "it needs GROUP BY"),
        ("SELECT page FROM views HAVING n > 3", "HAVING needs GROUP BY"),
        ("CREATE TABLE x AS SELECT name, MAX(id) FROM users GROUP BY name", "MAX cannot be applied to a table"),
        ("CREATE STREAM x WITH (value_format='KAFKA') AS SELECT page, n FROM views", "is for one column, not for 2"),
        ("CREATE STREAM x WITH (value_format='DELIMITED') AS SELECT user_id, tags FROM views", "DELIMITED cannot hold"),
        ("CREATE STREAM x AS SELECT page, COUNT(*) FROM views GROUP BY page", "write CREATE TABLE"),
        ("CREATE TABLE x AS SELECT page FROM views", "the result is a stream: write CREATE STREAM"),
        ("CREATE TABLE x AS SELECT COUNT(*) FROM views GROUP BY page", "so it must be in SELECT"),
        ("CREATE TABLE x AS SELECT page, n, COUNT(*) FROM views GROUP BY page", "N is neither in GROUP BY"),
        ("SELECT * FROM views v JOIN clicks c ON v.user_id = c.user_id", "needs WITHIN"),
        ("SELECT user_id FROM views v JOIN users u ON v.user_id = u.id JOIN clicks c WITHIN 1 DAY ON c.user_id = u.id",
         "USER_ID may be V.USER_ID, C.USER_ID: write which"),
        ("CREATE TABLE x AS SELECT v.user_id, COUNT(*) FROM views v JOIN clicks c WITHIN 1 DAY ON c.user_id = v.user_id "
         "WINDOW SESSION (1 MINUTE) GROUP BY v.user_id", "WINDOW SESSION of joined streams needs EMIT FINAL"),
        ("SELECT who->town FROM views", "there is no field TOWN"),
        ("CREATE STREAM x WITH (value_fromat='JSON') AS SELECT * FROM views", "did you mean VALUE_FORMAT?"),
        ("CREATE STREAM x WITH (value_format='XML') AS SELECT * FROM views", "VALUE_FORMAT is XML; allowed: JSON"),
        ("SELECT page AS a, n AS a FROM views", "two columns of the result are called A"),
    ],
)  # fmt: skip
def test_queries_that_cannot_run_are_refused(text: str, message: str) -> None:
    with pytest.raises(SqlError) as raised:
        planned(text)
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("text", "under"),
    [
        ("SELECT page FROM views WHERE n = 'a'", "n = 'a'"),
        ("SELECT page, LEN(pge) FROM views", "pge"),
        ("SELECT page FROM views WHERE n > 1 AND LEN(UPCASE(page)) > 1", "UPCASE"),
        ("CREATE STREAM x AS SELECT page FROM views PARTITION BY nn", "nn"),
        ("CREATE TABLE x AS SELECT page, COUNT(*) AS c FROM views GROUP BY page HAVING m > 1", "m"),
        ("SELECT page FRM views", "FRM"),
        (
            "CREATE TABLE x AS SELECT page, COUNT(*) FROM views WINDOW SESION (1 MINUTE) GROUP BY page",
            "SESION",
        ),
        ("CREATE STREAM x AS SELECT v.page FROM views v JOIN users u ON v.n = u.id", "v.n = u.id"),
        ("CREATE STREAM x AS SELECT 'abc FROM views", "'"),
    ],
)
def test_what_is_wrong_has_a_caret_below_it(text: str, under: str) -> None:
    with pytest.raises(SqlError) as raised:
        planned(text)
    _, line, carets = raised.value.shown(text).split("\n")
    where = carets.index("^")
    assert line[where : where + carets.count("^")] == under


def test_fifty_conditions_in_a_row_are_no_problem() -> None:
    conditions = " OR ".join(f"n = {number}" for number in range(50))
    assert planned(f"SELECT page FROM views WHERE {conditions} EMIT CHANGES")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "h STRING HEADERS",
            "HEADERS is for columns of type ARRAY<STRUCT<`KEY` VARCHAR(STRING), `VALUE` BYTES>>",
        ),
        ("h STRING HEADER('x')", "HEADER('x') is for columns of type BYTES, not VARCHAR(STRING)"),
        ("h BYTES HEADER('x'), i BYTES HEADER('x')", "header 'x' is shown by another column"),
        (
            "h BYTES HEADER('x'), i ARRAY<STRUCT<key STRING, value BYTES>> HEADERS",
            "HEADERS shows all headers already",
        ),
    ],
)
def test_columns_of_headers_have_their_types(columns: str, message: str) -> None:
    (statement,) = read_statements(f"CREATE STREAM x ({columns}) WITH (kafka_topic='x', value_format='JSON')")
    assert isinstance(statement, s.Create)
    with pytest.raises(SqlError) as raised:
        declared(statement)
    assert message in raised.value.message
