"""Branches of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar

from barnabas.streams.functions import of_pair
from barnabas.streams.graph import Graph
from barnabas.streams.running import flows

S = TypeVar("S")


class Split(Generic[S]):
    """Branches of a stream: `split.branch(function, name)` adds one, `default_branch()` the rest; `streams` has them all."""

    def __init__(self, graph: Graph, node: str, make: Callable[[str], S]) -> None:
        """make: the stream of a node's records."""
        self._graph, self._make = graph, make
        self._branches = flows.Branches(graph.name("KSTREAM-BRANCH"))
        graph.add(self._branches, node)
        self.streams: dict[str, S] = {}

    def stream(self, wanted: Callable[..., Any]) -> S:
        """The records for which the function is true, and none before was."""
        call = of_pair(wanted, "split")
        name = self._graph.add(flows.Pass(self._graph.name("KSTREAM-BRANCHCHILD")), self._branches.name)
        self._branches.calls = (*self._branches.calls, call)
        return self._make(name)

    def rest(self) -> S:
        """The records that no function wanted."""
        return self.stream(flows.always)

    def branch(self, wanted: Callable[..., Any], name: str | None = None) -> Self:
        """Adds a branch."""
        self.streams[name or str(len(self.streams) + 1)] = self.stream(wanted)
        return self

    def default_branch(self, name: str = "default") -> dict[str, S]:
        """Adds the rest; returns all branches by name."""
        self.streams[name] = self.rest()
        return self.streams

    def no_default_branch(self) -> dict[str, S]:
        """All branches by name; other records are dropped."""
        return self.streams
