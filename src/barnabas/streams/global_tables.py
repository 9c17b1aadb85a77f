"""Tables all of which every task has, so that a stream is joined with them by any key."""

from __future__ import annotations

from typing import Generic, TypeVar

from barnabas.streams.graph import Graph
from barnabas.streams.running import tables

K = TypeVar("K")
V = TypeVar("V")


class GlobalKTable(Generic[K, V]):
    """A table all of which is in every task."""

    def __init__(self, graph: Graph, source: str, topic: str, name: str | None) -> None:
        self._graph, self._source, self._topic, self._name = graph, source, topic, name

    def copy(self) -> str:
        """A node with the whole table for one more join."""
        own = self._graph.name("GLOBAL-TABLE")
        named, self._name = self._name, None
        store = self._graph.store(named, f"{self._topic}-GLOBAL-STORE")
        node = tables.TableSource(own, stores=(store,), store=store, everywhere=True)
        self._graph.add(node, self._source)
        self._graph.queryable[store] = own
        return own
