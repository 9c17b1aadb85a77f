"""Rows that statements write out: INSERT INTO ... VALUES, as the key and value of a record."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from sqlglot import exp

from barnabas.pipelines.fronts.sql.catalog import Relation
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import Translator, Typed
from barnabas.pipelines.fronts.sql.functions import DAY_MS
from barnabas.pipelines.fronts.sql.rows import key_expression, value_expression
from barnabas.pipelines.fronts.sql.statements import InsertValues
from barnabas.pipelines.fronts.sql.types import SqlType
from barnabas.pipelines.plan.interpret.expressions import Failed, NotInterpreted, evaluated
from barnabas.pipelines.plan.interpret.spark.values import EPOCH, Misfit, as_date, as_decimal, as_time

BITS: Final = {"INTEGER": 31, "BIGINT": 63}
ACCEPTED: Final[Mapping[str, tuple[type, ...]]] = {
    "STRING": (str,), "INTEGER": (int,), "BIGINT": (int,), "DOUBLE": (int, float, Decimal), "BOOLEAN": (bool,),
    "DECIMAL": (int, float, str, Decimal), "ARRAY": (list,), "MAP": (dict,), "STRUCT": (dict,), "BYTES": (str, bytes),
    "TIMESTAMP": (str, int, datetime.datetime), "DATE": (str, int, datetime.date), "TIME": (str, int),
}  # fmt: skip
"""The types of values that a column takes."""


def check_writable(relation: Relation) -> None:
    """Raises SqlError if no query may write to a stream or table."""
    if relation.is_source:
        raise SqlError(f"Cannot insert into read-only {relation.kind.lower()}: {relation.name}")
    if relation.kind == "TABLE":
        raise SqlError(f"INSERT INTO ... SELECT writes to streams; {relation.name} is a table")
    if relation.headers:
        raise SqlError(f"Cannot insert into {relation.name} because it has header columns")


def row_of(relation: Relation, statement: InsertValues) -> tuple[dict[str, Any], int]:
    """The values of all columns, and the time of the row in milliseconds; 0 for now. Raises SqlError."""
    if relation.is_source:
        raise SqlError(f"Cannot insert into read-only {relation.kind.lower()}: {relation.name}")
    names = statement.columns or tuple(column.name for column in relation.columns)
    if shown := [column.name for column in relation.headers if column.name in names]:
        raise SqlError(f"Cannot insert into HEADER columns: {', '.join(shown)}")
    if len(names) != len(statement.values):
        raise SqlError(f"{len(names)} columns, but {len(statement.values)} values: {', '.join(names)}")
    row: dict[str, Any] = {column.name: None for column in relation.columns}
    at_ms = 0
    for name, node in zip(names, statement.values, strict=True):
        if name == "ROWTIME":
            at_ms = int(constant(node))
            continue
        column = relation.column(name)
        if column is None:
            known = ", ".join(c.name for c in relation.columns)
            raise SqlError(f"{relation.name} has no column {name}; it has {known}")
        row[name] = fitted(constant(node), column.type, name)
    if relation.kind == "TABLE" and all(row[column.name] is None for column in relation.keys):
        raise SqlError(
            f"the key of table {relation.name} must not be null: {', '.join(c.name for c in relation.keys)}"
        )
    return row, at_ms


def has_key(relation: Relation, row: Mapping[str, Any]) -> bool:
    """Whether a row has a value in any column of the key."""
    return any(row.get(column.name) is not None for column in relation.keys)


def encoded(relation: Relation, row: Mapping[str, Any]) -> tuple[bytes | None, bytes | None]:
    """The key and value of a row's record; null if their formats have schemas. Raises SqlError."""
    key = None
    if has_key(relation, row):
        key = _bytes(key_expression(relation), row)
    return key, _bytes(value_expression(relation), row)


def _bytes(expression: str | None, row: Mapping[str, Any]) -> bytes | None:
    if expression is None:
        return None
    try:
        content = evaluated(expression, row)
    except (Failed, NotInterpreted) as error:
        raise SqlError(f"the row cannot be written: {error}") from None
    return content.encode() if isinstance(content, str) else content


class _NoColumns:
    """The scope of a value that stands for itself."""

    def column(self, source: str, name: str) -> Typed:
        """Raises SqlError."""
        shown = f"{source}.{name}" if source else name
        raise SqlError(
            f"{shown} is a name, but a value is expected: write texts in single quotes, like '{name}'"
        )

    def offset(self) -> Typed:
        """Raises SqlError."""
        raise SqlError("a value is no row, and has no offset")


def constant(node: exp.Expr) -> Any:
    """The value of an expression without columns. Raises SqlError."""
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Literal):
        if node.is_string:
            return str(node.this)
        return int(node.this) if str(node.this).isdecimal() else float(node.this)
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        return -constant(node.this)
    try:
        return evaluated(Translator(_NoColumns()).translate(node).text, {})
    except Failed as error:
        raise SqlError(f"{node.sql()}: {error}") from None
    except NotInterpreted as error:
        raise SqlError(f"{node.sql()} cannot be computed here: {error}") from None


def fitted(value: Any, kind: SqlType, name: str) -> Any:
    """A value as its column's type. Raises SqlError."""
    if value is None:
        return None
    accepted: Any = ACCEPTED[kind.name]
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind.name != "BOOLEAN"):
        raise SqlError(f"column {name} is {kind}, and {value!r} is not")
    if kind.name in BITS and not -(1 << BITS[kind.name]) <= value < 1 << BITS[kind.name]:
        raise SqlError(f"column {name} is {kind}, and {value} is too large")
    if kind.name == "ARRAY":
        return [fitted(one, kind.items[0], name) for one in value]
    if kind.name == "MAP":
        return {key: fitted(one, kind.items[1], name) for key, one in value.items()}
    if kind.name == "STRUCT":
        if extra := [field for field in value if field not in kind.fields]:
            raise SqlError(f"column {name} is {kind}, which has no field {extra[0]}")
        pairs = zip(kind.fields, kind.items, strict=True)
        return {field: fitted(value.get(field), item, name) for field, item in pairs}
    try:
        return _plain(value, kind)
    except (Misfit, ValueError, OverflowError):
        raise SqlError(f"column {name} is {kind}, and {value!r} is not") from None


def _plain(value: Any, kind: SqlType) -> Any:
    if kind.name == "DOUBLE":
        return float(value)
    if kind.name == "DECIMAL":
        return as_decimal(str(value) if isinstance(value, float) else value, *kind.digits)
    if kind.name == "TIMESTAMP":
        return EPOCH + datetime.timedelta(milliseconds=value) if isinstance(value, int) else as_time(value)
    if kind.name == "DATE":
        return EPOCH.date() + datetime.timedelta(days=value) if isinstance(value, int) else as_date(value)
    if kind.name == "TIME":
        return _time_of_day(value)
    if kind.name == "BYTES":
        return base64.b64decode(value, validate=True) if isinstance(value, str) else value
    return value


def _time_of_day(value: str | int) -> int:
    """Milliseconds since midnight. Raises ValueError."""
    if isinstance(value, str):
        time = datetime.time.fromisoformat(value)
        if time.tzinfo is not None:
            raise ValueError(value)
        value = ((time.hour * 60 + time.minute) * 60 + time.second) * 1000 + time.microsecond // 1000
    if not 0 <= value < DAY_MS:
        raise ValueError(value)
    return value
