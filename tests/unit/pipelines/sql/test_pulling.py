"""Queries without EMIT: conditions and expressions over the rows of a table."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import Catalog, RunningQuery, declared
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.sql.pulling import pull

TABLE = (
    "CREATE TABLE t (who STRING PRIMARY KEY, n INT, d DOUBLE, p DECIMAL(6, 2), at TIMESTAMP, tags ARRAY<STRING>, "
    "place STRUCT<city STRING>) WITH (kafka_topic='t', value_format='JSON');"
)
ROWS = [
    {"WHO": "anna", "N": 7, "D": 0.5, "P": 12.25,
     "AT": "2024-05-01T10:00:00Z", "TAGS": ["x", "y"], "PLACE": {"CITY": "Ulm"}},
    {"WHO": "ben", "N": 0, "D": None, "P": None, "AT": None, "TAGS": [], "PLACE": None},
]  # fmt: skip


class View:
    """The rows of one table, as lookups answer with them."""

    def find(self, query: str, output: str, asked: Any) -> str:
        rows = [row for row in ROWS if not asked.key or row["WHO"] in asked.key]
        return json.dumps({"rows": rows, "next": None})


def rows(text: str) -> tuple[list[str], list[list[Any]]]:
    """The columns of a query, with types, and its rows."""
    catalog = Catalog()
    (statement,) = read_statements(TABLE)
    assert isinstance(statement, s.Create)
    catalog.add(replace(declared(statement), query="q"))
    catalog.queries["q"] = RunningQuery("q", "", "T", (), {}, view=True)
    (query,) = read_statements(text)
    assert isinstance(query, s.Query)
    answer = pull(catalog, View(), query.select)  # type: ignore[arg-type]
    return [f"{column.name} {column.type}" for column in answer.columns], list(answer.rows)


@pytest.mark.parametrize(
    ("select", "wanted"),
    [
        ("who, n * 2 + 1 AS m", [["anna", 15], ["ben", 1]]),
        ("UCASE(who) AS w, CASE WHEN n > 5 THEN 'much' ELSE 'little' END AS c", [["ANNA", "much"], ["BEN", "little"]]),
        ("100 / n AS q", [[14], [None]]),
        ("place->city AS c, ARRAY_LENGTH(tags) AS l, tags[1] AS f", [["Ulm", 2, "x"], [None, 0, None]]),
        ("FORMAT_TIMESTAMP(at, 'yyyy-MM-dd') AS day, p + 1 AS p", [["2024-05-01", 13.25], [None, None]]),
        ("t.who AS w, at", [["anna", 1714557600000], ["ben", None]]),
    ],
)  # fmt: skip
def test_expressions_are_computed_for_each_row(select: str, wanted: list[list[Any]]) -> None:
    assert rows(f"SELECT {select} FROM t;")[1] == wanted


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("n * 2 > 10", ["anna"]),
        ("LEN(who) = 3", ["ben"]),
        ("place->city = 'Ulm' AND who = 'anna'", ["anna"]),
        ("d IS NULL OR n + 1 = 8", ["anna", "ben"]),
        ("at > '2024-01-01T00:00:00'", ["anna"]),
        ("who LIKE 'b%' OR ARRAY_CONTAINS(tags, 'y')", ["anna", "ben"]),
        ("100 / n > 1", ["anna"]),
    ],
)
def test_conditions_may_be_any_expression(where: str, names: list[str]) -> None:
    assert rows(f"SELECT who FROM t WHERE {where};")[1] == [[name] for name in names]


def test_columns_that_are_computed_have_names_and_types() -> None:
    assert rows("SELECT who, n + 1, d * 2 AS e, * FROM t LIMIT 1;")[0][:3] == [
        "WHO VARCHAR(STRING)", "KSQL_COL_1 INTEGER", "E DOUBLE",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT nn + 1 FROM t;", "there is no column NN; did you mean N?"),
        ("SELECT whoo FROM t;", "there is no column WHOO; did you mean WHO?"),
        ("SELECT who FROM t WHERE whoo = 'x';", "there is no column WHOO; did you mean WHO?"),
        ("SELECT who FROM t WHERE n + 1;", "n + 1 is INTEGER, but a condition is BOOLEAN"),
        ("SELECT COUNT(*) FROM t;", "COUNT"),
        ("SELECT ROWOFFSET + 1 FROM t;", "ROWOFFSET is not kept with the rows of T"),
    ],
)
def test_mistakes_are_named_before_a_row_is_looked_up(text: str, message: str) -> None:
    with pytest.raises(SqlError) as raised:
        rows(text)
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("condition", "is_found"),
    [
        ("WINDOWSTART = 1714557600000", True),
        ("WINDOWSTART >= '2024-05-01T10:00:00Z'", True),
        ("WINDOWSTART BETWEEN '2024-05-01T00:00:00' AND '2024-05-02T00:00:00'", True),
        ("'2024-05-02' < WINDOWEND", False),
    ],
)
def test_bounds_of_windows_are_compared_with_times_as_text(condition: str, is_found: bool) -> None:
    class Windows(View):
        def find(self, query: str, output: str, asked: Any) -> str:
            bounds = {"WINDOWSTART": "2024-05-01T10:00:00Z", "WINDOWEND": "2024-05-01T10:01:00Z"}
            return json.dumps({"rows": [ROWS[0] | bounds], "next": None})

    catalog = Catalog()
    (made,) = read_statements(TABLE)
    assert isinstance(made, s.Create)
    catalog.add(replace(declared(made), query="q", window=s.Window("TUMBLING", "1 minute")))
    catalog.queries["q"] = RunningQuery("q", "", "T", (), {}, view=True)
    (query,) = read_statements(f"SELECT who FROM t WHERE {condition};")
    assert isinstance(query, s.Query)
    found = pull(catalog, Windows(), query.select)  # type: ignore[arg-type]
    assert list(found.rows) == ([["anna"]] if is_found else [])
