"""SQL on streams: an editor whose results follow, what there is, and the running queries as a graph with rates and lag."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

from barnabas.console.asking import Ask, Done
from barnabas.console.drawing import drawing
from barnabas.console.pages.sql.graph import graph_of
from barnabas.console.pages.sql.results import tables_of
from barnabas.console.pages.sql.rows import follow
from barnabas.console.pages.sql.server import call, is_query, shell, stream_properties
from barnabas.console.rendering import number, rate
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page

WORDS: Final = """
SELECT FROM WHERE GROUP BY HAVING PARTITION EMIT CHANGES FINAL LIMIT WINDOW TUMBLING HOPPING SESSION SIZE ADVANCE
GRACE PERIOD RETENTION JOIN LEFT RIGHT FULL OUTER INNER WITHIN ON CREATE OR REPLACE STREAM TABLE SOURCE IF NOT
EXISTS WITH AS INSERT INTO VALUES DROP DELETE TOPIC TERMINATE PAUSE RESUME SHOW LIST STREAMS TABLES TOPICS QUERIES
FUNCTIONS PROPERTIES DESCRIBE EXTENDED EXPLAIN PRINT BEGINNING KEY PRIMARY HEADERS VARCHAR STRING INT INTEGER
BIGINT DOUBLE BOOLEAN DECIMAL TIMESTAMP DATE TIME BYTES ARRAY MAP STRUCT CASE WHEN THEN ELSE END AND BETWEEN LIKE
IN IS NULL CAST
"""
KEYWORDS: Final = tuple(WORDS.split())
STATES: Final = {"RUNNING": "good", "PAUSED": "warn", "ERROR": "bad"}
STARTS: Final = ("latest", "earliest")
WHAT_THERE_IS: Final = "SHOW QUERIES; DESCRIBE STREAMS; DESCRIBE TABLES; SHOW FUNCTIONS;"
ACTIONS: Final = {"pause": "PAUSE", "resume": "RESUME", "terminate": "TERMINATE"}
QUERY_ID: Final = re.compile(r"[A-Za-z0-9_]{1,200}")


async def read(ask: Ask) -> Data:
    """The streams, tables and queries, with rates and lag; names and functions for completion"""
    answers, statuses = await asyncio.gather(
        call(ask, "POST", "/ksql", {"ksql": WHAT_THERE_IS, "streamsProperties": {}}), _statuses(ask)
    )
    relations, queries, functions = _sorted_out(ask, answers)
    rows = [_query(query, statuses.get(query["id"])) for query in queries]
    return {
        "relations": relations,
        "queries": rows,
        "words": sorted(_words(relations, functions)),
        "picture": drawing(graph_of(relations, rows), _notes(rows)) if rows else None,
        "states": STATES,
        "starts": STARTS,
        "commands": [shell(ask), shell(ask, "-e", "SHOW QUERIES;")],
    }


async def _statuses(ask: Ask) -> dict[str, Any]:
    """States of the queries with rates and lag, by their ids; nothing where the server is not Barnabas's."""
    try:
        pipelines = await call(ask, "GET", "/pipelines")
    except Refused as refused:
        if refused.status == 503:
            raise
        return {}
    return {one["name"]: one for one in pipelines}


def _sorted_out(ask: Ask, answers: list[dict[str, Any]]) -> tuple[list[Any], list[Any], list[str]]:
    relations, queries, functions = [], [], []
    for answer in answers:
        if "queries" in answer:
            queries = [one for one in answer["queries"] if all(map(ask.sees, one["sinkKafkaTopics"]))]
        if "sourceDescriptions" in answer:
            relations += [_relation(one) for one in answer["sourceDescriptions"] if ask.sees(one["topic"])]
        if "functions" in answer:
            functions = [one["name"] for one in answer["functions"]]
    return relations, queries, functions


def _relation(about: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": about["name"],
        "type": about["type"],
        "topic": about["topic"],
        "key_format": about.get("keyFormat"),
        "value_format": about.get("valueFormat"),
        "columns": [
            {"name": one["name"], "type": one["schema"]["type"], "is_key": one.get("type") == "KEY"}
            for one in about["fields"]
        ],
        "read_by": [one["id"] for one in about["readQueries"]],
        "written_by": [one["id"] for one in about["writeQueries"]],
    }


def _query(query: Mapping[str, Any], status: Mapping[str, Any] | None) -> dict[str, Any]:
    parts = [] if status is None else status["queries"]
    lags = [part["lag"] for part in parts if part["lag"] is not None]
    return {
        "id": query["id"],
        "text": query["queryString"],
        "sinks": query["sinks"],
        "topics": query["sinkKafkaTopics"],
        "state": query.get("state", "RUNNING"),
        "per_second": sum(part["records_per_second"] or 0 for part in parts) if parts else None,
        "lag": sum(lags) if lags else None,
        "error": None if status is None else status.get("last_error"),
    }


def _notes(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Rates and lag at the foot of the queries' boxes."""
    return {
        row["id"]: f"{rate(row['per_second'])}/s"
        + ("" if row["lag"] is None else f" · lag {number(row['lag'])}")
        for row in rows
        if row["per_second"] is not None
    }


def _words(relations: list[dict[str, Any]], functions: list[str]) -> set[str]:
    columns = {column["name"] for relation in relations for column in relation["columns"]}
    return {relation["name"] for relation in relations} | columns | set(functions) | set(KEYWORDS)


async def run(ask: Ask) -> Done:
    """Run statements, one after the other: sql; start (latest, earliest: where new queries begin). A SELECT or PRINT of its
    own answers with its first rows"""
    text = ask.required("sql")
    properties = stream_properties(ask)
    if is_query(text):
        tables = [await first_rows(ask, text)]
    else:
        if ask.role_for(None) < Role.ADMIN:
            raise Refused(403, said("Statements that change something need the role admin"))
        answers = await call(ask, "POST", "/ksql", {"ksql": text, "streamsProperties": properties})
        tables = tables_of(answers)
    return Done(said("{count} answers", count=len(tables)), "", {"tables": tables}, (shell(ask, "-e", text),))


async def first_rows(ask: Ask, text: str) -> dict[str, Any]:
    """The rows of a query that come within some seconds, as a table."""
    columns: list[str] = []
    rows: list[list[Any]] = []
    sentence = None
    async for event in follow(ask, seconds=10.0, count=100):
        columns = event.get("columns", columns)
        rows += event.get("rows", [])
        sentence = event.get("said", sentence)
    return {"message": None, "columns": columns, "rows": rows}


async def act(ask: Ask) -> Done:
    """Pause, resume or terminate a query: query (its id), action"""
    query, action = ask.required("query"), ask.required("action")
    if action not in ACTIONS or not QUERY_ID.fullmatch(query):
        raise Refused(400, said("{name} must be one of {choices}", name="action", choices=", ".join(ACTIONS)))
    statement = f"{ACTIONS[action]} {query};"
    await call(ask, "POST", "/ksql", {"ksql": statement, "streamsProperties": {}})
    return Done(
        said("{name}: {action} is done", name=query, action=action),
        "/sql",
        {"query": query, "action": action},
        (shell(ask, "-e", statement),),
    )


PAGES: Final = (
    Page(
        "sql", "/sql", "sql", read, rows="sql/rows.html", streams={"/sql/search": follow},
        actions=(Action("/sql", run, Role.OPERATE, shows=True), Action("/sql/act", act)),
    ),
)  # fmt: skip
