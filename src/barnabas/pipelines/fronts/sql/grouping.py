"""GROUP BY: which columns of a result are keys of a group, and which are computed over its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.pipelines.fronts.sql.catalog import Column, Relation
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import Translator, Typed, quoted
from barnabas.pipelines.fronts.sql.joining import GRACE
from barnabas.pipelines.fronts.sql.rows import TIME, WINDOW_END, WINDOW_START, Step, encodable
from barnabas.pipelines.fronts.sql.scopes import GroupScope, OpenQuery

HAVING_FIELD: Final = "group is shown"
"""The field that says whether HAVING is true for a group."""


@dataclass(frozen=True, slots=True)
class SelectedColumn:
    """A column of the result. typed: its expression over the fields of the rows. plain: the field, if it is just one. of:
    the fields that it is made of."""

    name: str
    typed: Typed
    plain: str | None = None
    of: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Groups:
    """An aggregate. steps: before it. entry: as in a pipeline file."""

    steps: list[Step]
    entry: Mapping[str, Any]


def is_turned(column: Column, result: Relation) -> bool:
    """Whether a column has another type in records than in rows: in JSON with a schema, times are numbers."""
    return result.formats.value == "JSON_SR" and encodable("x", column.type) != "x"


def grouped_by(query: OpenQuery, shown: list[SelectedColumn], keys: list[str], result: Relation) -> Groups:
    """The aggregate of a query: its groups, what is computed for each, and its window. Raises SqlError."""
    select = query.select
    steps: dict[str, str] = {}
    compute: dict[str, str] = {}
    groups = {Translator(query.scope).translate(node).text for node in select.group_by}
    for one in shown:
        if one.name in keys:
            if one.plain != one.name:
                steps[one.name] = one.typed.text
        elif one.typed.aggregates:
            compute[one.name] = one.typed.text
        elif one.of and one.of <= groups:
            compute[one.name] = f"max({one.typed.text})"  # the same for all rows of a group
        elif bound_of(one) is None:
            raise SqlError(
                f"{one.name} is neither in GROUP BY nor made by a function of many rows like COUNT"
            )
    for column in result.values:
        if column.name in compute and is_turned(column, result):
            compute[column.name] = encodable(compute[column.name], column.type)
    compute |= _having(query)
    if not compute:
        compute = {"rows of the group": "count(*)"}
    entry: dict[str, Any] = {"by": keys, "compute": compute}
    window = select.window
    if window is not None:
        of: dict[str, Any] = {"of": TIME, "as": WINDOW_START, "end": WINDOW_END}
        of["session" if window.kind == "SESSION" else "every"] = window.size
        if window.advance is not None:
            of["slide"] = window.advance
        entry["window"] = of
        entry["late"] = window.grace or GRACE
        if select.emit == "FINAL" or window.kind == "SESSION":
            entry["emit"] = "final"
    return Groups([{"set": steps}] if steps else [], entry)


def _having(query: OpenQuery) -> dict[str, str]:
    """The field that says whether a group is shown; none without HAVING. Raises SqlError."""
    having = query.select.having
    if having is None:
        return {}
    scope: Any = GroupScope(query.scope, windowed=False)
    condition = Translator(scope, aggregates=True).condition(having)
    text = condition.text if condition.aggregates else f"max({condition.text})"
    return {HAVING_FIELD: f"coalesce({text}, false)"}


def bound_of(one: SelectedColumn) -> str | None:
    """WINDOWSTART or WINDOWEND, if the column shows it."""
    return next(
        (name for name in (WINDOW_START, WINDOW_END) if one.typed.text == f"unix_millis({quoted(name)})"),
        None,
    )
