"""The relations of a plan in the order of their dependencies, and what follows from the dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.pipelines.plan.errors import PipelineError, suggestion
from barnabas.pipelines.plan.relations import Join, Relation, Scan, Union

if TYPE_CHECKING:
    from barnabas.pipelines.plan.model import Source


@dataclass(frozen=True, slots=True)
class Plan:
    """Named relations, each after those it reads. Made by `plan_of`."""

    relations: Mapping[str, Relation]

    def __getitem__(self, name: str) -> Relation:
        return self.relations[name]

    @property
    def leaves(self) -> tuple[str, ...]:
        """The relations that no other one reads."""
        read = {name for relation in self.relations.values() for name in relation.origin.inputs}
        return tuple(name for name in self.relations if name not in read)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources that are read, in order."""
        return tuple(r.origin.source for r in self.relations.values() if isinstance(r.origin, Scan))

    def needed(self, name: str) -> tuple[Relation, ...]:
        """A relation and all those that it depends on, each after those it reads."""
        wanted = set(self._above(name))
        return tuple(relation for relation in self.relations.values() if relation.name in wanted)

    def _above(self, name: str) -> Iterator[str]:
        yield name
        for origin in self[name].origin.inputs:
            yield from self._above(origin)

    def read_by(self, name: str) -> dict[str, Source]:
        """The sources that a relation needs, by the names of the relations that scan them. Spark numbers a query's sources
        in this order, also in its checkpoint."""
        return {r.name: r.origin.source for r in self.needed(name) if isinstance(r.origin, Scan)}

    def scans(self, name: str) -> Iterator[Source]:
        """The sources whose rows are among those of a relation; one that it reads in two ways comes twice."""
        origin = self[name].origin
        if isinstance(origin, Scan):
            yield origin.source
        for above in origin.inputs:
            yield from self.scans(above)

    def carried(self, name: str) -> frozenset[str]:
        """The relations whose failed rows are among the rows of this one."""
        relation = self[name]
        if relation.aggregate is not None:
            return frozenset()
        return frozenset({name}) | self._carried_in(relation)

    def _carried_in(self, relation: Relation) -> frozenset[str]:
        if not relation.passes_failures:
            return frozenset()
        return frozenset().union(*(self.carried(above) for above in relation.origin.inputs))

    def failing(self, name: str) -> frozenset[str]:
        """The relations whose failed rows are among the rows of this one, before its aggregate if it has one."""
        return frozenset({name}) | self._carried_in(self[name])

    def is_table(self, name: str) -> bool:
        """Whether a relation has only the newest row of each key, not a stream of rows."""
        origin = self[name].origin
        if isinstance(origin, Scan):
            return origin.table
        return not isinstance(origin, (Join, Union)) and all(self.is_table(above) for above in origin.inputs)

    def joins_streams(self, name: str) -> bool:
        """Whether a relation, or one that it depends on, joins two streams or has an aggregate. Spark then only appends
        rows to its result, and never changes any."""
        return any(
            relation.aggregate is not None
            or (isinstance(relation.origin, Join) and not self.is_table(relation.origin.right))
            for relation in self.needed(name)
        )

    def has_event_time(self, name: str) -> bool:
        """Whether a relation's rows have an event time; the rows of an aggregate have that of their window."""
        return self[name].aggregate is not None or self.has_time_before_aggregate(self[name])

    def has_time_before_aggregate(self, relation: Relation) -> bool:
        """Whether a relation's rows, before its aggregate if it has one, have an event time."""
        if relation.event_time is not None:
            return True
        origin = relation.origin
        if isinstance(origin, Join):
            side = {"right": origin.right, "full": None}.get(origin.kind, origin.left)
            return side is not None and self.has_event_time(side)
        return bool(origin.inputs) and all(self.has_event_time(above) for above in origin.inputs)


def plan_of(relations: Iterable[Relation]) -> Plan:
    """A plan of these relations, sorted and checked. Raises PipelineError with the line of the mistake."""
    named = {relation.name: relation for relation in relations}
    plan = Plan(_sorted(named))
    for relation in plan.relations.values():
        _check(plan, relation)
    return plan


def _sorted(named: Mapping[str, Relation]) -> dict[str, Relation]:
    """Sorts relations, each after those it reads. Raises PipelineError for unknown relations and circles."""
    done: dict[str, Relation] = {}
    under_way: list[str] = []

    def visit(name: str) -> None:
        if name in done:
            return
        if name in under_way:
            circle = " -> ".join([*under_way[under_way.index(name) :], name])
            raise PipelineError(f"{named[name].at()}: relations read each other in a circle: {circle}")
        under_way.append(name)
        for above in named[name].origin.inputs:
            if above not in named:
                others = [other for other in named if other != name]
                raise PipelineError(
                    f"{named[name].at('origin')}: there is no relation {above!r}; {suggestion(above, others)}"
                )
            visit(above)
        done[under_way.pop()] = named[name]

    for name in named:
        visit(name)
    return done


def _check(plan: Plan, relation: Relation) -> None:
    """Raises PipelineError for a relation that Spark cannot run, or only with state that grows for ever."""

    def fail(message: str, entry: str = "origin") -> None:
        raise PipelineError(f"{relation.at(entry)}: {relation.name}: {message}")

    origin = relation.origin
    if isinstance(origin, Union):
        if table := next((name for name in origin.relations if plan.is_table(name)), None):
            fail(f"{table} is a table, and a union is made of streams")
    elif isinstance(origin, Join):
        _check_join(plan, relation, origin)
    if plan.is_table(relation.name):
        if relation.event_time is not None:
            fail("a table has no event time: it is the newest record of each key", "time")
        if relation.aggregate is not None:
            fail("a table cannot be aggregated, only joined with a stream", "aggregate")
        if stateful := next((o.step for o in relation.operators if o.stateful), None):
            raise PipelineError(
                f"{stateful.where}: {relation.name}: step {stateful.label}: not for a table, which has one row per key"
            )
    if relation.event_time is not None and plan.joins_streams(relation.name):
        fail("declare the event time before a join or an aggregate, in its inputs", "time")
    if relation.aggregate is not None:
        _check_aggregate(plan, relation)


def _check_join(plan: Plan, relation: Relation, join: Join) -> None:
    where, name = relation.at("origin"), relation.name
    if plan.is_table(join.left):
        both = plan.is_table(join.right)
        raise PipelineError(
            f"{where}: {name}: {join.left} is a table: "
            + ("two tables cannot be joined" if both else "name the stream as left and the table as right")
        )
    if plan.is_table(join.right):
        if join.within is not None:
            raise PipelineError(
                f"{relation.at('within')}: {name}: within is for two streams; table {join.right} is read as it is now"
            )
        if join.kind not in ("inner", "left"):
            raise PipelineError(
                f"{where}: {name}: a join with a table is inner or left: the stream does not end, so no row of the "
                "table is known to stay without a partner"
            )
        return
    if join.within is None:
        raise PipelineError(
            f"{where}: {name}: a join of two streams needs within, like within: 1 hour: without a bound in time every row "
            "would have to be kept for ever"
        )
    for side in (join.left, join.right):
        if not plan.has_event_time(side):
            raise PipelineError(
                f"{plan[side].at()}: {side} has no event time, which the join {name} needs: give it "
                "time: {of: FIELD, late: 10 minutes}"
            )


def _check_aggregate(plan: Plan, relation: Relation) -> None:
    aggregate = relation.aggregate
    assert aggregate is not None
    where = relation.at("aggregate")
    if aggregate.window is None:
        raise PipelineError(
            f"{where}: {relation.name}: an aggregate of a relation needs a window, so that its rows are final; for "
            "totals without an end use an aggregate of an output"
        )
    if aggregate.late is None and not plan.has_time_before_aggregate(relation):
        raise PipelineError(
            f"{where}: {relation.name}: an aggregate of a relation needs late, or an event time in what it reads, to "
            "know when a window is over"
        )
