"""State that grows without a bound: named when a pipeline is checked, because it is found out only after weeks otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.pipelines.plan.aggregates import divided
from barnabas.pipelines.plan.graph import Plan
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.processing import Process
from barnabas.pipelines.plan.relations import Aggregate


def growing_state(plan: Plan) -> dict[str, str]:
    """By the id of an operator, what it keeps for ever. State that a table's topic bounds, by its keys, is not named."""
    growth_by_id: dict[str, str] = {}
    operators = [operator for relation in plan.relations.values() for operator in relation.operators]
    operators += [operator for output in plan.outputs for operator in output.operators]
    growth_by_id.update(_of_user_code(operators))
    for relation in plan.relations.values():
        aggregate = relation.aggregate
        if aggregate is not None and plan.is_table(relation.name) and not plan.aggregates_table(relation):
            growth_by_id[aggregate.id] = _sentence(aggregate, [*_groups(aggregate), *_values(aggregate)])
    for output in plan.outputs:
        aggregate = output.aggregate
        if aggregate is not None and (aggregate.window is None or aggregate.late is None):
            timed = aggregate.window is not None and aggregate.window.of is None
            if not timed:
                growth_by_id[aggregate.id] = _sentence(aggregate, list(_groups(aggregate)))
    return {id: growth for id, growth in growth_by_id.items() if growth}


def _of_user_code(operators: Iterable[Operator]) -> Iterator[tuple[str, str]]:
    """States without a TTL in steps without timers, which may remove theirs."""
    for step in operators:
        if isinstance(step, Process) and step.windows is None and step.time == "none" and not step.of_app:
            kept = [name for name, state in step.states.items() if state.ttl_ms is None]
            if kept:
                yield step.id, f"keeps {' and '.join(kept)} for each key until the code removes it"


def _sentence(aggregate: Aggregate, kept: list[str]) -> str:
    return f"keeps {' and '.join(kept)} for ever" if kept else ""


def _groups(aggregate: Aggregate) -> Iterator[str]:
    if aggregate.groups:
        yield f"a result for each {' and '.join(aggregate.groups)}"


def _values(aggregate: Aggregate) -> Iterator[str]:
    for name, expression in aggregate.compute.items():
        if any(call.grows for call in divided(expression.text).calls):
            yield f"every value of {name}"
