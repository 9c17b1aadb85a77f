"""Pull queries: the present rows of a table that a query keeps, by key, window, or any condition."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from barnabas.pipelines.entries.document import duration_seconds
from barnabas.pipelines.fronts.sql.catalog import Column, Relation
from barnabas.pipelines.fronts.sql.constants import constant
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import name_of
from barnabas.pipelines.fronts.sql.grouping import HAVING_FIELD
from barnabas.pipelines.fronts.sql.planning import VIEW, column_name
from barnabas.pipelines.fronts.sql.rows import WINDOW_END, WINDOW_START
from barnabas.pipelines.fronts.sql.statements import Select
from barnabas.pipelines.fronts.sql.types import BIGINT
from barnabas.pipelines.serving.lookups import Lookups
from barnabas.pipelines.sql.computing import computation, condition
from barnabas.pipelines.views.lookup import Asked

if TYPE_CHECKING:
    from barnabas.pipelines.fronts.sql.catalog import Catalog

PAGE_ROWS: Final = 5_000
BOUNDS: Final = (WINDOW_START, WINDOW_END)


@dataclass(frozen=True, slots=True)
class Result:
    """Columns, and rows one after the other."""

    columns: tuple[Column, ...]
    rows: Iterator[list[Any]]
    query_id: str = ""


def pull(catalog: Catalog, lookups: Lookups, select: Select) -> Result:
    """The rows that a query without EMIT asks for. Raises SqlError."""
    relation = catalog.find(select.source.name, select.source.spot)
    query = catalog.queries.get(relation.query or "")
    if relation.kind == "STREAM":
        raise SqlError(f"{relation.name} is a stream: write EMIT CHANGES at the end, to follow its rows")
    if query is None or not query.view:
        raise SqlError(
            f"{relation.name} is not kept by a query, so its rows cannot be looked up: "
            f"CREATE TABLE name AS SELECT * FROM {relation.name}; keeps them"
        )
    if select.joins or select.group_by or select.partition_by or select.having is not None or select.window:
        raise SqlError(
            "a query without EMIT looks rows of one table up: no JOIN, GROUP BY, PARTITION BY, HAVING or WINDOW"
        )
    items = _items(select, relation)
    wanted = _condition(select, relation)
    rows = _rows_found(lookups, query.id, relation, _keys(select.where, relation))
    columns = tuple(item.column for item in items)
    return Result(columns, _chosen(rows, wanted, items, select.limit), query.id)


def shown_columns(relation: Relation) -> tuple[Column, ...]:
    """The columns of a table, with the bounds of its windows."""
    bounds = (
        tuple(Column(name, BIGINT, is_key=True) for name in BOUNDS) if relation.window is not None else ()
    )
    return (*relation.keys, *bounds, *relation.values)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A column of the result. of: its value for a row."""

    column: Column
    of: Callable[[Mapping[str, Any]], Any]


def _items(select: Select, relation: Relation) -> list[_Shown]:
    columns = shown_columns(relation)
    named = {column.name: column for column in columns}
    items: list[_Shown] = []
    for number, item in enumerate(select.items):
        node = item.expression
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            items += [_Shown(column, _getter(column.name)) for column in columns]
            continue
        if isinstance(node, exp.Column) and (column := named.get(name_of(node.this))) is not None:
            shown = Column(item.alias or column.name, column.type, column.name, column.is_key)
            items.append(_Shown(shown, _getter(column.name)))
            continue
        try:
            computed = computation(node, relation, select.source.alias, columns)
        except SqlError as error:
            raise SqlError(error.message, error.spot or item.spot) from None
        items.append(_Shown(Column(item.alias or column_name(node, number), computed.type), computed.of))
    return items


def _getter(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """The value of a column, null if the row has none."""
    return lambda row: row.get(name)


def _condition(select: Select, relation: Relation) -> Callable[[Mapping[str, Any]], Any] | None:
    """Whether a row is wanted; None if all are. Raises SqlError."""
    if select.where is None:
        return None
    return condition(select.where, relation, select.source.alias, shown_columns(relation)).of


def _keys(where: exp.Expr | None, relation: Relation) -> list[str] | None:
    """The keys that a condition names; None if it names none, and all rows are looked at."""
    if where is None or len(relation.keys) != 1:
        return None
    name = relation.keys[0].name
    for part in _parts(where):
        if isinstance(part, exp.EQ) and isinstance(part.left, exp.Column) and name_of(part.left.this) == name:
            return [str(constant(part.right))]
        if isinstance(part, exp.In) and isinstance(part.this, exp.Column) and name_of(part.this.this) == name:
            return [str(constant(one)) for one in part.expressions]
    return None


def _parts(where: exp.Expr) -> Iterator[exp.Expr]:
    """The conditions that must all be true."""
    if isinstance(where, exp.And):
        yield from _parts(where.left)
        yield from _parts(where.right)
    elif isinstance(where, exp.Paren):
        yield from _parts(where.this)
    else:
        yield where


def _rows_found(
    lookups: Lookups, query: str, relation: Relation, keys: list[str] | None
) -> Iterator[dict[str, Any]]:
    for key in [None] if keys is None else dict.fromkeys(keys):
        after: str | None = None
        while True:
            asked = Asked(key=() if key is None else (key,), limit=PAGE_ROWS, after=after)
            page = json.loads(lookups.find(query, VIEW, asked))
            for row in page["rows"]:
                yield _as_ksql(row, relation)
            after = page["next"]
            if after is None:
                break


def _as_ksql(row: dict[str, Any], relation: Relation) -> dict[str, Any]:
    """A row of a view: bounds of windows and timestamps are milliseconds in ksqlDB, and a session ends with its last
    row."""
    times = {c.name for c in relation.columns if c.type.name == "TIMESTAMP"} | set(BOUNDS)
    fields = {n: _millis(v) if n in times and isinstance(v, str) else v for n, v in row.items()}
    if relation.window is not None and relation.window.kind == "SESSION" and WINDOW_END in fields:
        fields[WINDOW_END] -= round(duration_seconds(relation.window.size) * 1000)
    return fields


def _millis(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def _chosen(
    rows: Iterator[dict[str, Any]],
    is_wanted: Callable[[Mapping[str, Any]], Any] | None,
    items: list[_Shown],
    limit: int | None,
) -> Iterator[list[Any]]:
    shown = 0
    for row in rows:
        if limit is not None and shown >= limit:
            return
        if row.get(HAVING_FIELD) is not False and (is_wanted is None or is_wanted(row) is True):
            shown += 1
            yield [item.of(row) for item in items]
