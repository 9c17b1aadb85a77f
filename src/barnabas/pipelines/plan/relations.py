"""The parts of a plan as plain data: relations, where their rows come from, and what is done to them.

A relation is a named set of rows: a stream of records, or a table (of a compacted topic: the newest record of each
key). Its origin is a source, another relation, or several; its operators are done to each row in turn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from barnabas.pipelines.model import Aggregate, Source, Step

# --- origins ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """Rows out of a source. table: the newest record of each key instead of every record."""

    source: Source
    table: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Derived:
    """The rows of another relation."""

    relation: str

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.relation,)


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of several relations, with the fields of all of them."""

    relations: tuple[str, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.relations


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far the right side's time may lie before and after the left side's, as Spark writes durations."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows. on: fields of the left side and the field of the right side that each equals. kind: inner, left,
    right or full. within: None where the right side is a table. prefix: goes before the names of the right side's fields."""

    left: str
    right: str
    on: Mapping[str, str]
    kind: str = "inner"
    within: Bounds | None = None
    prefix: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.left, self.right)


Origin = Scan | Derived | Union | Join

# --- operators ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operator:
    """What is done to each row. step: its options as steps/ checks them, and what messages and dead letters call it."""

    step: Step
    stateful: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Project(Operator):
    """Makes, changes and removes fields of a row."""


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    """Leaves rows out."""


@dataclass(frozen=True, slots=True)
class Explode(Operator):
    """A row per element of an array."""


@dataclass(frozen=True, slots=True)
class Deduplicate(Operator):
    """Leaves rows out whose fields were seen before."""

    stateful: ClassVar[bool] = True


OPERATORS: Mapping[str, type[Operator]] = {"filter": Filter, "explode": Explode, "deduplicate": Deduplicate}
"""The steps that are more than a projection."""


NEVER_FAIL: Collection[str] = ("constant", "deduplicate", "drop", "keep", "rename")
"""Steps that every record passes."""


def operator_of(step: Step) -> Operator:
    """A step of a pipeline file as an operator."""
    return OPERATORS.get(step.kind, Project)(step)


# --- relations ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventTime:
    """of: the field that says when a row's event happened. late: how late a row may come and still count."""

    of: str
    late: str
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Relation:
    """A named set of rows. aggregate: what becomes of its rows in the end. where: file and line of its entries."""

    name: str
    origin: Origin
    operators: tuple[Operator, ...] = ()
    event_time: EventTime | None = None
    aggregate: Aggregate | None = None
    where: Mapping[str, str] = field(default_factory=dict, compare=False)

    def at(self, entry: str = "") -> str:
        """File and line of one of its entries."""
        return self.where.get(entry) or self.where.get("", "")

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(operator.step for operator in self.operators)

    @property
    def can_fail(self) -> bool:
        """Whether there is anything in it that a record could fail in."""
        return self.event_time is not None or any(step.kind not in NEVER_FAIL for step in self.steps)

    @property
    def passes_failures(self) -> bool:
        """Whether rows that failed in its inputs come out of it, to be sent to the dead letters further down. What is
        behind a join or an aggregate is not a record any more."""
        return not isinstance(self.origin, Join)
