"""The parts of a plan as plain data: relations, the origins of their rows, and the operators that process them.

A relation is a named set of rows: a stream of records, or a table (of a compacted topic: the newest record of each
key). Its origin is a source, another relation, or several; its operators are applied to each row in turn.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from barnabas.pipelines.plan.model import Aggregate, Source, Step

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
    inner, left, right or full. within: None if the right side is a table. prefix: of the right side's field names."""

    left: str
    right: str
    on: Mapping[str, str]
    kind: str = "inner"
    within: Bounds | None = None
    prefix: str = ""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the relations that it reads."""
        return (self.left, self.right)


Origin = Scan | Derived | Union | Join

# --- operators ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Operator:
    """An operation on each row. step: its options, as checked by kinds/steps/, and its label for messages."""

    step: Step
    stateful: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Project(Operator):
    """Adds, changes and removes fields of a row."""


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    """Removes rows."""


@dataclass(frozen=True, slots=True)
class Explode(Operator):
    """Makes a row of each element of an array."""


@dataclass(frozen=True, slots=True)
class Deduplicate(Operator):
    """Removes rows whose fields were seen before."""

    stateful: ClassVar[bool] = True


OPERATORS: Mapping[str, type[Operator]] = {"filter": Filter, "explode": Explode, "deduplicate": Deduplicate}
"""The steps that are not just projections."""


NEVER_FAIL: Collection[str] = ("constant", "deduplicate", "drop", "keep", "rename")
"""Steps that fail for no record."""


def operator_of(step: Step) -> Operator:
    """A step of a pipeline file as an operator."""
    return OPERATORS.get(step.kind, Project)(step)


# --- relations ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventTime:
    """of: the field with the time of a row's event. late: how late a row may arrive and still be counted."""

    of: str
    late: str
    where: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Relation:
    """A named set of rows. aggregate: applied to the rows after all operators. where: file and line of its entries."""

    name: str
    origin: Origin
    operators: tuple[Operator, ...] = ()
    event_time: EventTime | None = None
    aggregate: Aggregate | None = None
    where: Mapping[str, str] = field(default_factory=dict, compare=False)

    def at(self, entry: str = "") -> str:
        """File and line of one of its entries, or else of the relation."""
        return self.where.get(entry) or self.where.get("", "")

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of its operators."""
        return tuple(operator.step for operator in self.operators)

    @property
    def can_fail(self) -> bool:
        """Whether a record can fail in one of its steps, or because of its event time."""
        return self.event_time is not None or any(
            step.kind not in NEVER_FAIL or step.options.get("without") == "fail" for step in self.steps
        )

    @property
    def passes_failures(self) -> bool:
        """Whether rows that failed in its inputs are among its rows, to be sent to the dead letters later. The rows of
        a join are not records any more."""
        return not isinstance(self.origin, Join)
