"""Reads the entries `sources` and `relations` of a pipeline file as relations of a plan.

sources:
  orders:
    topic: orders
    steps: [parse: {json: {id: int, customer: string, at: timestamp}}]
    time: {of: at, late: 10 minutes}
  payments: {topic: payments, steps: [...], time: {of: at, late: 10 minutes}}
  customers: {table: customers, steps: [...]}          # a compacted topic: the newest record of each key
relations:
  paid:
    join: {left: orders, right: payments, by: {id: order}, within: 1 hour, kind: left, prefix: paid_}
  everything: {union: [orders, returns], steps: [...]}
  hours:
    from: paid
    aggregate: {window: {every: 1 hour, as: hour}, by: [customer], compute: {orders: count(*)}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.pipelines.entries.document import Item
from barnabas.pipelines.entries.shapes import Choice, Duration, Either, Group, Named, Several, Shape, Text
from barnabas.pipelines.fronts.yaml.parts import AGGREGATE, STEP_LIST, read_aggregate, read_name, read_steps
from barnabas.pipelines.kinds.sources import SOURCES
from barnabas.pipelines.plan import (
    Bounds,
    Derived,
    EventTime,
    Join,
    Origin,
    Plan,
    Relation,
    Scan,
    Union,
    operator_of,
    plan_of,
)
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.model import Output, Source

# The entry is `by` and not `on`, because many YAML parsers read an unquoted `on` as true.
RELATION_NAME: Final = Text("the name of a source or a relation")
TIME: Final = Group(
    {
        "of": Text("the field with the time of the event"),
        "late": Duration("how late a record may come and still count"),
    },
    "the event time",
    required=("of", "late"),
)
WORK: Final[Mapping[str, Shape]] = {"steps": STEP_LIST, "time": TIME}
SOURCE: Final = Group(
    {**{name: shape for kind in SOURCES.values() for name, shape in kind.shape.entries.items()}, **WORK},
    "what is read",
    one_of=tuple(name for kind in SOURCES.values() for name in kind.given),
)
JOIN: Final = Group(
    {
        "left": RELATION_NAME,
        "right": RELATION_NAME,
        "by": Either(
            (
                Several(Text("a field that both sides have"), least=1),
                Named(Text("a field of the right side"), least=1),
            ),
            "fields that are equal: names, or fields of the left side and of the right",
        ),
        "within": Either(
            (
                Duration("how far apart the times of both sides may be"),
                Group({"before": Duration(), "after": Duration()}, required=("before", "after")),
            ),
            "how much earlier and later than the left side the right side may be; required if both are streams",
        ),
        "kind": Choice(
            ("inner", "left", "right", "full"), "which rows without a partner are kept; default inner: none"
        ),
        "prefix": Text("put before the names of the right side's fields"),
    },
    "pairs of rows",
    required=("left", "right", "by"),
)
RELATION: Final = Group(
    {
        "from": RELATION_NAME,
        "union": Several(RELATION_NAME, "the rows of all of these", least=2),
        "join": JOIN,
        **WORK,
        "aggregate": AGGREGATE,
    },
    "rows that are made from other rows",
    one_of=("from", "union", "join"),
)
SOURCES_SHAPE: Final = Named(SOURCE, "several sources, by name", least=1)
RELATIONS_SHAPE: Final = Named(RELATION, "relations that are made from the sources, by name")


def read_relations(sources: Item, relations: Item | None) -> tuple[Relation, ...]:
    """Sources and relations, each after those it reads. Raises PipelineError with the line of the mistake."""
    found = []
    for name, item in sources.mapping().items():
        found.append(_source(_named(name, item), item))
    taken = {relation.name for relation in found}
    for name, item in ({} if relations is None else relations.mapping()).items():
        if name in taken:
            item.fail(f"there is also a source {name!r}: use another name")
        found.append(_relation(_named(name, item), item))
    if not found:
        sources.fail("sources is empty: a pipeline reads at least one")
    return tuple(plan_of(found).relations.values())


def _named(name: str, item: Item) -> str:
    return read_name(Item(name, item.where, f"the name of {item.what}"))


def _source(name: str, item: Item) -> Relation:
    found = SOURCE.open(item)
    kind = next(kind for kind in SOURCES.values() if any(entry in found for entry in kind.given))
    own = {entry: value for entry, value in found.items() if entry not in WORK}
    for entry, value in own.items():
        if entry not in kind.shape.entries:
            value.fail(f"{entry} is not allowed for {kind.name}: {kind.doc}")
    source: Source = kind.check(item, own)
    return Relation(name, Scan(source, kind.table), **_work(name, item, found))  # type: ignore[arg-type]


def _work(name: str, item: Item, found: Mapping[str, Item]) -> dict[str, object]:
    """Steps, event time and aggregate."""
    time = found["time"].mapping() if "time" in found else None
    return {
        "operators": tuple(operator_of(step) for step in read_steps(found["steps"], name))
        if "steps" in found
        else (),
        "event_time": None
        if time is None
        else EventTime(time["of"].text(), time["late"].text(), found["time"].where),
        "aggregate": read_aggregate(found["aggregate"]) if "aggregate" in found else None,
        "where": {
            "": item.where,
            "origin": item.where,
            **{entry: value.where for entry, value in found.items()},
        },
    }


def _relation(name: str, item: Item) -> Relation:
    found = RELATION.open(item)
    work = _work(name, item, found)
    origin: Origin
    where: dict[str, str] = work["where"]  # type: ignore[assignment]
    if "from" in found:
        origin = Derived(found["from"].text())
        where["origin"] = found["from"].where
    elif "union" in found:
        names = found["union"].texts()
        if len(names) < 2:
            found["union"].fail(f"{found['union'].what} needs two relations or more")
        origin = Union(names)
        where["origin"] = found["union"].where
    else:
        origin = _join(found["join"])
        entries = found["join"].mapping()
        where |= {"origin": found["join"].where, **{entry: value.where for entry, value in entries.items()}}
    return Relation(name, origin, **work)  # type: ignore[arg-type]


def _join(item: Item) -> Join:
    found = item.mapping()
    by = found["by"]
    pairs = (
        {ours: theirs.text() for ours, theirs in by.mapping().items()}
        if isinstance(by.value, dict)
        else {name: name for name in by.texts()}
    )
    if not pairs:
        by.fail(f"{by.what} is empty: name at least one field")
    within = None
    if "within" in found:
        entry = found["within"]
        if isinstance(entry.value, dict):
            ends = entry.mapping()
            within = Bounds(ends["before"].text(), ends["after"].text())
        else:
            within = Bounds(entry.text(), entry.text())
    return Join(
        found["left"].text(),
        found["right"].text(),
        pairs,
        found["kind"].text() if "kind" in found else "inner",
        within,
        found["prefix"].text() if "prefix" in found else "",
    )


def check_outputs(plan: Plan, outputs: tuple[Output, ...], items: list[Item]) -> None:
    """Raises PipelineError for outputs that do not fit their relation, and for relations that nothing reads."""
    for output, item in zip(outputs, items, strict=True):
        if plan.is_table(output.relation):
            item.fail(f"{output.relation} is a table: join a stream with it, and write the result")
        aggregate = output.aggregate
        if aggregate is None:
            continue
        where = item.mapping().get("aggregate", item)
        timed = plan.has_event_time(output.relation)
        if aggregate.window is not None and aggregate.window.of is None and not timed:
            where.fail("the window needs `of`, a field with a time: its input has no event time")
        if aggregate.emit == "final":
            if aggregate.window is None:
                where.fail("emit: final needs a window: groups without one are never final")
            if aggregate.window.of is None and aggregate.late is not None:
                where.fail("late is for a window with `of`: an event time has its own entry late")
            if aggregate.window.of is not None and aggregate.late is None:
                where.fail("emit: final needs late: how late a record may come before a window is final")
        elif aggregate.window is not None and aggregate.window.gap is not None:
            where.fail("sessions need emit: final: until a session is over, its end may still change")
        elif plan.joins_streams(output.relation):
            where.fail(
                f"{output.relation} joins streams or has an aggregate: an aggregate of it needs emit: final and a "
                "window, because its results can only be written once"
            )
    unread = [name for name in plan.leaves if name not in {output.relation for output in outputs}]
    if unread:
        place = plan[unread[0]].at()
        raise PipelineError(f"{place}: nothing reads {unread[0]}: name it in an output's from, or remove it")
