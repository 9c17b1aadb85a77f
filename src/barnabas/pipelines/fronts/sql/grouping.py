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
from barnabas.pipelines.plan.aggregates import OF_STREAMS, RESULT, divided

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

    @property
    def as_table(self) -> Mapping[str, Any]:
        """The entry of a relation that is a table of the groups, whose windows are never over."""
        return {**{name: value for name, value in self.entry.items() if name != "late"}, "emit": "changes"}


def is_turned(column: Column, result: Relation) -> bool:
    """Whether a column has another type in records than in rows: in JSON with a schema, times are numbers."""
    return result.formats.value == "JSON_SR" and encodable("x", column.type) != "x"


def grouped_by(query: OpenQuery, shown: list[SelectedColumn], keys: list[str], result: Relation) -> Groups:
    """The aggregate of a query: its groups, what is computed for each, and its window. Raises SqlError."""
    select = query.select
    steps: dict[str, str] = {}
    compute: dict[str, str] = {}
    groups = {Translator(query.scope).translate(node).text for node in select.group_by}
    then: dict[str, str] = {}
    for one in shown:
        if one.name in keys:
            if one.plain != one.name:
                steps[one.name] = one.typed.text
        elif not one.typed.aggregates and not one.of <= groups:
            raise SqlError(
                f"{one.name} is neither in GROUP BY nor made by a function of many rows like COUNT"
            )
        elif _names_bound(one.typed.text) or not (one.typed.aggregates or one.of):
            if one.name not in (WINDOW_START, WINDOW_END):
                then[one.name] = _afterwards(one, compute)
        else:  # a column of the group is the same in all of its rows
            compute[one.name] = one.typed.text if one.typed.aggregates else f"max({one.typed.text})"
    for column in result.values:
        for fields in (compute, then):
            if column.name in fields and is_turned(column, result):
                fields[column.name] = encodable(fields[column.name], column.type)
    compute |= _having(query)
    if not compute:
        compute = {"rows of the group": "count(*)"}
    entry: dict[str, Any] = {"by": keys, "compute": compute, **({"then": then} if then else {})}
    window = select.window
    if window is not None:
        of: dict[str, Any] = {"of": _time(query), "as": WINDOW_START, "end": WINDOW_END}
        of["session" if window.kind == "SESSION" else "every"] = window.size
        if window.advance is not None:
            of["slide"] = window.advance
        entry["window"] = of
        entry["late"] = window.grace or GRACE
        if select.emit == "FINAL":
            entry["emit"] = "final"
    # As in ksqlDB, a row is in no group if a column of the group is null.
    keyed = {"filter": " AND ".join(f"{quoted(key)} IS NOT NULL" for key in keys)}
    return Groups([*([{"set": steps}] if steps else []), keyed], entry)


def _time(query: OpenQuery) -> str:
    """The time of a row: that of its stream; of a row of two streams, the later one."""
    streams = [side for side in query.sides if side.relation.kind == "STREAM"]
    for side in streams:
        side.pseudo.add(TIME)
    times = [quoted(side.field(TIME)) if side.prefix else TIME for side in streams]
    return times[0] if len(times) == 1 else f"greatest({', '.join(times)})"


def _having(query: OpenQuery) -> dict[str, str]:
    """The field that says whether a group is shown; none without HAVING. Raises SqlError."""
    having = query.select.having
    if having is None:
        return {}
    scope: Any = GroupScope(query.scope, None)
    condition = Translator(scope, aggregates=True).condition(having)
    text = condition.text if condition.aggregates else f"max({condition.text})"
    return {HAVING_FIELD: f"coalesce({text}, false)"}


def _names_bound(text: str) -> bool:
    """Whether an expression names the start or end of the group's window."""
    return quoted(WINDOW_START) in text or quoted(WINDOW_END) in text


def _afterwards(one: SelectedColumn, compute: dict[str, str]) -> str:
    """A column of the result that is computed once a group's window is known: what it needs of the rows is computed before,
    under names of its own. Raises SqlError."""
    text = one.typed.text
    if one.typed.aggregates:
        try:
            parts = divided(text, more=OF_STREAMS)
        except ValueError as error:
            raise SqlError(f"{one.name}: {error}") from None
        text = parts.rest
        for number, call in enumerate(parts.calls):
            called = f"{one.name} {number}"
            only = "" if call.only is None else f" FILTER (WHERE {call.only})"
            compute[called] = call.text + only
            text = text.replace(quoted(f"{RESULT}{number}"), quoted(called))
    for field in sorted(one.of):
        called = f"{one.name} {field.strip('`')}"
        if field in text:
            compute[called] = f"max({field})"
            text = text.replace(field, quoted(called))
    return text
