"""INSERT INTO ... VALUES: one row as a record."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from sqlglot import exp

from barnabas.pipelines.fronts.sql.catalog import Relation
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import name_of
from barnabas.pipelines.fronts.sql.statements import InsertValues
from barnabas.pipelines.fronts.sql.types import SqlType

SECONDS: Final = 30.0
WIDTHS: Final = {"INTEGER": 4, "BIGINT": 8}


def check_writable(relation: Relation) -> None:
    """Raises SqlError if nothing may be written to a stream or table."""
    if relation.is_source:
        raise SqlError(f"Cannot insert into read-only {relation.kind.lower()}: {relation.name}")
    if relation.headers:
        raise SqlError(f"Cannot insert into {relation.name} because it has header columns")


def insert_row(client: Mapping[str, str], relation: Relation, statement: InsertValues) -> None:
    """Writes the row; returns when the brokers have it. Raises SqlError."""
    if relation.is_source:
        check_writable(relation)
    names = statement.columns or tuple(column.name for column in relation.columns)
    if shown := [column.name for column in relation.headers if column.name in names]:
        raise SqlError(f"Cannot insert into HEADER columns: {', '.join(shown)}")
    if len(names) != len(statement.values):
        raise SqlError(f"{len(names)} columns, but {len(statement.values)} values: {', '.join(names)}")
    row: dict[str, Any] = {}
    at_ms = 0
    for name, node in zip(names, statement.values, strict=True):
        if name == "ROWTIME":
            at_ms = int(constant(node))
            continue
        column = relation.column(name)
        if column is None:
            raise SqlError(
                f"{relation.name} has no column {name}; it has {', '.join(c.name for c in relation.columns)}"
            )
        row[name] = fitted(constant(node), column.type, name)
    key, value = encoded_key(relation, row), encoded_value(relation, row)
    if relation.kind == "TABLE" and key is None:
        raise SqlError(
            f"the key of table {relation.name} must not be null: {', '.join(c.name for c in relation.keys)}"
        )
    problems: list[str] = []
    producer = Producer({**client, "partitioner": "murmur2_random", "acks": "all"})
    try:
        producer.produce(
            relation.topic,
            value,
            key,
            timestamp=at_ms,
            on_delivery=lambda e, _: problems.append(str(e)) if e else None,
        )
        if producer.flush(SECONDS):
            raise SqlError(f"the brokers did not take the row within {SECONDS:g} s")
    except KafkaException as error:
        raise SqlError(f"the row cannot be written to {relation.topic}: {error}") from None
    if problems:
        raise SqlError(f"the row cannot be written to {relation.topic}: {problems[0]}")


def constant(node: exp.Expr) -> Any:
    """The value of an expression without columns. Raises SqlError."""
    if isinstance(node, exp.Paren):
        return constant(node.this)
    if isinstance(node, exp.Neg):
        return -constant(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        return int(node.this) if str(node.this).isdecimal() else float(node.this)
    if isinstance(node, exp.Array):
        return [constant(one) for one in node.expressions]
    if isinstance(node, exp.Anonymous) and str(node.this).upper() in ("MAP", "STRUCT"):
        return {
            (name_of(one.this) if str(node.this).upper() == "STRUCT" else constant(one.this)): constant(
                one.expression
            )
            for one in node.expressions
        }
    raise SqlError(
        f"{node.sql()} is not a plain value: VALUES takes numbers, texts, true, false, null, ARRAY, MAP, STRUCT"
    )


def fitted(value: Any, kind: SqlType, name: str) -> Any:
    """A value as its column's type. Raises SqlError."""
    if value is None:
        return None
    good: Mapping[str, Any] = {
        "STRING": (str,), "INTEGER": (int,), "BIGINT": (int,), "DOUBLE": (int, float), "DECIMAL": (int, float, str),
        "BOOLEAN": (bool,), "ARRAY": (list,), "MAP": (dict,), "STRUCT": (dict,), "TIMESTAMP": (str, int), "DATE": (str, int),
        "BYTES": (str,),
    }  # fmt: skip
    if not isinstance(value, good[kind.name]) or (isinstance(value, bool) and kind.name != "BOOLEAN"):
        raise SqlError(f"column {name} is {kind}, and {value!r} is not")
    if kind.name in WIDTHS and not _fits(value, WIDTHS[kind.name]):
        raise SqlError(f"column {name} is {kind}, and {value} is too large")
    return float(value) if kind.name == "DOUBLE" else value


def _fits(value: int, width: int) -> bool:
    """Whether a whole number has room in so many bytes."""
    return -(1 << width * 8 - 1) <= value < 1 << width * 8 - 1


def encoded_key(relation: Relation, row: Mapping[str, Any]) -> bytes | None:
    """The record's key. Raises SqlError."""
    keys = relation.keys
    if not keys or relation.formats.key == "NONE" or all(row.get(column.name) is None for column in keys):
        return None
    if relation.formats.key == "JSON":
        made = {c.name: row.get(c.name) for c in keys} if len(keys) > 1 else row.get(keys[0].name)
        return json.dumps(made).encode()
    value, kind = row[keys[0].name], keys[0].type
    if relation.formats.key == "KAFKA" and kind.name in WIDTHS:
        return int(value).to_bytes(WIDTHS[kind.name], "big", signed=True)
    return str(value).encode()


def encoded_value(relation: Relation, row: Mapping[str, Any]) -> bytes | None:
    """The record's value. Raises SqlError."""
    columns = relation.values
    if not columns or relation.formats.value == "NONE":
        return None
    values = [row.get(column.name) for column in columns]
    if relation.formats.value == "DELIMITED":
        text = io.StringIO()
        csv.writer(text, delimiter=relation.formats.delimiter, lineterminator="").writerow(values)
        return text.getvalue().encode()
    if relation.formats.value == "KAFKA":
        if values[0] is None:
            return None
        kind = columns[0].type.name
        return (
            int(values[0]).to_bytes(WIDTHS[kind], "big", signed=True)
            if kind in WIDTHS
            else str(values[0]).encode()
        )
    return json.dumps(dict(zip((c.name for c in columns), values, strict=True)), ensure_ascii=False).encode()
