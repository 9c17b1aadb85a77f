"""What Spark cannot run, or only with state that grows for ever: refused before anything starts, with the line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.plan.aggregates import divided
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.operators import Explode
from barnabas.pipelines.plan.relations import Aggregate, Join, Relation, Union

if TYPE_CHECKING:
    from typing import Protocol

    from barnabas.pipelines.plan.outputs import Output

    class Plan(Protocol):
        """What a check asks a plan (graph.py)."""

        def __getitem__(self, name: str) -> Relation: ...
        def is_table(self, name: str) -> bool: ...
        def aggregates_table(self, relation: Relation) -> bool: ...
        def joins_streams(self, name: str) -> bool: ...
        def has_event_time(self, name: str) -> bool: ...
        def has_time_before_aggregate(self, relation: Relation) -> bool: ...


def check_relation(plan: Plan, relation: Relation) -> None:
    """Raises PipelineError for a relation that Spark cannot run, or only with state that grows for ever."""

    def fail(message: str, entry: str = "origin") -> None:
        raise PipelineError(f"{relation.at(entry)}: {relation.name}: {message}")

    origin = relation.origin
    if isinstance(origin, Union):
        if table := next((name for name in origin.relations if plan.is_table(name)), None):
            fail(f"{table} is a table, and a union is made of streams")
    elif isinstance(origin, Join):
        _check_join(plan, relation, origin)
    if plan.aggregates_table(relation):
        if relation.event_time is not None:
            fail("a table has no event time: it is the newest record of each key", "time")
        if relation.aggregate is not None and relation.aggregate.emit == "final":
            fail("a table changes for ever: its aggregate needs emit: changes", "aggregate")
        if stateful := next((operator for operator in relation.operators if operator.stateful), None):
            raise PipelineError(
                f"{stateful.where}: {relation.name}: step {stateful.label}: not for a table, which has one row per key"
            )
    if relation.event_time is not None and plan.joins_streams(relation.name):
        fail("declare the event time before a join or an aggregate, in its inputs", "time")
    if relation.aggregate is not None:
        _check_aggregate(plan, relation)


def _check_join(plan: Plan, relation: Relation, join: Join) -> None:
    where, name = relation.at("origin"), relation.name
    if plan.is_table(join.left) and not plan.is_table(join.right):
        raise PipelineError(
            f"{where}: {name}: {join.left} is a table: name the stream as left and the table as right"
        )
    if join.as_of and (plan.is_table(join.left) or not plan.is_table(join.right)):
        raise PipelineError(
            f"{relation.at('as_of')}: {name}: as_of is for a stream (left) with a table (right)"
        )
    if plan.is_table(join.right):
        if join.within is not None:
            raise PipelineError(
                f"{relation.at('within')}: {name}: within is for two streams; of table {join.right} every row is kept"
            )
        if plan.is_table(join.left):
            return
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
    if aggregate.emit == "changes":
        _check_table_of_groups(plan, relation, aggregate)
    elif aggregate.window is None:
        raise PipelineError(
            f"{where}: {relation.name}: emit: final needs a window: groups without one are never final"
        )
    elif aggregate.late is None and not plan.has_time_before_aggregate(relation):
        raise PipelineError(
            f"{where}: {relation.name}: an aggregate of a relation needs late, or an event time in what it reads, to "
            "know when a window is over; or emit: changes, which makes a table of it"
        )


def _check_table_of_groups(plan: Plan, relation: Relation, aggregate: Aggregate) -> None:
    """An aggregate whose results replace each other."""

    def fail(message: str) -> None:
        raise PipelineError(f"{relation.at('aggregate')}: {relation.name}: {message}")

    window = aggregate.window
    if window is not None and window.gap is not None:
        fail("sessions need emit: final: until a session is over, its end may still change")
    if window is not None and window.of is None and not plan.has_time_before_aggregate(relation):
        fail("the window needs `of`, a field with a time: its input has no event time")
    if aggregate.late is not None:
        fail("late needs emit: final: with emit: changes a window is never over")
    for name, expression in aggregate.compute.items():
        try:
            divided(expression.text)
        except ValueError as error:
            raise PipelineError(
                f"{expression.where or relation.at('aggregate')}: {relation.name}: {name}: {expression.text!r}: {error}"
            ) from None


def check_output(plan: Plan, output: Output) -> None:
    """Raises PipelineError for an output that does not fit its relation."""
    aggregate = output.aggregate
    stateful = next((operator for operator in output.operators if operator.stateful), None)
    if stateful is not None and plan.is_table(output.relation):
        raise PipelineError(
            f"{stateful.where}: step {stateful.label}: not for a table, which has one row per key"
        )
    relation = plan[output.relation]
    for step in (*output.operators, *(relation.operators if relation.aggregate is None else ())):
        if isinstance(step, Explode) and plan.is_table(output.relation):
            raise PipelineError(
                f"{step.where}: step {step.label}: not for a table: its rows would have the same key"
            )
    if aggregate is None:
        return

    def fail(message: str) -> None:
        raise PipelineError(f"{output.at('aggregate')}: {message}")

    window = aggregate.window
    if window is not None and window.of is None and not plan.has_event_time(output.relation):
        fail("the window needs `of`, a field with a time: its input has no event time")
    if aggregate.emit == "final":
        if window is None:
            fail("emit: final needs a window: groups without one are never final")
        elif window.of is None and aggregate.late is not None:
            fail("late is for a window with `of`: an event time has its own entry late")
        elif window.of is not None and aggregate.late is None:
            fail("emit: final needs late: how late a record may come before a window is final")
    elif aggregate.takes_back and window is not None and window.of is not None and aggregate.late is None:
        fail("sessions need late: how late a record may come before a session is over")
    elif plan.joins_streams(output.relation):
        fail(
            f"{output.relation} joins streams or has an aggregate: an aggregate of it needs emit: final and a "
            "window, because its results can only be written once"
        )
