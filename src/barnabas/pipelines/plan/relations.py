"""Relations: named sets of rows, the origins of their rows, and what is done with each row.

A relation's origin is a source, another relation, or several; its operators are applied to each row in turn, then its
event time, then its aggregate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.places import ASIDE
from barnabas.pipelines.plan.schema import Key, RowKind, Schema
from barnabas.pipelines.plan.sources import Source

SOURCE = "source"
"""The name of the only relation of a pipeline that names none."""

# --- origins ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a source. table: only the newest record of each key instead of every record."""

    source: Source
    table: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the relations that it reads: none."""
        return ()


@dataclass(frozen=True, slots=True)
class Derived:
    """The rows of another relation."""

    relation: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the relations that it reads."""
        return (self.relation,)


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of several relations, with the fields of all of them."""

    relations: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the relations that it reads."""
        return self.relations


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long before and after a row of the left side its partner may be, as Spark writes durations."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows. on: fields of the left side, each with the field of the right side that it must equal. kind:
    inner, left, right or full. within: None if the right side is a table. prefix: of the right side's field names. as_of:
    the field of a stream with the time at which a row of the table is wanted; empty: as the table is. history: how long the
    table's earlier rows are kept for that, in seconds."""

    left: str
    right: str
    on: Mapping[str, str]
    kind: str = "inner"
    within: Bounds | None = None
    prefix: str = ""
    as_of: str = field(default="", metadata=ASIDE)
    history: float = field(default=0.0, metadata=ASIDE)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the relations that it reads."""
        return (self.left, self.right)


Origin = Scan | Derived | Union | Join

# --- time and aggregates ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventTime:
    """of: the field with the time of a row's event. late: how late a row may arrive and still be counted."""

    of: str
    late: str
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Window:
    """Time windows. of: the time; None: the relation's event time. every: a window's length. slide: how often one begins;
    None: each when the last one ends. gap: in place of every, the pause that ends a session. name, end: the fields for
    the window's start and end."""

    of: Expression | None
    every: str | None
    slide: str | None
    name: str
    gap: str | None = None
    end: str | None = None

    @property
    def names(self) -> list[str]:
        """The fields that it adds."""
        return [self.name, *([] if self.end is None else [self.end])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(Operator):
    """Groups of rows and their results. compute: Spark SQL aggregates by field. then: fields that are computed of the
    results, the groups and the window's bounds. late: how late a record may come and still count; None keeps every window
    open forever. emit: `changes` writes a group's result whenever it changes, `final` only once, when the group's window
    is over; a plan has found out which, if it was not said. Of a relation, `changes` makes a table of the groups."""

    kind: ClassVar[str] = "aggregate"
    stateful: ClassVar[bool] = True
    window: Window | None = None
    by: tuple[Expression, ...] = ()
    compute: Mapping[str, Expression] = field(default_factory=dict)
    then: Mapping[str, Expression] = field(default_factory=dict)
    late: str | None = None
    emit: Literal["", "changes", "final"] = ""

    @property
    def takes_back(self) -> bool:
        """Whether results are taken back: a session whose result is written at each change gets other bounds."""
        return self.window is not None and self.window.gap is not None and self.emit != "final"

    @property
    def groups(self) -> list[str]:
        """The fields that identify a group."""
        return [*([] if self.window is None else [self.window.name]), *(by.text for by in self.by)]

    def after(self, schema: Schema) -> Schema:
        names = [] if self.window is None else self.window.names
        fields: dict[str, str | None] = dict.fromkeys(names, "timestamp")
        for by in self.by:
            kind = schema.type_of(by.text)
            fields[by.text] = "string" if kind == "variant" else kind
        for name, expression in self.compute.items():
            fields[name] = "bigint" if expression.text.replace(" ", "").lower() == "count(*)" else None
        return Schema({**fields, **dict.fromkeys(self.then)})


# --- relations ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Relation:
    """A named set of rows. aggregate: applied to the rows after all operators. where: file and line of its entries.
    named: false for the only relation of a pipeline that names none. changelog: the compacted topic with its rows, if it is
    a table that has one. schema, key and rows are found by `plan_of`."""

    name: str
    origin: Origin
    operators: tuple[Operator, ...] = ()
    event_time: EventTime | None = None
    aggregate: Aggregate | None = None
    where: Mapping[str, str] = field(default_factory=dict, compare=False)
    named: bool = True
    changelog: str = field(default="", metadata=ASIDE)
    schema: Schema = field(default_factory=Schema)
    key: Key | None = None
    rows: RowKind = RowKind.STREAM

    def at(self, entry: str = "") -> str:
        """File and line of one of its entries, or else of the relation."""
        return self.where.get(entry) or self.where.get("", "")

    @property
    def can_fail(self) -> bool:
        """Whether a record can fail in one of its operators, or because of its event time."""
        return self.event_time is not None or any(operator.can_fail for operator in self.operators)

    @property
    def passes_failures(self) -> bool:
        """Whether rows that failed in its inputs are among its rows, to be sent to the dead letters later. The rows of
        a join are not records any more."""
        return not isinstance(self.origin, Join)
