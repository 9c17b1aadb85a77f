"""Whether a checkpoint was made with the plan that it is to be continued with.

A query's fingerprint has a digest of all that its rows depend on, of each operator by its id, and, for each operator that
keeps state, of what its state means. What is read from where and delivered how fast belongs to none of them, and neither
do secrets: such fields are marked `ASIDE`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

from barnabas.pipelines.plan.expressions import Expression
from barnabas.pipelines.plan.graph import Plan
from barnabas.pipelines.plan.operators import Deduplicate, Operator
from barnabas.pipelines.plan.outputs import Output
from barnabas.pipelines.plan.pipeline import Query
from barnabas.pipelines.plan.processing import Process
from barnabas.pipelines.plan.relations import Aggregate, Join, Relation, Scan

UNNAMED: Final = frozenset({"id", "label", "output"})
"""Fields of operators that say where they stand, not what they do."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """whole: of the query. parts: of each operator, by id. state: of what each operator with state keeps, by id, in the
    order in which Spark numbers them."""

    whole: str
    parts: Mapping[str, str]
    state: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """As plain data for a note."""
        return {"fingerprint": self.whole, "operators": dict(self.parts), "state": list(self.state.items())}

    @classmethod
    def from_json(cls, note: Mapping[str, Any]) -> Fingerprint:
        """From the data of `to_json`."""
        return cls(note["fingerprint"], note["operators"], dict(note["state"]))

    def other_parts(self, now: Fingerprint) -> list[str]:
        """The ids of the operators that were added, removed or changed."""
        names = dict.fromkeys([*self.parts, *now.parts])
        return [name for name in names if self.parts.get(name) != now.parts.get(name)]

    def other_state(self, now: Fingerprint) -> str | None:
        """What is different about the state that is kept, as the end of a sentence; None if all of it can be used."""
        for name in self.state:
            if name not in now.state:
                return f"{name} kept state, and is not in the pipeline any more"
            if self.state[name] != now.state[name]:
                return f"{name} keeps other state now: its fields, windows or results have changed"
        for name in now.state:
            if name not in self.state:
                return f"{name} keeps state, and was not in the pipeline before"
        if list(self.state) != list(now.state):
            return f"{', '.join(now.state)} kept state in another order"
        return None


def fingerprint(plan: Plan, query: Query) -> Fingerprint:
    """The fingerprint of a query."""
    outputs = () if query.only_dead else query.outputs
    relations = plan.needed(query.relation)
    operators = [
        *(operator for relation in relations for operator in _operators_of(relation)),
        *(operator for output in outputs for operator in _operators_of(output)),
    ]
    if query.only_dead:  # its output has none, or only those whose failed rows it sends
        operators += query.output.operators
    whole = [
        [_plain(relation) for relation in relations],
        [_plain(output) for output in outputs] or [_plain(operator) for operator in query.output.operators],
    ]
    return Fingerprint(
        _digest(whole),
        {operator.id: _digest(_plain(operator)) for operator in operators},
        {name: _digest(kept) for name, kept in _state(plan, query)},
    )


def _operators_of(part: Relation | Output) -> Iterator[Operator]:
    yield from part.operators
    if part.aggregate is not None:
        yield part.aggregate


def _state(plan: Plan, query: Query) -> Iterator[tuple[str, Any]]:
    """Id and meaning of the state of each operator that keeps some. A relation that is read twice keeps it twice, but with
    the same meaning."""
    if query.only_dead and not query.output.operators:
        # Failed rows are taken before the relation's own aggregate.
        yield from _kept_before_aggregate(plan, plan[query.relation])
    else:
        yield from _kept(plan, query.relation)
    for operator in query.output.operators:
        yield from _meaning(operator)
    if query.output.aggregate is not None and not query.only_dead:
        yield from _meaning(query.output.aggregate)


def _kept(plan: Plan, name: str) -> Iterator[tuple[str, Any]]:
    relation = plan[name]
    yield from _kept_before_aggregate(plan, relation)
    if relation.aggregate is not None:
        of_table = plan.aggregates_table(relation)
        for id, meaning in _meaning(relation.aggregate):
            yield id, [*meaning, "table", of_table] if plan.is_table(name) else meaning


def _kept_before_aggregate(plan: Plan, relation: Relation) -> Iterator[tuple[str, Any]]:
    origin = relation.origin
    for above in origin.inputs:
        yield from _kept(plan, above)
    if isinstance(origin, Scan) and origin.table:
        yield f"{relation.name}/table", ["table"]
    if isinstance(origin, Join):
        tables = [plan.is_table(side) for side in origin.inputs]
        yield (
            f"{relation.name}/join",
            [
                "join",
                _plain(origin.on),
                origin.kind,
                *(tables if any(tables) else ()),
                *(["as of"] if origin.as_of else []),
            ],
        )
    for operator in relation.operators:
        yield from _meaning(operator)


def _meaning(operator: Operator) -> Iterator[tuple[str, Any]]:
    """What the state of an operator means. How long it is kept, and what results are called, may change."""
    if isinstance(operator, Deduplicate):
        yield operator.id, ["deduplicate", list(operator.names)]
    elif isinstance(operator, Process):
        kept = [[name, state.kind, state.type, state.key] for name, state in operator.states.items()]
        over = operator.windows
        bounds = [] if over is None else [over.kind, over.length_ms, over.slide_ms]
        yield operator.id, ["process", [key.text for key in operator.key], operator.time, kept, *bounds]
    elif isinstance(operator, Aggregate):
        window = operator.window
        times = None if window is None else [_plain(window.of), window.every, window.slide, window.gap]
        groups = [by.text for by in operator.by]
        changing = ["changes"] if operator.takes_back else []
        yield (
            operator.id,
            ["aggregate", times, groups, [c.text for c in operator.compute.values()], *changing],
        )


def _plain(part: Any) -> Any:
    """A part of a plan as data without places, in an order that does not depend on how it was made."""
    if isinstance(part, Expression):
        return part.text
    if is_dataclass(part) and not isinstance(part, type):
        unnamed = UNNAMED if isinstance(part, Operator) else frozenset()
        values = {
            field.name: _plain(getattr(part, field.name))
            for field in fields(part)
            if field.compare and not field.metadata.get("aside") and field.name not in unnamed
        }
        return [type(part).__name__, values]
    if isinstance(part, Mapping):
        return [[str(name), _plain(value)] for name, value in part.items()]
    if isinstance(part, (list, tuple)):
        return [_plain(value) for value in part]
    return part if part is None or isinstance(part, (bool, int, float, str)) else str(part)


def _digest(part: Any) -> str:
    return hashlib.sha256(json.dumps(part).encode()).hexdigest()[:16]
