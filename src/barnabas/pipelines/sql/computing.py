"""Expressions over the rows of a table that are looked up: those of queries, computed without Spark."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from sqlglot import exp

from barnabas.pipelines.fronts.sql.catalog import Column, Relation
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import Translator
from barnabas.pipelines.fronts.sql.scopes import Side, SourceScope
from barnabas.pipelines.fronts.sql.types import BOOLEAN, SqlType
from barnabas.pipelines.plan.interpret.expressions import Failed, NotInterpreted, evaluated

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Computation:
    """An expression over columns of a row. shown: how it was typed. inputs: the columns with their types."""

    shown: str
    text: str
    type: SqlType
    inputs: Mapping[str, SqlType]

    def of(self, row: Mapping[str, Any]) -> Any:
        """The value for a row as lookups show it; null if it cannot be computed for this row. Raises SqlError."""
        fields = {name: _typed(row.get(name), kind) for name, kind in self.inputs.items()}
        try:
            return _shown(evaluated(self.text, fields))
        except Failed:
            return None
        except NotInterpreted as error:
            raise SqlError(
                f"{self.shown} cannot be computed in a query without EMIT ({error}): compute it in the query that makes "
                "the table"
            ) from None


def computation(node: exp.Expr, relation: Relation, alias: str, columns: tuple[Column, ...]) -> Computation:
    """An expression over the columns of a table. columns: those that its rows show. Raises SqlError."""
    side = Side(alias, relation)
    typed = Translator(SourceScope([side], relation.name)).translate(node)
    kinds = {column.name: column.type for column in columns}
    if unknown := sorted(side.used - kinds.keys()):
        raise SqlError(
            f"{unknown[0]} is not kept with the rows of {relation.name}; there are {', '.join(kinds)}"
        )
    return Computation(
        node.sql(dialect="presto"), typed.text, typed.type, {name: kinds[name] for name in side.used}
    )


def condition(node: exp.Expr, relation: Relation, alias: str, columns: tuple[Column, ...]) -> Computation:
    """An expression that is true or false. Raises SqlError."""
    computed = computation(node, relation, alias, columns)
    if computed.type != BOOLEAN:
        raise SqlError(f"{computed.shown} is {computed.type}, but a condition is BOOLEAN")
    return computed


def _typed(value: Any, kind: SqlType) -> Any:
    """A value as lookups show it, as its type's."""
    if value is None:
        return None
    if kind.name == "TIMESTAMP":
        if isinstance(value, int):
            return EPOCH + value * MILLISECOND
        return datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
    if kind.name == "DATE":
        return datetime.date.fromisoformat(value)
    if kind.name == "DECIMAL":
        return Decimal(str(value))
    if kind.name == "DOUBLE":
        return float(value)
    if kind.name == "BYTES":
        return base64.b64decode(value)
    if kind.name == "ARRAY":
        return [_typed(one, kind.items[0]) for one in value]
    if kind.name == "MAP":
        return {key: _typed(one, kind.items[1]) for key, one in value.items()}
    if kind.name == "STRUCT":
        return {
            name: _typed(value.get(name), item) for name, item in zip(kind.fields, kind.items, strict=True)
        }
    return value


def _shown(value: Any) -> Any:
    """A value as rows of queries show it: timestamps in milliseconds, dates as text."""
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _shown(one) for name, one in value.items()}
    return value
