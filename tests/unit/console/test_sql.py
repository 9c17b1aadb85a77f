"""The SQL page's pure parts: what is a query, answers as tables, queries as a graph."""

from __future__ import annotations

import pytest

from barnabas.console.asking import Ask
from barnabas.console.pages.sql.graph import graph_of
from barnabas.console.pages.sql.results import tables_of
from barnabas.console.pages.sql.server import is_query, require_readable
from barnabas.console.roles import Role
from barnabas.console.said import Refused


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("select * from a emit changes;", True),
        ("-- first\n/* more\n */ PRINT 'topic';", True),
        ("SELECTED", False),
        ("CREATE STREAM a AS SELECT * FROM b;", False),
        ("", False),
    ],
)
def test_a_query_is_told_from_other_statements(text: str, is_one: bool) -> None:
    assert is_query(text) is is_one


def test_answers_become_tables() -> None:
    [done, listed, described] = tables_of(
        [
            {"commandStatus": {"message": "Stream created"}, "warnings": [{"message": "a hint"}]},
            {"@type": "properties", "properties": [{"name": "a", "value": "1"}], "warnings": []},
            {
                "sourceDescription": {
                    "name": "S", "type": "STREAM", "topic": "t",
                    "fields": [{"name": "K", "schema": {"type": "STRING"}, "type": "KEY"}],
                }
            },
        ]
    )  # fmt: skip
    assert done == {"message": "Stream created a hint", "columns": [], "rows": []}
    assert listed == {"message": None, "columns": ["name", "value"], "rows": [["a", "1"]]}
    assert described["rows"] == [["K", "STRING", "KEY"]]


def relation(name: str, reads: list[str], writes: list[str]) -> dict:
    return {"name": name, "type": "STREAM", "topic": name.lower(), "read_by": reads, "written_by": writes}


def test_a_query_stands_behind_what_it_reads_and_before_what_it_writes() -> None:
    relations = [relation("A", ["Q1"], []), relation("B", ["Q2"], ["Q1"]), relation("C", [], ["Q2"])]
    queries = [{"id": name, "text": "..."} for name in ("Q1", "Q2")]
    graph = graph_of([*relations, relation("UNUSED", [], [])], queries)
    assert {node["id"]: node["depth"] for node in graph["nodes"]} == {
        "A": 0,
        "Q1": 1,
        "B": 2,
        "Q2": 3,
        "C": 4,
    }
    assert sorted(graph["arrows"]) == [["A", "Q1"], ["B", "Q2"], ["Q1", "B"], ["Q2", "C"]]


def test_queries_in_a_circle_are_drawn_all_the_same() -> None:
    graph = graph_of(
        [relation("A", ["Q1"], ["Q2"]), relation("B", ["Q2"], ["Q1"])],
        [{"id": "Q1", "text": ""}, {"id": "Q2", "text": ""}],
    )
    assert len(graph["nodes"]) == 4


def test_what_somebody_may_not_see_is_not_shown_by_a_query() -> None:
    ask = Ask(None, role_for=lambda name: Role.NONE if name == "pay" else Role.OPERATE)  # type: ignore[arg-type]
    relations = [{"name": "PAYMENTS", "topic": "pay"}, {"name": "CLICKS", "topic": "clicks"}]
    require_readable(ask, "SELECT * FROM clicks EMIT CHANGES;", relations)
    for text in ("SELECT * FROM Payments;", "PRINT 'pay' FROM BEGINNING;", "print pay;"):
        with pytest.raises(Refused, match="may not see pay"):
            require_readable(ask, text, relations)
