"""What statements answer, as ksqlDB writes it in JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from barnabas.pipelines.fronts.sql.catalog import Column, Relation, RunningQuery
from barnabas.pipelines.fronts.sql.functions import FUNCTIONS, Function
from barnabas.pipelines.fronts.sql.types import SqlType

Answer = dict[str, Any]


def done(text: str, message: str, command: str = "") -> Answer:
    """A statement that changed something."""
    return {
        "@type": "currentStatus",
        "statementText": text,
        "commandId": command or "statement",
        "commandStatus": {"status": "SUCCESS", "message": message, "queryId": None},
        "commandSequenceNumber": -1,
        "warnings": [],
    }


def warned(answer: Answer, *warnings: str) -> Answer:
    """The answer with hints for whoever typed the statement."""
    return {**answer, "warnings": [*answer.get("warnings", []), *({"message": text} for text in warnings)]}


def listing(text: str, kind: str, relations: Iterable[Relation]) -> Answer:
    """SHOW STREAMS or TABLES."""
    rows = [
        {
            "type": relation.kind,
            "name": relation.name,
            "topic": relation.topic,
            "keyFormat": relation.formats.key,
            "valueFormat": relation.formats.value,
            "isWindowed": relation.window is not None,
        }
        for relation in relations
        if relation.kind == kind
    ]
    name = "streams" if kind == "STREAM" else "tables"
    return {"@type": name, "statementText": text, name: rows, "warnings": []}


def topics(text: str, replicas_by_topic: Mapping[str, list[int]]) -> Answer:
    """SHOW TOPICS. found: how many replicas the partitions have, by topic."""
    rows = [{"name": name, "replicaInfo": replicas} for name, replicas in replicas_by_topic.items()]
    return {"@type": "kafka_topics", "statementText": text, "topics": rows, "warnings": []}


def queries(text: str, running: Iterable[tuple[RunningQuery, str, str]]) -> Answer:
    """SHOW QUERIES. found: queries with the topics that they write and their states."""
    rows = [
        {
            "queryString": query.text,
            "sinks": [query.sink],
            "sinkKafkaTopics": [topic],
            "id": query.id,
            "statusCount": {state: 1},
            "queryType": "PERSISTENT",
            "state": state,
        }
        for query, topic, state in running
    ]
    return {"@type": "queries", "statementText": text, "queries": rows, "warnings": []}


def functions(text: str) -> Answer:
    """SHOW FUNCTIONS."""
    rows = [
        {
            "name": name,
            "type": _kind_of(function),
            "category": "",
            "summary": function.doc,
        }
        for name, function in FUNCTIONS.items()
    ]
    return {"@type": "function_names", "statementText": text, "functions": rows, "warnings": []}


def _kind_of(function: Function) -> str:
    return "AGGREGATE" if function.aggregate else "TABLE" if function.makes_rows else "SCALAR"


def function(text: str, described: Function) -> Answer:
    """DESCRIBE FUNCTION."""
    return {
        "@type": "describe_function",
        "statementText": text,
        "name": described.name,
        "description": described.doc,
        "author": "",
        "version": "",
        "path": "internal",
        "type": _kind_of(described),
        "functions": [
            {"argumentTypes": [], "returnType": "", "description": f"takes {described.counts} arguments"}
        ],
        "warnings": [],
    }


def types(text: str, kinds: Mapping[str, SqlType]) -> Answer:
    """SHOW TYPES."""
    rows = {name: schema(kind) for name, kind in sorted(kinds.items())}
    return {"@type": "type_list", "statementText": text, "types": rows, "warnings": []}


def descriptions(text: str, each: list[Answer]) -> Answer:
    """DESCRIBE STREAMS or TABLES."""
    source_descriptions = [one["sourceDescription"] for one in each]
    return {
        "@type": "source_descriptions",
        "statementText": text,
        "sourceDescriptions": source_descriptions,
        "warnings": [],
    }


def properties(text: str, by_name: Mapping[str, str]) -> Answer:
    """SHOW PROPERTIES."""
    rows = [
        {"name": name, "scope": "KSQL", "value": value, "editable": True} for name, value in by_name.items()
    ]
    return {
        "@type": "properties",
        "statementText": text,
        "properties": rows,
        "overwrittenProperties": [],
        "warnings": [],
    }


def description(
    text: str,
    relation: Relation,
    readers: list[Answer],
    writers: list[Answer],
    statistics: str,
    partitions: int,
) -> Answer:
    """DESCRIBE. readers, writers: queries."""
    return {
        "@type": "sourceDescription",
        "statementText": text,
        "sourceDescription": {
            "name": relation.name,
            "windowType": None if relation.window is None else relation.window.kind,
            "readQueries": readers,
            "writeQueries": writers,
            "fields": [field(column, relation) for column in relation.columns],
            "type": relation.kind,
            "timestamp": relation.timestamp or "",
            "statistics": statistics,
            "errorStats": "",
            "extended": bool(statistics),
            "keyFormat": relation.formats.key,
            "valueFormat": relation.formats.value,
            "topic": relation.topic,
            "partitions": max(partitions, 0),
            "replication": 0,
            "statement": relation.text,
            "queryOffsetSummaries": [],
            "sourceConstraints": [],
        },
        "warnings": [],
    }


def field(column: Column, relation: Relation) -> Answer:
    """A column as DESCRIBE shows it."""
    shown: Answer = {"name": column.name, "schema": schema(column.type)}
    return shown | ({"type": "KEY"} if column.is_key else {})


def schema(kind: SqlType) -> Answer:
    """A type as an object."""
    shown: Answer = {"type": kind.name, "fields": None, "memberSchema": None}
    if kind.name == "STRUCT":
        pairs = zip(kind.fields, kind.items, strict=True)
        shown["fields"] = [{"name": name, "schema": schema(item)} for name, item in pairs]
    elif kind.items:
        shown["memberSchema"] = schema(kind.items[-1])
    if kind.name == "DECIMAL":
        shown["parameters"] = {"precision": kind.digits[0], "scale": kind.digits[1]}
    return shown


def failure(message: str, text: str, answers: list[Answer] | None = None, code: int = 40001) -> Answer:
    """A statement that is refused. answers: of the statements before it."""
    return {
        "@type": "statement_error",
        "error_code": code,
        "message": message,
        "statementText": text,
        "entities": answers or [],
    }


def type_text(kind: SqlType) -> str:
    """A type as the header of a query names it."""
    return "STRING" if kind.name == "STRING" else str(kind).replace("VARCHAR(STRING)", "STRING")
