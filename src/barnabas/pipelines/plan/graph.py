"""A plan: relations in the order of their dependencies, the outputs that write their rows, and what follows from both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from barnabas.pipelines.plan.changelogs import changelog_outputs
from barnabas.pipelines.plan.checks import check_output, check_relation
from barnabas.pipelines.plan.errors import PipelineError, suggestion
from barnabas.pipelines.plan.inference import inferred
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.outputs import Output
from barnabas.pipelines.plan.relations import Derived, Join, Relation, Scan, Union
from barnabas.pipelines.plan.schema import RowKind
from barnabas.pipelines.plan.sources import Source

AnyOperator = TypeVar("AnyOperator", bound=Operator)


@dataclass(frozen=True, slots=True)
class Plan:
    """Named relations, each after those it reads, and the outputs. Made by `plan_of`."""

    relations: Mapping[str, Relation]
    outputs: tuple[Output, ...] = ()

    def __getitem__(self, name: str) -> Relation:
        return self.relations[name]

    @property
    def single(self) -> bool:
        """Whether it has one relation, which has no name: labels and queries are then called without it."""
        return not all(relation.named for relation in self.relations.values())

    @property
    def leaves(self) -> tuple[str, ...]:
        """The relations that no other one reads."""
        read = {name for relation in self.relations.values() for name in relation.origin.inputs}
        return tuple(name for name in self.relations if name not in read)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources that are read, in order."""
        return tuple(r.origin.source for r in self.relations.values() if isinstance(r.origin, Scan))

    def reaching(self, options: Mapping[str, str]) -> Plan:
        """The plan whose sources of topics have these options too, unless they have others of the same names."""
        relations = {}
        for name, relation in self.relations.items():
            origin = relation.origin
            if isinstance(origin, Scan) and origin.source.of_topics:
                source = replace(origin.source, options={**options, **origin.source.options})
                relation = replace(relation, origin=replace(origin, source=source))
            relations[name] = relation
        return replace(self, relations=relations)

    def output(self, name: str) -> Output | None:
        """The output of this name."""
        return next((output for output in self.outputs if output.name == name), None)

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
        return self[name].rows is RowKind.TABLE

    def aggregates_table(self, relation: Relation) -> bool:
        """Whether the rows of a relation, before its aggregate, are those of a table."""
        origin = relation.origin
        if isinstance(origin, Scan):
            return origin.table
        return not isinstance(origin, Union) and self.is_table(origin.inputs[0])

    def scans_table(self, name: str) -> bool:
        """Whether the rows of a relation are those of a source that is a table, with further operators."""
        relation = self[name]
        if isinstance(relation.origin, Scan):
            return relation.origin.table
        derived = isinstance(relation.origin, Derived) and self[relation.origin.relation].aggregate is None
        return derived and self.scans_table(relation.origin.inputs[0])

    def keeps_tables(self, name: str) -> bool:
        """Whether a relation, or one that it depends on, is a table, which is kept in the query's state."""
        return any(relation.rows is RowKind.TABLE for relation in self.needed(name))

    def joins_streams(self, name: str) -> bool:
        """Whether a relation, or one that it depends on, joins two streams or has an aggregate. Spark then only appends
        rows to its result, and never changes any."""
        return any(
            relation.rows is not RowKind.TABLE
            and (
                relation.aggregate is not None
                or (isinstance(relation.origin, Join) and not self._with_table(relation.origin))
            )
            for relation in self.needed(name)
        )

    def _with_table(self, join: Join) -> bool:
        return self.is_table(join.right) and not self.is_table(join.left)

    def meets_stream(self, name: str) -> bool:
        """Whether a stream is joined with a relation, or with one that depends on it."""
        return any(
            self.is_table(join.right)
            and not self.is_table(join.left)
            and name in set(self._above(join.right))
            for join in (relation.origin for relation in self.relations.values())
            if isinstance(join, Join)
        )

    def has_event_time(self, name: str) -> bool:
        """Whether a relation's rows have an event time; the rows of an aggregate have that of their window."""
        if self.is_table(name):
            return False
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


def plan_of(relations: Iterable[Relation], outputs: Iterable[Output] = ()) -> Plan:
    """A plan of these relations and outputs: sorted, checked, with the ids of all operators, and with schema, key and kind
    of each relation. Raises PipelineError with the line of the mistake."""
    named = {relation.name: _identified(relation) for relation in relations}
    done: dict[str, Relation] = {}
    for relation in _sorted(named).values():
        done[relation.name] = inferred(relation, done)
    plan = Plan(done)
    for relation in done.values():
        check_relation(plan, relation)
    outputs = [*outputs, *changelog_outputs(plan)]
    placed = [_placed(plan, output) for output in outputs]
    for output in placed:
        if output.aggregate is not None and plan.is_table(output.relation):
            dead_relation = inferred(_identified(_of_output(plan, output)), done)
            check_relation(Plan({**done, dead_relation.name: dead_relation}), dead_relation)
            done[dead_relation.name] = dead_relation
    plan = Plan(done, tuple(_moved(output, done) for output in placed))
    for output in plan.outputs:
        check_output(plan, output)
    if plan.outputs:
        unread = [name for name in plan.leaves if name not in {output.relation for output in plan.outputs}]
        if unread:
            place = plan[unread[0]].at()
            raise PipelineError(
                f"{place}: nothing reads {unread[0]}: name it in an output's from, or remove it"
            )
    return plan


def _identified(relation: Relation) -> Relation:
    """The relation, its operators with ids: the relation's name, the operator's kind and, from the second of its kind on,
    its number. An operator keeps its id whatever is added, removed or changed elsewhere."""
    aggregate = None if relation.aggregate is None else _with_id(relation.aggregate, relation.name)
    return replace(relation, operators=_with_ids(relation.operators, relation.name), aggregate=aggregate)


def _with_ids(operators: Iterable[Operator], owner: str) -> tuple[Operator, ...]:
    seen: Counter[str] = Counter()
    operators_with_ids = []
    for operator in operators:
        seen[operator.kind] += 1
        operators_with_ids.append(_with_id(operator, owner, seen[operator.kind]))
    return tuple(operators_with_ids)


def _with_id(operator: AnyOperator, owner: str, number: int = 1) -> AnyOperator:
    return replace(operator, id=f"{owner}/{operator.kind}" + (f".{number}" if number > 1 else ""))


def _placed(plan: Plan, output: Output) -> Output:
    """The output with the relation whose rows it writes, and with the ids of its operators."""
    relation = output.relation
    if not relation:
        last = plan.leaves
        if len(last) != 1:
            raise PipelineError(
                f"{output.at()}: output {output.name} needs from, the relation whose rows it writes: "
                f"{', '.join(plan.relations)}"
            )
        relation = last[0]
    elif relation not in plan.relations:
        raise PipelineError(
            f"{output.at('from')}: there is no relation {relation!r}; {suggestion(relation, plan.relations)}"
        )
    owner = f"to {output.name}"
    aggregate = None if output.aggregate is None else _with_id(output.aggregate, owner)
    if aggregate is not None and not aggregate.emit:
        aggregate = replace(aggregate, emit="changes")
    operators = _with_ids(output.operators, owner)
    return replace(output, relation=relation, operators=operators, aggregate=aggregate)


def _of_output(plan: Plan, output: Output) -> Relation:
    """The aggregate of an output as a relation of its own: a table has no other way to be aggregated."""
    name = f"{output.name}.aggregate"
    if name in plan.relations:
        raise PipelineError(f"{plan[name].at()}: output {output.name} needs the name {name}: use another one")
    origin, where = Derived(output.relation), {**output.where, "origin": output.at("from")}
    return Relation(name, origin, output.operators, aggregate=output.aggregate, where=where)


def _moved(output: Output, relations: Mapping[str, Relation]) -> Output:
    """The output without an aggregate that a relation has taken over."""
    name = f"{output.name}.aggregate"
    if output.aggregate is None or name not in relations:
        return output
    return replace(output, relation=name, operators=(), aggregate=None)


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
