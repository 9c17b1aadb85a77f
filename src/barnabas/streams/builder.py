"""`StreamsBuilder`: where topologies begin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, overload

from barnabas.streams.dsl import KStream, KTable
from barnabas.streams.durations import Duration, milliseconds
from barnabas.streams.errors import StreamsError
from barnabas.streams.global_tables import GlobalKTable
from barnabas.streams.graph import Graph
from barnabas.streams.running.flows import Source
from barnabas.streams.running.stores_of_users import StoreKind, StoreSpec
from barnabas.streams.running.tables import TableSource, VersionedSource
from barnabas.streams.serdes import serde_for
from barnabas.streams.topology import TASKS, Topology, topology_of

K = TypeVar("K")
V = TypeVar("V")


class StreamsBuilder:
    """Makes a topology: streams and tables of topics, and what is made of them.

    key, value: how keys and values are read: a type (`str`, `int`, `dict`, a dataclass, a pydantic model), the name of a
    serde (`"json"`, `"long"`), or a Serde. Without them they are text.
    """

    def __init__(self) -> None:
        self._graph = Graph()

    @overload
    def stream(self, *topics: str, key: type[K], value: type[V]) -> KStream[K, V]: ...
    @overload
    def stream(self, *topics: str, value: type[V]) -> KStream[str, V]: ...
    @overload
    def stream(self, *topics: str) -> KStream[str, str]: ...
    @overload
    def stream(self, *topics: str | Iterable[str], key: Any = ..., value: Any = ...) -> KStream[Any, Any]: ...
    def stream(self, *topics: Any, key: Any = None, value: Any = None) -> KStream[Any, Any]:
        """The records of one or more topics."""
        names = tuple(
            name for topic in topics for name in ([topic] if isinstance(topic, str) else list(topic))
        )
        return KStream(self._graph, self._source("KSTREAM-SOURCE", names, key, value))

    @overload
    def table(self, topic: str, *, key: type[K], value: type[V], name: str | None = ...) -> KTable[K, V]: ...
    @overload
    def table(self, topic: str, *, value: type[V], name: str | None = ...) -> KTable[str, V]: ...
    @overload
    def table(self, topic: str, *, name: str | None = ...) -> KTable[str, str]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key: Any = ...,
        value: Any = ...,
        name: str | None = ...,
        versioned: Duration | None = ...,
    ) -> KTable[Any, Any]: ...
    def table(
        self,
        topic: str,
        *,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
        versioned: Duration | None = None,
    ) -> KTable[Any, Any]:
        """The newest record of each key of a topic; a record without a value deletes. name: of its store, for queries.
        versioned: how long old versions are kept, so that streams are joined with what a row was at a record's time."""
        source = self._source("KSTREAM-SOURCE", (topic,), key, value)
        own = self._graph.name("KTABLE-SOURCE")
        store = self._graph.store(name, f"{topic}-STATE-STORE")
        if versioned is not None:
            node: Any = VersionedSource(own, stores=(store,), store=store, history_ms=milliseconds(versioned))
        else:
            node = TableSource(own, stores=(store,), store=store, asked=name is not None)
        self._graph.add(node, source)
        self._graph.queryable[store] = own
        return KTable(self._graph, own)

    def global_table(
        self, topic: str, *, key: Any = None, value: Any = None, name: str | None = None
    ) -> GlobalKTable[Any, Any]:
        """The newest record of each key of a topic, all of it in every task: streams join it by any key."""
        return GlobalKTable(self._graph, self._source("GLOBAL-SOURCE", (topic,), key, value), topic, name)

    def add_state_store(
        self,
        name: str,
        kind: StoreKind = "key_value",
        *,
        ttl: Duration | None = None,
        retention: Duration | None = None,
    ) -> StreamsBuilder:
        """Declares a store that steps of `process` name in `stores`. kind: key_value, window, session or versioned. ttl: how
        long an entry is kept after its last change, by the clock. retention: how long windows and versions are kept, by
        the times of records."""
        if kind not in ("key_value", "window", "session", "versioned"):
            raise StreamsError(f"a store is key_value, window, session or versioned, not {kind!r}")
        if ttl is not None and kind != "key_value":
            raise StreamsError(f"{name}: {kind} stores have a retention, not a ttl")
        spec = StoreSpec(
            name,
            kind,
            None if ttl is None else milliseconds(ttl),
            None if retention is None else milliseconds(retention),
        )
        self._graph.store(name, name)
        self._graph.specs[name] = spec
        return self

    def build(self, tasks: int = TASKS) -> Topology:
        """The topology so far. tasks: how many tasks each of its stages has; it must stay the same once there is state.
        Raises StreamsError."""
        return topology_of(
            self._graph.nodes, self._graph.specs, self._graph.queryable, tasks, self._graph.named
        )

    def _source(self, kind: str, topics: tuple[str, ...], key: Any, value: Any) -> str:
        if not topics or not all(isinstance(topic, str) and topic for topic in topics):
            raise StreamsError(f"a source needs the names of topics, not {topics!r}")
        keys, values = serde_for(key, topics[0], "key"), serde_for(value, topics[0], "value")
        for node in self._graph.nodes.values():
            if not (isinstance(node, Source) and node.topics == topics and node.name.startswith(kind)):
                continue
            if node.key == keys and node.value == values:
                return node.name
        name = self._graph.name(kind)
        source = Source(name, topics=topics, key=keys, value=values)
        return self._graph.add(source)
