"""Streams, tables and groups: what a topology is written with.

Functions get key and value, or only the value if they take one argument.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, TypeVar, overload

from barnabas.streams import making
from barnabas.streams.ahead import IN_FLIGHT, LIBRARIES, Batched
from barnabas.streams.durations import Duration, milliseconds
from barnabas.streams.errors import StreamsError
from barnabas.streams.functions import adder, awaited, is_async, joiner, of_arguments, of_pair, starter
from barnabas.streams.global_tables import GlobalKTable
from barnabas.streams.graph import Graph
from barnabas.streams.records import Windowed
from barnabas.streams.running import flows, tables
from barnabas.streams.running.aggregates import Cogroup, StreamAggregate, TableAggregate
from barnabas.streams.running.joins import StreamTableJoin
from barnabas.streams.running.run import Node
from barnabas.streams.serdes import serde_for
from barnabas.streams.splitting import Split
from barnabas.streams.windows import Suppressed, Windows

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")
X = TypeVar("X")
L = TypeVar("L")
A = TypeVar("A")


class KStream(Generic[K, V]):
    """A stream of records. Functions get key and value, or only the value if they take one argument."""

    def __init__(self, graph: Graph, node: str, *, moved: bool = False) -> None:
        """moved: whether keys may have changed, so that records are not in the tasks of their keys."""
        self._graph, self._node, self._moved = graph, node, moved

    def _then(
        self, kind: str, make: Callable[[str], Node], *, moved: bool | None = None
    ) -> KStream[Any, Any]:
        node = self._graph.add(make(self._graph.name(f"KSTREAM-{kind}")), self._node)
        return KStream(self._graph, node, moved=self._moved if moved is None else moved)

    def _calling(
        self, kind: str, node: type[flows.Calling], call: Any, in_flight: int, *, moved: bool | None = None
    ) -> KStream[Any, Any]:
        """A step that calls a function for each record; an async one for the records of a micro-batch together."""
        what = flows.WORDS[node]
        if not is_async(call):
            plain = of_pair(call, what)
            return self._then(kind, lambda name: node(name, call=plain), moved=moved)
        ahead = awaited(call, what, in_flight)
        return self.repartition()._then(kind, lambda name: node(name, call=ahead), moved=bool(moved))

    # --- record by record ---------------------------------------------------------------------------------

    @overload
    def filter(self, wanted: Callable[[K, V], Any]) -> KStream[K, V]: ...
    @overload
    def filter(self, wanted: Callable[[V], Any]) -> KStream[K, V]: ...
    def filter(self, wanted: Any, *, in_flight: int = IN_FLIGHT) -> KStream[K, V]:
        """The records for which the function is true."""
        return self._calling("FILTER", flows.Filter, wanted, in_flight)

    @overload
    def filter_not(self, unwanted: Callable[[K, V], Any]) -> KStream[K, V]: ...
    @overload
    def filter_not(self, unwanted: Callable[[V], Any]) -> KStream[K, V]: ...
    def filter_not(self, unwanted: Any) -> KStream[K, V]:
        """The records for which the function is false."""
        call = of_pair(unwanted, "filter_not")
        return self._then("FILTER", lambda name: flows.FilterNot(name, call=call))

    @overload
    def map(
        self, make: Callable[[K, V], Coroutine[Any, Any, tuple[L, W]]], *, in_flight: int = ...
    ) -> KStream[L, W]: ...
    @overload
    def map(self, make: Callable[[K, V], tuple[L, W]]) -> KStream[L, W]: ...
    def map(self, make: Any, *, in_flight: int = IN_FLIGHT) -> KStream[Any, Any]:
        """Another key and value for each record: the function returns both. It may be async, see map_values."""
        return self._calling("MAP", flows.Map, make, in_flight, moved=True)

    @overload
    def map_values(
        self, make: Callable[[V], Coroutine[Any, Any, W]], *, in_flight: int = ...
    ) -> KStream[K, W]: ...
    @overload
    def map_values(
        self, make: Callable[[K, V], Coroutine[Any, Any, W]], *, in_flight: int = ...
    ) -> KStream[K, W]: ...
    @overload
    def map_values(self, make: Callable[[V], W]) -> KStream[K, W]: ...
    @overload
    def map_values(self, make: Callable[[K, V], W]) -> KStream[K, W]: ...
    def map_values(self, make: Any, *, in_flight: int = IN_FLIGHT) -> KStream[K, Any]:
        """Another value for each record. An async function is called for many records at the same time, at most `in_flight`;
        for those of one key one after the other. Results keep the order of the records."""
        return self._calling("MAPVALUES", flows.MapValues, make, in_flight)

    def flat_map(
        self, make: Callable[[K, V], Iterable[tuple[L, W]]], *, in_flight: int = IN_FLIGHT
    ) -> KStream[L, W]:
        """Any number of records for each one: the function returns pairs of key and value."""
        return self._calling("FLATMAP", flows.FlatMap, make, in_flight, moved=True)

    @overload
    def flat_map_values(self, make: Callable[[V], Iterable[W]]) -> KStream[K, W]: ...
    @overload
    def flat_map_values(self, make: Callable[[K, V], Iterable[W]]) -> KStream[K, W]: ...
    def flat_map_values(self, make: Any, *, in_flight: int = IN_FLIGHT) -> KStream[K, Any]:
        """Any number of values for each record."""
        return self._calling("FLATMAPVALUES", flows.FlatMapValues, make, in_flight)

    def map_batches(
        self, make: Callable[[Any], Any], *, of: str = "arrow", size: int = 10_000
    ) -> KStream[K, Any]:
        """Other values, made for many records at once. make: a function of a table of the values' fields (or of a column
        `value`) and the keys (`_key`), which returns a table with as many rows, or a column; rows become dicts. of: what the
        table is: `arrow`, `pandas` or `polars`. size: the most records in one table. Records without a value stay as they
        are; if the function raises, only the records for which it does so fail."""
        if of not in LIBRARIES:
            raise StreamsError(f"map_batches takes of={', of='.join(map(repr, LIBRARIES))}, not {of!r}")
        if not callable(make) or size < 1:
            raise StreamsError(
                f"map_batches needs a function and a size of at least 1, not {make!r:.60} and {size}"
            )
        call = Batched(make, of=of, size=size)
        return self.repartition()._then(
            "MAPBATCHES", lambda name: flows.MapValues(name, call=call), moved=False
        )

    def select_key(self, make: Callable[[K, V], L]) -> KStream[L, V]:
        """Another key for each record."""
        call = of_pair(make, "select_key")
        return self._then("KEY-SELECT", lambda name: flows.SelectKey(name, call=call), moved=True)

    def peek(self, call: Callable[..., Any]) -> KStream[K, V]:
        """Calls the function for each record and passes the record on."""
        of_pairs = of_pair(call, "peek")
        return self._then("PEEK", lambda name: flows.Peek(name, call=of_pairs))

    def for_each(self, call: Callable[..., Any]) -> None:
        """Calls the function for each record: where a stream ends."""
        of_pairs = of_pair(call, "for_each")
        self._then("FOREACH", lambda name: flows.ForEach(name, call=of_pairs))

    foreach = for_each

    def merge(self, *others: KStream[K, V]) -> KStream[K, V]:
        """The records of this stream and of others."""
        node = flows.Pass(self._graph.name("KSTREAM-MERGE"))
        name = self._graph.add(node, self._node, *(other._node for other in others))
        return KStream(self._graph, name, moved=self._moved or any(other._moved for other in others))

    def split(self, *wanted: Callable[..., Any], **named: Callable[..., Any]) -> Any:
        """Several streams, each record in the first whose function is true.

        With functions, a list of streams, the last one with the records that no function wanted; with named functions, a
        dict, in which `default` has those; without any, a `Split` to add branches to.
        """
        split = Split(
            self._graph, self._node, lambda name: KStream[K, V](self._graph, name, moved=self._moved)
        )
        if wanted:
            return [*(split.stream(one) for one in wanted), split.rest()]
        if named:
            return {**{name: split.stream(one) for name, one in named.items()}, "default": split.rest()}
        return split

    branch = split

    # --- topics -------------------------------------------------------------------------------------------

    def to(self, topic: str | Callable[..., str], *, key: Any = None, value: Any = None) -> None:
        """Writes the records to a topic, or to the one that a function of key and value names. key, value: serdes, see
        StreamsBuilder; without them text and bytes are written as they are, everything else as JSON."""
        named: Any = topic if isinstance(topic, str) else of_pair(topic, "to")
        if not named:
            raise StreamsError("to(...) needs the name of a topic")
        name = topic if isinstance(topic, str) else ""
        keys, values = serde_for(key, name, "key"), serde_for(value, name, "value")
        self._then("SINK", lambda name: flows.Sink(name, topic=named, key=keys, value=values))

    def through(self, topic: str, *, key: Any = None, value: Any = None) -> KStream[K, V]:
        """Writes the records to a topic, and goes on with the records of this topic."""
        self.to(topic, key=key, value=value)
        read = flows.Source(
            self._graph.name("KSTREAM-SOURCE"),
            topics=(topic,),
            key=serde_for(key, topic, "key"),
            value=serde_for(value, topic, "value"),
        )
        return KStream(self._graph, self._graph.add(read))

    def repartition(self) -> KStream[K, V]:
        """Sends each record to the task of its key. Where it is necessary this is done anyway."""
        return self._then("REPARTITION", flows.Repartition, moved=False)

    def _placed(self) -> KStream[K, V]:
        return self.repartition() if self._moved else self

    def to_table(self, *, name: str | None = None) -> KTable[K, V]:
        """The newest value of each key."""
        own = self._graph.name("KSTREAM-TOTABLE")
        store = self._graph.store(name, f"{own}-STATE-STORE")
        self._graph.add(
            tables.TableSource(own, stores=(store,), store=store, asked=name is not None),
            self._placed()._node,
        )
        self._graph.queryable[store] = own
        return KTable(self._graph, own)

    # --- groups -------------------------------------------------------------------------------------------

    def group_by_key(self) -> GroupedStream[K, V]:
        """The records of each key, to be counted or aggregated."""
        return GroupedStream(self._graph, self._placed()._node)

    @overload
    def group_by(self, key: Callable[[K, V], L]) -> GroupedStream[L, V]: ...
    @overload
    def group_by(self, key: Callable[[V], L]) -> GroupedStream[L, V]: ...
    def group_by(self, key: Any) -> GroupedStream[Any, V]:
        """The records by another key: `group_by(lambda k, v: v)`."""
        return self.select_key(of_pair(key, "group_by")).group_by_key()

    # --- joins --------------------------------------------------------------------------------------------

    def join(
        self,
        other: Any,
        join: Callable[..., W],
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration = 0,
        on: Callable[..., Any] | None = None,
    ) -> KStream[K, W]:
        """Each record with those of another stream, or with the row of a table. join: a function of both values, or of the
        key and both. within: of streams, how far the times of partners may be apart; before, after: the same for older and
        younger partners. on: of a global table, the key to look up, made of key and value."""
        return self._joined(other, join, False, False, within, before, after, grace, on)

    def left_join(
        self,
        other: Any,
        join: Callable[..., W],
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration = 0,
        on: Callable[..., Any] | None = None,
    ) -> KStream[K, W]:
        """As `join`, and records without a partner, with None; of streams, once no partner can come any more."""
        return self._joined(other, join, True, False, within, before, after, grace, on)

    def outer_join(
        self,
        other: KStream[K, X],
        join: Callable[..., W],
        *,
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration = 0,
    ) -> KStream[K, W]:
        """As `left_join`, and records of the other stream without a partner, too."""
        return self._joined(other, join, True, True, within, before, after, grace, None)

    def _joined(
        self,
        other: Any,
        join: Any,
        left: bool,
        right: bool,
        within: Duration | None,
        before: Duration | None,
        after: Duration | None,
        grace: Duration,
        on: Any,
    ) -> KStream[Any, Any]:
        call = joiner(join, "join")
        if isinstance(other, KStream):
            if on is not None:
                raise StreamsError("streams are joined by their keys: use select_key in place of on")
            if within is None and before is None and after is None:
                raise StreamsError("a join of streams needs a span of time, like within='5 minutes'")
            spans = tuple(milliseconds(one) for one in (before or within or 0, after or within or 0, grace))
            nodes = (self._placed()._node, other._placed()._node)
            return KStream(self._graph, making.joined_streams(self._graph, *nodes, call, left, right, spans))
        if right:
            raise StreamsError("a stream and a table have no outer join: use left_join")
        if within is not None or before is not None or after is not None:
            raise StreamsError("within, before and after are for joins of streams")
        if isinstance(other, GlobalKTable):
            if on is None:
                raise StreamsError(
                    "a join with a global table needs on, the key to look up: on=lambda k, v: ..."
                )
            return self._with_table(self, other.copy(), call, left, of_pair(on, "on"))
        if not isinstance(other, KTable):
            raise StreamsError(f"a stream is joined with a stream or a table, not with {other!r:.60}")
        if on is not None:
            raise StreamsError("a table is joined by its key: use select_key, or a global_table with on")
        return self._with_table(self._placed(), other._node, call, left, None)

    def _with_table(
        self, stream: KStream[Any, Any], table: str, call: Any, left: bool, on: Any
    ) -> KStream[Any, Any]:
        kind = "LEFTJOIN" if left else "JOIN"
        node, table = making.looked_up(self._graph, *making.together(self._graph, stream._node, table))
        return KStream[Any, Any](self._graph, node, moved=stream._moved)._then(
            kind, lambda name: StreamTableJoin(name, reads=(table,), join=call, left=left, on=on)
        )

    # --- user code ----------------------------------------------------------------------------------------

    def process(self, code: Any, *, stores: Any = (), wall_clock: bool = False) -> KStream[Any, Any]:
        """Calls a Processor (its class, or a function of record and context) for each record, which forwards what it likes.
        stores: names of declared stores, or pairs. wall_clock: whether it schedules calls by the clock."""
        return self._processed(code, stores, wall_clock, fixed=False)

    def process_values(self, code: Any, *, stores: Any = (), wall_clock: bool = False) -> KStream[K, Any]:
        """As `process`, for code that leaves keys as they are, so that records stay in the tasks of their keys."""
        return self._processed(code, stores, wall_clock, fixed=True)

    def _processed(self, code: Any, stores: Any, wall_clock: bool, *, fixed: bool) -> KStream[Any, Any]:
        names, make = making.processing(self._graph, code, stores, wall_clock, fixed=fixed)
        kind = "PROCESSVALUES" if fixed else "PROCESSOR"
        placed = self._placed() if names else self
        return placed._then(kind, make, moved=placed._moved if fixed else True)


class KTable(Generic[K, V]):
    """A table. Functions get key and value, or only the value if they take one argument. name: of a store that keeps the
    result, so that it can be queried."""

    def __init__(self, graph: Graph, node: str) -> None:
        self._graph, self._node = graph, node

    def _worked(self, kind: str, make: Any, call: Any, name: str | None) -> KTable[Any, Any]:
        own = self._graph.name(f"KTABLE-{kind}")
        store = "" if name is None else self._graph.store(name, name)
        stores = (store,) if store else ()
        node = make(own, reads=(self._node,), stores=stores, store=store, call=call)
        self._graph.add(node, self._node)
        if node.drops_nothing:
            node.offers_old(self._graph.nodes)
        if store:
            self._graph.queryable[store] = own
        return KTable(self._graph, own)

    @overload
    def filter(self, wanted: Callable[[K, V], Any], *, name: str | None = ...) -> KTable[K, V]: ...
    @overload
    def filter(self, wanted: Callable[[V], Any], *, name: str | None = ...) -> KTable[K, V]: ...
    def filter(self, wanted: Any, *, name: str | None = None) -> KTable[K, V]:
        """The rows for which the function is true; others are deleted in the result."""
        return self._worked("FILTER", tables.TableFilter, of_pair(wanted, "filter"), name)

    @overload
    def filter_not(self, unwanted: Callable[[K, V], Any], *, name: str | None = ...) -> KTable[K, V]: ...
    @overload
    def filter_not(self, unwanted: Callable[[V], Any], *, name: str | None = ...) -> KTable[K, V]: ...
    def filter_not(self, unwanted: Any, *, name: str | None = None) -> KTable[K, V]:
        """The rows for which the function is false."""
        return self._worked("FILTER", tables.TableFilterNot, of_pair(unwanted, "filter_not"), name)

    @overload
    def map_values(self, make: Callable[[V], W], *, name: str | None = ...) -> KTable[K, W]: ...
    @overload
    def map_values(self, make: Callable[[K, V], W], *, name: str | None = ...) -> KTable[K, W]: ...
    def map_values(self, make: Any, *, name: str | None = None) -> KTable[K, Any]:
        """Another value for each row."""
        return self._worked("MAPVALUES", tables.TableMap, of_pair(make, "map_values"), name)

    def to_stream(self, key: Callable[..., Any] | None = None) -> KStream[K, V]:
        """The changes as a stream; None stands for a delete. key: makes another key of key and value."""
        call = None if key is None else of_pair(key, "to_stream")
        node = flows.ToStream(self._graph.name("KTABLE-TOSTREAM"), call=call)
        return KStream(self._graph, self._graph.add(node, self._node), moved=key is not None)

    def to(self, topic: str | Callable[..., str], *, key: Any = None, value: Any = None) -> None:
        """Writes the changes to a topic, see KStream.to."""
        self.to_stream().to(topic, key=key, value=value)

    def group_by(self, make: Callable[..., tuple[L, W]]) -> GroupedTable[L, W]:
        """Rows by other keys: the function returns the new key and the value that is aggregated."""
        call = of_pair(make, "group_by")
        making.with_old(self._graph, self._node)
        node = tables.TableRegroup(self._graph.name("KTABLE-SELECT"), call=call)
        return GroupedTable(self._graph, self._graph.add(node, self._node))

    def suppress(self, how: Suppressed) -> KTable[K, V]:
        """Holds changes back: `until_window_closes()` or `until_time_limit("1 minute")`."""
        return KTable(self._graph, making.suppressed(self._graph, self._node, how))

    # --- joins --------------------------------------------------------------------------------------------

    def join(
        self,
        other: KTable[Any, Any],
        join: Callable[..., W],
        *,
        on: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> KTable[K, W]:
        """The rows of both tables with the same key; with `on`, a function of this table's rows, each with the row of the
        other table that has this key. join: a function of both values, or of the key and both."""
        if on is not None:
            return self._foreign(other, join, on, name, left=False)
        return self._joined(other, join, name, False, False)

    def left_join(
        self,
        other: KTable[Any, Any],
        join: Callable[..., W],
        *,
        on: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> KTable[K, W]:
        """As `join`, and the rows of this table that have no partner, with None."""
        if on is not None:
            return self._foreign(other, join, on, name, left=True)
        return self._joined(other, join, name, True, False)

    def outer_join(
        self, other: KTable[Any, Any], join: Callable[..., W], *, name: str | None = None
    ) -> KTable[K, W]:
        """As `join`, and the rows of both tables that have no partner, with None."""
        return self._joined(other, join, name, True, True)

    def _joined(self, other: Any, join: Any, name: str | None, left: bool, right: bool) -> KTable[Any, Any]:
        if not isinstance(other, KTable):
            raise StreamsError(f"a table is joined with a table, not with {other!r:.60}")
        nodes = (self._node, other._node)
        node = making.joined_tables(self._graph, *nodes, join, name, keeps_left=left, keeps_right=right)
        return KTable(self._graph, node)

    def _foreign(self, other: Any, join: Any, on: Any, name: str | None, *, left: bool) -> KTable[Any, Any]:
        if not isinstance(other, KTable):
            raise StreamsError(f"a table is joined with a table, not with {other!r:.60}")
        nodes = (self._node, other._node)
        return KTable(
            self._graph, making.joined_by_foreign_key(self._graph, *nodes, join, on, name, left=left)
        )


class GroupedStream(Generic[K, V]):
    """The records of each key. name: of the store, for queries."""

    def __init__(self, graph: Graph, node: str) -> None:
        self._graph, self._node = graph, node

    def _added(self, init: Any, add: Any, name: str | None) -> KTable[Any, Any]:
        def make(own: str, store: str) -> StreamAggregate:
            return StreamAggregate(own, stores=(store,), store=store, init=init, add=add)

        return KTable(self._graph, making.stored(self._graph, "KSTREAM-AGGREGATE", name, make, self._node))

    def count(self, *, name: str | None = None) -> KTable[K, int]:
        """How many records each key has had."""
        return self._added(making.zero, making.one_more, name)

    def reduce(self, add: Callable[..., V], *, name: str | None = None) -> KTable[K, V]:
        """The values of each key, two and two: `reduce(lambda one, other: one + other)`."""
        return self._added(None, adder(add, "reduce"), name)

    def aggregate(
        self, init: Callable[[], A] | A, add: Callable[..., A], *, name: str | None = None
    ) -> KTable[K, A]:
        """init: the aggregate of no records, or a function that makes it. add: a function of key, value and aggregate, or of
        aggregate and value."""
        return self._added(starter(init), adder(add, "aggregate"), name)

    def windowed_by(self, windows: Windows, *, emit: str = "on_update") -> WindowedStream[K, V]:
        """The records of each key and window. emit: on_update, a result for each record; on_window_close, one for each
        window, once it is over."""
        if not isinstance(windows, Windows):
            raise StreamsError("windowed_by needs windows, like tumbling('5 minutes')")
        if emit not in ("on_update", "on_window_close"):
            raise StreamsError(f"emit is on_update or on_window_close, not {emit!r}")
        return WindowedStream(self._graph, self._node, windows, emit == "on_window_close")

    def cogroup(self, add: Callable[..., A]) -> CogroupedStream[K, A]:
        """Begins an aggregate over several streams. add: of key, value and aggregate, for this stream's records."""
        return CogroupedStream[K, A](self._graph).cogroup(self, add)


class WindowedStream(Generic[K, V]):
    """The records of each key and window."""

    def __init__(self, graph: Graph, node: str, windows: Windows, final: bool) -> None:
        self._graph, self._node, self._windows, self._final = graph, node, windows, final

    def count(self, *, name: str | None = None) -> KTable[Windowed[K], int]:
        """How many records each key has in each window."""
        return self._added(making.zero, making.one_more, making.both, name)

    def reduce(self, add: Callable[..., V], *, name: str | None = None) -> KTable[Windowed[K], V]:
        """The values of each key and window, two and two."""
        call = adder(add, "reduce")
        return self._added(None, call, lambda key, one, other: call(key, other, one), name)

    def aggregate(
        self,
        init: Callable[[], A] | A,
        add: Callable[..., A],
        merge: Callable[..., A] | None = None,
        *,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """As without windows. merge: of sessions, the aggregate of two: a function of both, or of the key and both."""
        if self._windows.kind == "session" and merge is None:
            raise StreamsError("aggregates of sessions need merge, which makes one aggregate of two")
        joined = None if merge is None else of_arguments(merge, ("key", "one", "other"), "merge")
        return self._added(starter(init), adder(add, "aggregate"), joined, name)

    def _added(self, init: Any, add: Any, merge: Any, name: str | None) -> KTable[Any, Any]:
        def make(own: str, store: str) -> Any:
            return making.windowed(own, store, self._windows, init, add, merge, final=self._final)

        return KTable(self._graph, making.stored(self._graph, "KSTREAM-AGGREGATE", name, make, self._node))


class CogroupedStream(Generic[K, A]):
    """Several grouped streams that become one aggregate."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._parts: list[tuple[str, Any]] = []

    def cogroup(self, stream: GroupedStream[K, Any], add: Callable[..., A]) -> CogroupedStream[K, A]:
        """Adds a stream."""
        cogrouped = CogroupedStream[K, A](self._graph)
        cogrouped._parts = [*self._parts, (stream._node, adder(add, "cogroup"))]
        return cogrouped

    def aggregate(self, init: Callable[[], A] | A, *, name: str | None = None) -> KTable[K, A]:
        """The aggregate. init: that of no records, or a function that makes it."""
        graph = self._graph
        adds = {str(number): add for number, (_, add) in enumerate(self._parts)}
        parents = [
            graph.add(
                flows.MapValues(graph.name("COGROUPKSTREAM-PART"), call=making.Tagged(str(number))), node
            )
            for number, (node, _) in enumerate(self._parts)
        ]

        def make(own: str, store: str) -> Cogroup:
            return Cogroup(own, stores=(store,), store=store, init=starter(init), adds=adds)

        return KTable(graph, making.stored(graph, "COGROUPKSTREAM-AGGREGATE", name, make, *parents))


class GroupedTable(Generic[K, V]):
    """The rows of a table by another key. subtract: what undoes `add` for a row that is not in the group any more."""

    def __init__(self, graph: Graph, node: str) -> None:
        self._graph, self._node = graph, node

    def _added(self, init: Any, add: Any, subtract: Any, name: str | None) -> KTable[Any, Any]:
        def make(own: str, store: str) -> TableAggregate:
            return TableAggregate(own, stores=(store,), store=store, init=init, add=add, subtract=subtract)

        return KTable(self._graph, making.stored(self._graph, "KTABLE-AGGREGATE", name, make, self._node))

    def count(self, *, name: str | None = None) -> KTable[K, int]:
        """How many rows each group has."""
        return self._added(making.zero, making.one_more, making.one_less, name)

    def reduce(
        self, add: Callable[..., V], subtract: Callable[..., V], *, name: str | None = None
    ) -> KTable[K, V]:
        """The values of each group, two and two."""
        return self._added(None, adder(add, "reduce"), adder(subtract, "reduce"), name)

    def aggregate(
        self,
        init: Callable[[], A] | A,
        add: Callable[..., A],
        subtract: Callable[..., A],
        *,
        name: str | None = None,
    ) -> KTable[K, A]:
        """As of a stream."""
        return self._added(starter(init), adder(add, "aggregate"), adder(subtract, "aggregate"), name)
