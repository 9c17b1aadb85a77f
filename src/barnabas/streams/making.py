"""The nodes of joins, aggregates, windows and user code. Each function adds nodes and returns the last one's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.streams.dividing import stages_of
from barnabas.streams.errors import StreamsError
from barnabas.streams.functions import joiner, of_pair
from barnabas.streams.graph import Graph
from barnabas.streams.running import flows, foreign, tables
from barnabas.streams.running.joins import TableJoin, TableSide
from barnabas.streams.running.processors import Process
from barnabas.streams.running.sliding import SlidingAggregate
from barnabas.streams.running.stream_joins import StreamSide
from barnabas.streams.running.suppress import Suppress
from barnabas.streams.running.windows import SessionAggregate, WindowedAggregate
from barnabas.streams.windows import Suppressed, Windows

Add = Callable[[Any, Any, Any], Any]


def zero() -> int:
    """The count of no records."""
    return 0


def one_more(key: Any, value: Any, count: int) -> int:
    """A count with one record more."""
    return count + 1


def one_less(key: Any, value: Any, count: int) -> int:
    """A count with one record less."""
    return count - 1


def both(key: Any, one: int, other: int) -> int:
    """The count of two sessions."""
    return one + other


class Tagged:
    """Marks a value with the number of its stream; None stays None."""

    def __init__(self, number: str) -> None:
        self.number = number

    def __call__(self, key: Any, value: Any) -> Any:
        return None if value is None else [self.number, value]


def stored(graph: Graph, kind: str, name: str | None, make: Callable[[str, str], Any], *parents: str) -> str:
    """A node with a store that can be queried. make: of the node's name and the store's."""
    own = graph.name(kind)
    store = graph.store(name, f"{own}-STATE-STORE")
    graph.add(make(own, store), *parents)
    graph.queryable[store] = own
    return own


def windowed(own: str, store: str, windows: Windows, init: Any, add: Add, merge: Any, *, final: bool) -> Any:
    """The node of an aggregate in windows."""
    common: dict[str, Any] = {"stores": (store,), "store": store, "init": init, "add": add}
    common["grace_ms"] = windows.grace_ms
    if windows.kind == "sliding":
        if final:
            raise StreamsError("sliding windows have no on_window_close: use suppress(until_window_closes())")
        return SlidingAggregate(own, **common, difference_ms=windows.size_ms)
    common["final"] = final
    if windows.kind == "session":
        return SessionAggregate(own, **common, merge=merge, gap_ms=windows.size_ms)
    return WindowedAggregate(
        own,
        **common,
        size_ms=windows.size_ms,
        advance_ms=windows.advance_ms,
        unlimited_from=windows.start_ms if windows.kind == "unlimited" else None,
    )


def with_old(graph: Graph, name: str) -> None:
    """Makes a table send old values with its changes."""
    node = graph.nodes[name]
    assert isinstance(node, tables.TableNode)
    node.needs_old(graph.nodes)


def moved(graph: Graph, name: str) -> str:
    """What a node makes, in the tasks of a later stage."""
    hop = graph.add(flows.Repartition(graph.name("KSTREAM-REPARTITION")), name)
    if not isinstance(graph.nodes[name], tables.TableNode):
        return hop
    own = graph.name("KTABLE-MIRROR")
    store = graph.store(None, f"{own}-STATE-STORE")
    return graph.add(tables.Mirror(own, stores=(store,), store=store, of=name), hop)


def together(graph: Graph, one: str, other: str) -> tuple[str, str]:
    """Two nodes that can work in one task: themselves, or where that would send records back, what they make in a later
    stage."""
    if stages_of(graph.nodes, {}, [(one, other)]) is not None:
        return one, other
    return moved(graph, one), moved(graph, other)


def looked_up(graph: Graph, one: str, *others: str) -> tuple[str, str]:
    """A node and a table that it joins, which is noted."""
    for name in others:
        node = graph.nodes[name]
        assert isinstance(node, tables.TableNode)
        node.is_looked_up(graph.nodes)
    return one, others[-1]


def joined_streams(
    graph: Graph,
    left: str,
    right: str,
    call: Any,
    keeps_left: bool,
    keeps_right: bool,
    spans: tuple[int, ...],
) -> str:
    """A join of streams. spans: how much older and younger a partner may be, and the grace, in milliseconds."""
    before, after, grace = spans
    left, right = together(graph, left, right)
    shared = graph.name("KSTREAM-OUTERSHARED" if keeps_left else "KSTREAM-JOINSHARED")
    kind = "KSTREAM-OUTEROTHER" if keeps_right else "KSTREAM-JOIN"
    names = [graph.name(kind), graph.name(kind)]
    merged = flows.Pass(graph.name("KSTREAM-MERGE"))
    for number, (stream, keeps) in enumerate(((left, keeps_left), (right, keeps_right))):
        is_left = number == 0
        side = StreamSide(
            names[number],
            stores=(shared,),
            store=f"{names[number]}-store",
            other=f"{names[1 - number]}-store",
            shared=shared,
            is_left=is_left,
            before_ms=before if is_left else after,
            after_ms=after if is_left else before,
            grace_ms=grace,
            keeps=keeps,
            either=keeps_left or keeps_right,
            join=call,
        )
        graph.add(side, stream)
    return graph.add(merged, *names)


def joined_tables(
    graph: Graph, left: str, right: str, join: Any, name: str | None, *, keeps_left: bool, keeps_right: bool
) -> str:
    """A join of tables by their keys."""
    call = joiner(join, "join")
    left, right = together(graph, left, right)
    looked_up(graph, left, left, right)
    if keeps_left:
        with_old(graph, left)
    if keeps_right:
        with_old(graph, right)
    sides = [graph.name("KTABLE-JOINTHIS"), graph.name("KTABLE-JOINOTHER")]
    own = graph.name("KTABLE-MERGE")
    store = "" if name is None else graph.store(name, name)
    result = TableJoin(
        own,
        reads=(left, right),
        stores=(store,) if store else (),
        store=store,
        join=call,
        keeps_left=keeps_left,
        keeps_right=keeps_right,
    )
    pairs = ((left, right, keeps_left, keeps_right), (right, left, keeps_right, keeps_left))
    for number, (mine, theirs, keeps_mine, keeps_theirs) in enumerate(pairs):
        side = TableSide(
            sides[number],
            reads=(mine, theirs),
            other=theirs,
            result=own,
            is_left=number == 0,
            mine=keeps_mine,
            theirs=keeps_theirs,
        )
        graph.add(side, mine)
    graph.add(result, *sides)
    if store:
        graph.queryable[store] = own
    return own


def joined_by_foreign_key(
    graph: Graph, table: str, other: str, join: Any, on: Any, name: str | None, *, left: bool
) -> str:
    """A join of tables, the right one's rows by a key that the left one's rows have."""
    call = joiner(join, "join")
    with_old(graph, table)
    own = graph.name("KTABLE-FK-JOIN-OUTPUT")
    there = graph.store(None, f"{own}-LEFT-STATE-STORE")
    # Before the question: what is asked has to be there when the answer comes.
    move = flows.Repartition(graph.name("KTABLE-FK-JOIN-LEFT"))
    graph.add(move, table)
    latest = foreign.Latest(graph.name("KTABLE-FK-JOIN-LEFT"), stores=(there,), store=there)
    graph.add(latest, move.name)
    looked_up(graph, table, table, other)
    with_old(graph, other)  # the right table, too, so that changes of nothing are left out
    there_too = moved(graph, other)
    ask = foreign.Ask(
        graph.name("KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION"), call=of_pair(on, "on"), left=left
    )
    graph.add(ask, table)
    answers = graph.name("KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR")
    asked = graph.store(None, f"{answers}-STATE-STORE")
    answer = foreign.Answer(answers, reads=(there_too,), stores=(asked,), store=asked)
    graph.add(answer, ask.name, there_too)
    store = graph.store(name, f"{own}-STATE-STORE")
    result = foreign.ForeignJoin(own, stores=(store, there), store=store, of=there, join=call, left=left)
    graph.add(result, answers)
    if name is not None:
        graph.queryable[store] = own
    return own


def suppressed(graph: Graph, table: str, how: Suppressed) -> str:
    """Changes of a table that are held back."""
    if not isinstance(how, Suppressed):
        raise StreamsError("suppress needs until_window_closes() or until_time_limit('1 minute')")
    with_old(graph, table)
    own = graph.name("KTABLE-SUPPRESS")
    store = graph.store(None, f"{own}-store")
    wait = grace_of(graph, table) if how.wait_ms is None else how.wait_ms
    node = Suppress(
        own,
        reads=(table,),
        stores=(store,),
        store=store,
        wait_ms=wait,
        final=how.wait_ms is None,
        records_max=how.records_max,
        strict=how.strict,
    )
    graph.add(node, table)
    return own


def grace_of(graph: Graph, table: str) -> int:
    """How long after its end a window of a table still takes records, in milliseconds. Raises StreamsError."""
    node: Any = graph.nodes[table]
    while isinstance(node, tables.TableWork):
        node = graph.nodes[node.reads[0]]
    if isinstance(node, SessionAggregate):
        return node.grace_ms + node.gap_ms
    if isinstance(node, SlidingAggregate):
        return node.grace_ms
    if isinstance(node, WindowedAggregate) and node.unlimited_from is None:
        return node.grace_ms
    raise StreamsError("until_window_closes is for results of windows that end: use until_time_limit")


def processing(
    graph: Graph, code: Any, stores: Any, wall_clock: bool, *, fixed: bool
) -> tuple[list[str], Callable[[str], Process]]:
    """The stores of a step of user code, and what makes its node. Raises StreamsError."""
    if not callable(code):
        raise StreamsError(f"process needs a class with a method process(self, record), not {code!r:.60}")
    names = [stores] if isinstance(stores, str) else list(stores)
    missing = [name for name in names if name not in graph.specs]
    if missing:
        raise StreamsError(f"there is no store {missing[0]!r}: declare it with builder.add_state_store(...)")
    specs = tuple(graph.specs[name] for name in names)
    by_clock = wall_clock or any(spec.ttl_ms is not None for spec in specs)

    def make(name: str) -> Process:
        for spec in specs:
            graph.queryable.setdefault(spec.name, name)
        return Process(name, stores=tuple(names), code=code, specs=specs, fixed=fixed, by_clock=by_clock)

    return names, make
