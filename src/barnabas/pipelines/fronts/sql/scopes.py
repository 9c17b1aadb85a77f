"""What the names of columns stand for in a query: columns of its sources, pseudo columns, results."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from barnabas.pipelines.fronts.sql.catalog import BARE, PSEUDO, ROWKEY, Column, Relation
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.expressions import Typed, quoted
from barnabas.pipelines.fronts.sql.rows import TIME, WINDOW_END, WINDOW_START, bound_of_group
from barnabas.pipelines.fronts.sql.statements import Select, Window
from barnabas.pipelines.fronts.sql.types import BIGINT, STRING, SqlType

BOUNDS: Final = (WINDOW_START, WINDOW_END)


@dataclass
class Side:
    """One stream or table that a query reads. prefix: of its fields in the pipeline; empty if it is the only one. pseudo,
    used: the pseudo columns, and the columns, that the query uses."""

    alias: str
    relation: Relation
    prefix: str = ""
    pseudo: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    @property
    def read(self) -> Relation:
        """The relation with those columns only that the query needs. If it needs none of the value, all: a record whose
        value cannot be read is no row, also for COUNT(*)."""
        time = {self.relation.timestamp} if self.pseudo & {"ROWTIME", TIME} else set()
        needed = self.used | time
        whole = self.relation.formats.value in ("DELIMITED", BARE) or not any(
            column.name in needed for column in self.relation.values
        )
        # What a key is like depends on how many columns it has.
        with_key = any(column.name in needed for column in self.relation.keys)
        kept = tuple(
            column
            for column in self.relation.columns
            if column.name in needed or (with_key if column.is_key else whole)
        )
        return replace(self.relation, columns=kept)

    @property
    def columns(self) -> Mapping[str, SqlType]:
        """All columns, with those that every row has."""
        own = {column.name: column.type for column in self.relation.columns}
        bounds = dict.fromkeys(BOUNDS, BIGINT) if self.relation.window is not None else {}
        return own | dict(PSEUDO) | bounds | ({} if self.relation.keys else {ROWKEY: STRING})

    def field(self, name: str) -> str:
        """The field of the pipeline that a column is."""
        return self.prefix + name


@dataclass
class SourceScope:
    """The columns of all sides of a query. result: the name of what the query makes; in lessons of 2018 it stands before
    columns of the sources."""

    sides: list[Side]
    result: str = ""

    def column(self, source: str, name: str) -> Typed:
        """A column. Raises SqlError if there is none, or several of the name."""
        if source and source == self.result and not any(side.alias == source for side in self.sides):
            source = ""
        sides = self.sides if not source else [side for side in self.sides if side.alias == source]
        if not sides:
            read = ", ".join(side.alias for side in self.sides)
            raise SqlError(f"{source}.{name}: there is no {source} here; the query reads {read}")
        having = [side for side in sides if name in side.columns]
        if not having:
            known = [column for side in sides for column in side.columns]
            near = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise SqlError(f"there is no column {name}; {hint}")
        if len(having) > 1 and not source:
            some = ", ".join(f"{side.alias}.{name}" for side in having)
            raise SqlError(f"{name} may be {some}: write which")
        side = having[0]
        if (name in PSEUDO or name in (ROWKEY, *BOUNDS)) and side.relation.column(name) is None:
            side.pseudo.add(name)
        side.used.add(name)
        return Typed(quoted(side.field(name)), side.columns[name])

    def offset(self) -> Typed:
        """See Scope."""
        first = next((side for side in self.sides if side.relation.kind == "STREAM"), self.sides[0])
        return self.column(first.alias, "ROWOFFSET")

    def all_columns(self, source: str = "") -> list[tuple[str, Side, Column]]:
        """The columns of *: their names in the result, their side, and the column."""
        sides = self.sides if not source else [side for side in self.sides if side.alias == source]
        if not sides:
            raise SqlError(f"{source}.*: there is no {source} here")
        for side in sides:
            side.used |= {column.name for column in side.relation.columns}
        several = len(self.sides) > 1
        return [
            (f"{side.alias}_{column.name}" if several else column.name, side, column)
            for side in sides
            for column in side.relation.columns
        ]


@dataclass
class GroupScope:
    """The columns of an aggregate's rows before it is made: inside of functions of many rows those of the sources, outside
    of them only what identifies a group."""

    inner: SourceScope
    window: Window | None

    def column(self, source: str, name: str) -> Typed:
        """A column, see SourceScope; WINDOWSTART and WINDOWEND are milliseconds."""
        if name in BOUNDS and self.window is not None and not source:
            return Typed(bound_of_group(self.window, name), BIGINT)
        return self.inner.column(source, name)

    def offset(self) -> Typed:
        """See Scope."""
        return self.inner.offset()


@dataclass
class OpenQuery:
    """What is known of a query while it is translated. name: of what it makes."""

    select: Select
    sides: list[Side] = field(default_factory=list)
    name: str = ""

    @property
    def scope(self) -> SourceScope:
        return SourceScope(self.sides, self.name)

    @property
    def has_time(self) -> bool:
        """Whether the time of its rows is a column of the source, which its records are to have, too."""
        alone = len(self.sides) == 1 and not self.select.group_by
        return alone and self.sides[0].relation.timestamp is not None

    @property
    def joins_streams(self) -> bool:
        """Whether its rows are those of streams that are joined with each other."""
        return any(join.within is not None for join in self.select.joins)

    @property
    def is_old(self) -> bool:
        """Whether it is written as in 2018: without EMIT, over a stream whose key is no column."""
        first = self.sides[0].relation
        return not self.select.emit and first.kind == "STREAM" and not first.keys

    @property
    def of_table(self) -> bool:
        """Whether its rows are those of a table."""
        return self.sides[0].relation.kind == "TABLE"
