"""Pull queries: the present rows of a table that a query keeps, by key, window, or any condition."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlglot import exp

from barnabas.pipelines.fronts.sql.catalog import Column, Relation
from barnabas.pipelines.fronts.sql.constants import constant
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import name_of
from barnabas.pipelines.fronts.sql.planning import HELD, VIEW, column_name
from barnabas.pipelines.fronts.sql.statements import Select
from barnabas.pipelines.fronts.sql.types import BIGINT
from barnabas.pipelines.serving.lookups import Lookups
from barnabas.pipelines.sql.computing import computation, condition
from barnabas.pipelines.views.lookup import Asked

if TYPE_CHECKING:
    from barnabas.pipelines.fronts.sql.catalog import Catalog

PAGE_ROWS: Final = 5_000
BOUNDS: Final = ("WINDOWSTART", "WINDOWEND")


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
    rows = _found(lookups, query.id, relation, _keys(select.where, relation))
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
    found: list[_Shown] = []
    for number, item in enumerate(select.items):
        node = item.expression
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            found += [_Shown(column, _getter(column.name)) for column in columns]
            continue
        if isinstance(node, exp.Column) and (column := named.get(name_of(node.this))) is not None:
            shown = Column(item.alias or column.name, column.type, column.name, column.is_key)
            found.append(_Shown(shown, _getter(column.name)))
            continue
        try:
            made = computation(node, relation, select.source.alias, columns)
        except SqlError as error:
            raise SqlError(error.message, error.spot or item.spot) from None
        found.append(_Shown(Column(item.alias or column_name(node, number), made.type), made.of))
    return found


def _getter(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """The value of a column, null if the row has none."""
    return lambda row: row.get(name)


def _condition(select: Select, relation: Relation) -> Callable[[Mapping[str, Any]], Any] | None:
    """Whether a row is wanted; None if all are. Raises SqlError."""
    where = select.where
    if where is None:
        return None
    columns = shown_columns(relation)
    if not _is_simple(where, frozenset(column.name for column in columns)):
        return condition(where, relation, select.source.alias, columns).of
    return lambda row: holds(where, row)


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


def _found(
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
    """A row of a view: bounds of windows and timestamps are milliseconds in ksqlDB."""
    times = {c.name for c in relation.columns if c.type.name == "TIMESTAMP"} | set(BOUNDS)
    made = {n: _millis(v) if n in times and isinstance(v, str) else v for n, v in row.items()}
    return made | {name: made[bound] for name, bound in relation.bounds if bound in made}


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
        if row.get(HELD) is not False and (is_wanted is None or is_wanted(row) is True):
            shown += 1
            yield [item.of(row) for item in items]


# --- conditions ---------------------------------------------------------------------------------------

COMPARE: Final[Mapping[type[exp.Expr], Callable[[Any, Any], bool]]] = {
    exp.EQ: lambda a, b: a == b,
    exp.NEQ: lambda a, b: a != b,
    exp.LT: lambda a, b: a < b,
    exp.LTE: lambda a, b: a <= b,
    exp.GT: lambda a, b: a > b,
    exp.GTE: lambda a, b: a >= b,
}


def _is_simple(node: exp.Expr, names: frozenset[str]) -> bool:
    """Whether a condition compares columns and values only, so that `holds` knows it."""
    if isinstance(node, exp.Paren | exp.Not):
        return _is_simple(node.this, names)
    if isinstance(node, exp.And | exp.Or):
        return _is_simple(node.left, names) and _is_simple(node.right, names)
    if isinstance(node, exp.Is):
        return isinstance(node.expression, exp.Null) and _is_operand(node.this, names)
    if isinstance(node, exp.Between):
        return all(_is_operand(one, names) for one in (node.this, node.args["low"], node.args["high"]))
    if isinstance(node, exp.In):
        return all(_is_operand(one, names) for one in (node.this, *node.expressions))
    if isinstance(node, exp.Binary) and isinstance(node, (*COMPARE, exp.Like)):
        return _is_operand(node.left, names) and _is_operand(node.right, names)
    return False


def _is_operand(node: exp.Expr, names: frozenset[str]) -> bool:
    """Whether this is a column that is there, or a value that is written out."""
    if isinstance(node, exp.Column):
        return name_of(node.this) in names
    return not node.find(exp.Column, exp.Anonymous)


def holds(node: exp.Expr, row: Mapping[str, Any]) -> bool | None:
    """Whether a simple condition is true for a row; None if that is unknown, because a value is null. Raises SqlError."""
    if isinstance(node, exp.Paren):
        return holds(node.this, row)
    if isinstance(node, exp.And | exp.Or):
        both = (holds(node.left, row), holds(node.right, row))
        decisive = isinstance(node, exp.Or)
        return decisive if decisive in both else None if None in both else not decisive
    if isinstance(node, exp.Not):
        inner = holds(node.this, row)
        return None if inner is None else not inner
    if isinstance(node, exp.Is):
        return _value(node.this, row) is None
    for kind, compare in COMPARE.items():
        if isinstance(node, kind):
            assert isinstance(node, exp.Binary)
            return _compared(compare, node, row)
    if isinstance(node, exp.Between):
        value, low, high = (_value(n, row) for n in (node.this, node.args["low"], node.args["high"]))
        return None if value is None else bool(low <= value <= high)
    if isinstance(node, exp.In):
        value = _value(node.this, row)
        return None if value is None else value in [_value(one, row) for one in node.expressions]
    assert isinstance(node, exp.Like)
    value = _value(node.this, row)
    if value is None:
        return None
    found = _pattern(str(_value(node.expression, row))).fullmatch(value)
    return bool(found) is not bool(node.args.get("negate"))


def _compared(compare: Callable[[Any, Any], bool], node: exp.Binary, row: Mapping[str, Any]) -> bool | None:
    left, right = _value(node.left, row), _value(node.right, row)
    for this, other, name in ((left, right, node.left), (right, left, node.right)):
        # Times may be written as text.
        if isinstance(this, int) and isinstance(other, str) and isinstance(name, exp.Column):
            moment = _millis(other)
            left, right = (this, moment) if this is left else (moment, this)
    if left is None or right is None:
        return None
    try:
        return compare(left, right)
    except TypeError:
        raise SqlError(f"{node.sql()}: {left!r} and {right!r} cannot be compared") from None


def _value(node: exp.Expr, row: Mapping[str, Any]) -> Any:
    if isinstance(node, exp.Column):
        return row.get(name_of(node.this))
    return constant(node)


def _pattern(like: str) -> re.Pattern[str]:
    return re.compile(
        "".join(".*" if c == "%" else "." if c == "_" else re.escape(c) for c in like), re.DOTALL
    )
