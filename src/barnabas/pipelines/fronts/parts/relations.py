"""Reads the entries `sources` and `relations` of a pipeline as relations of a plan.

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
  totals:
    from: paid
    aggregate: {by: [customer], compute: {orders: count(*)}}
    changelog: totals                                  # a compacted topic from which the table is rebuilt
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.pipelines.entries.document import Item, duration_seconds
from barnabas.pipelines.entries.shapes import (
    Choice,
    Duration,
    Either,
    EntryShape,
    Group,
    Named,
    Several,
    Text,
)
from barnabas.pipelines.fronts.parts.common import AGGREGATE, STEP_LIST, read_aggregate, read_name, read_steps
from barnabas.pipelines.kinds.sources import SOURCES
from barnabas.pipelines.kinds.sources.topics import topic_name
from barnabas.pipelines.plan.operators import Operator
from barnabas.pipelines.plan.relations import (
    Aggregate,
    Bounds,
    Derived,
    EventTime,
    Join,
    Origin,
    Relation,
    Scan,
    Union,
)

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
WORK: Final[Mapping[str, EntryShape]] = {"steps": STEP_LIST, "time": TIME}
SOURCE: Final = Group(
    {**{name: shape for kind in SOURCES.values() for name, shape in kind.shape.entries.items()}, **WORK},
    "what is read",
    one_of=tuple(name for kind in SOURCES.values() for name in kind.marks),
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
        "as_of": Text(
            "of a stream with a table: the field with the time as of which it is joined; default: now"
        ),
        "history": Duration("how long earlier rows of the table are kept for as_of"),
    },
    "pairs of rows",
    required=("left", "right", "by"),
    needs={"history": "as_of", "as_of": "history"},
)
RELATION: Final = Group(
    {
        "from": RELATION_NAME,
        "union": Several(RELATION_NAME, "the rows of all of these", least=2),
        "join": JOIN,
        **WORK,
        "aggregate": AGGREGATE,
        "changelog": Text("a compacted topic for the rows of this table, from which it is rebuilt"),
    },
    "rows that are made from other rows",
    one_of=("from", "union", "join"),
)
SOURCES_SHAPE: Final = Named(SOURCE, "several sources, by name", least=1)
RELATIONS_SHAPE: Final = Named(RELATION, "relations that are made from the sources, by name")


def read_relations(sources: Mapping[str, Item], relations: Mapping[str, Item]) -> tuple[Relation, ...]:
    """Sources and relations. Raises PipelineError with the line of the mistake."""
    relations_read = [_source(_named(name, item), item) for name, item in sources.items()]
    for name, item in relations.items():
        if name in sources:
            item.fail(f"there is also a source {name!r}: use another name")
        relations_read.append(_relation(_named(name, item), item))
    return tuple(relations_read)


def _named(name: str, item: Item) -> str:
    return read_name(Item(name, item.where, f"the name of {item.what}"))


def _source(name: str, item: Item) -> Relation:
    entries = SOURCE.open(item)
    kind = next(kind for kind in SOURCES.values() if any(entry in entries for entry in kind.marks))
    own = {entry: value for entry, value in entries.items() if entry not in WORK}
    for entry, value in own.items():
        if entry not in kind.shape.entries:
            value.fail(f"{entry} is not allowed for {kind.name}: {kind.doc}")
    return _read_relation(name, item, Scan(kind.check(item, own), kind.table), entries, {})


def _read_relation(
    name: str, item: Item, origin: Origin, entries: Mapping[str, Item], places: Mapping[str, str]
) -> Relation:
    """A relation with the steps, event time and aggregate among its entries."""
    operators: tuple[Operator, ...] = read_steps(entries["steps"], name) if "steps" in entries else ()
    time: EventTime | None = None
    if "time" in entries:
        entry = entries["time"].mapping()
        time = EventTime(entry["of"].text(), entry["late"].text(), entries["time"].where)
    aggregate: Aggregate | None = read_aggregate(entries["aggregate"]) if "aggregate" in entries else None
    where = {"": item.where, "origin": item.where, **{entry: value.where for entry, value in entries.items()}}
    changelog = topic_name(entries["changelog"]) if "changelog" in entries else ""
    return Relation(name, origin, operators, time, aggregate, {**where, **places}, changelog=changelog)


def _relation(name: str, item: Item) -> Relation:
    parts = RELATION.open(item)
    if "from" in parts:
        origin: Origin = Derived(parts["from"].text())
        return _read_relation(name, item, origin, parts, {"origin": parts["from"].where})
    if "union" in parts:
        names = parts["union"].texts()
        if len(names) < 2:
            parts["union"].fail(f"{parts['union'].what} needs two relations or more")
        return _read_relation(name, item, Union(names), parts, {"origin": parts["union"].where})
    entries = {entry: value.where for entry, value in parts["join"].mapping().items()}
    return _read_relation(name, item, _join(parts["join"]), parts, {"origin": parts["join"].where, **entries})


def _join(item: Item) -> Join:
    entries = item.mapping()
    by = entries["by"]
    pairs = (
        {ours: theirs.text() for ours, theirs in by.mapping().items()}
        if isinstance(by.value, dict)
        else {name: name for name in by.texts()}
    )
    if not pairs:
        by.fail(f"{by.what} is empty: name at least one field")
    within = None
    if "within" in entries:
        entry = entries["within"]
        if isinstance(entry.value, dict):
            ends = entry.mapping()
            within = Bounds(ends["before"].text(), ends["after"].text())
        else:
            within = Bounds(entry.text(), entry.text())
    return Join(
        entries["left"].text(),
        entries["right"].text(),
        pairs,
        entries["kind"].text() if "kind" in entries else "inner",
        within,
        entries["prefix"].text() if "prefix" in entries else "",
        entries["as_of"].text() if "as_of" in entries else "",
        duration_seconds(entries["history"].text()) if "history" in entries else 0.0,
    )
