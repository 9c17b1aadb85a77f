"""A plan as nodes and arrows, for pictures of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from barnabas.pipelines.plan.graph import Plan
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.outputs import Output
from barnabas.pipelines.plan.relations import Aggregate, Join, Relation, Scan, Union
from barnabas.pipelines.plan.schema import RowKind
from barnabas.pipelines.plan.sources import Source

LINE: Final = re.compile(r":(\d+)\b")
BoxKind = Literal["source", "rows", "table", "output"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done with each row. line: of the file; None if it is unknown."""

    text: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A source, the rows of a relation, or an output. depth: how many nodes a row has passed before it, at most."""

    id: str
    kind: BoxKind
    title: str
    steps: tuple[Step, ...]
    depth: int
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """Nodes, each after those it reads; arrows: pairs of their ids, in the direction of the rows."""

    nodes: tuple[Node, ...]
    arrows: tuple[tuple[str, str], ...]


def picture(plan: Plan) -> Picture:
    """The picture of a plan."""
    nodes: list[Node] = []
    arrows: list[tuple[str, str]] = []
    depths: dict[str, int] = {}
    for relation in plan.relations.values():
        origin = relation.origin
        if isinstance(origin, Scan):
            id = f"source {relation.name}"
            nodes.append(_source(id, origin.source, depth=0))
            arrows.append((id, relation.name))
            depth = 1
        else:
            arrows += [(name, relation.name) for name in dict.fromkeys(origin.inputs)]
            depth = 1 + max(depths[name] for name in origin.inputs)
        depths[relation.name] = depth
        nodes.append(_rows(relation, depth))
    for output in plan.outputs:
        id = f"output {output.name}"
        nodes.append(_output(id, output, 1 + depths[output.relation]))
        arrows.append((output.relation, id))
    return Picture(tuple(nodes), tuple(arrows))


def _source(id: str, source: Source, depth: int) -> Node:
    title = ", ".join(source.topics) or source.pattern or source.kind
    return Node(id, "source", title, (Step(f"from {source.start}"),), depth, _line(source.where))


def _rows(relation: Relation, depth: int) -> Node:
    steps = [*_origin(relation), *_operators(relation.operators)]
    if relation.event_time is not None:
        time = relation.event_time
        steps.append(Step(f"time: {time.of}, at most {time.late} late", _line(time.where)))
    if relation.aggregate is not None:
        steps.append(_aggregate(relation.aggregate))
    kind: BoxKind = "table" if relation.rows is not RowKind.STREAM else "rows"
    title = relation.name if relation.named else "steps"
    return Node(relation.name, kind, title, tuple(steps), depth, _line(relation.at()))


def _origin(relation: Relation) -> Iterator[Step]:
    origin = relation.origin
    if isinstance(origin, Join):
        on = ", ".join(left if left == right else f"{left} = {right}" for left, right in origin.on.items())
        yield Step(f"{origin.kind} join of {origin.left} and {origin.right} by {on}")
    elif isinstance(origin, Union):
        yield Step(f"rows of {' and '.join(origin.relations)}")


def _operators(operators: tuple[Operator, ...]) -> Iterator[Step]:
    for operator in operators:
        yield Step(operator.label.rpartition(": ")[2] or operator.kind, _line(operator.where))


def _aggregate(aggregate: Aggregate) -> Step:
    names = ", ".join(aggregate.compute)
    groups = ", ".join(aggregate.groups)
    return Step(f"aggregate {names}" + (f" by {groups}" if groups else ""), _line(aggregate.where))


def _output(id: str, output: Output, depth: int) -> Node:
    steps = [*_operators(output.operators)]
    if output.aggregate is not None:
        steps.append(_aggregate(output.aggregate))
    if output.key is not None:
        steps.append(Step(f"key: {output.key.text}"))
    if output.route is not None:
        steps.append(Step(f"topic by {output.route.by.text}"))
    kind = "topic" if output.target is None else output.target.kind
    return Node(
        id, "output", f"{kind} {output.topic or output.name}", tuple(steps), depth, _line(output.at())
    )


def _line(where: str) -> int | None:
    lines = LINE.findall(where)
    return int(lines[-1]) if lines else None
