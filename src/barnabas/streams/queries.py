"""Looking into the state of a topology: what its tables and stores keep for a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.pipelines.plan.errors import suggestion
from barnabas.streams.errors import StreamsError
from barnabas.streams.records import Window, Windowed
from barnabas.streams.running.processors import Process
from barnabas.streams.running.run import Run
from barnabas.streams.running.sliding import SlidingAggregate
from barnabas.streams.running.stores_of_users import VIEWS
from barnabas.streams.running.tables import TableNode, VersionedSource
from barnabas.streams.running.windows import SessionAggregate, WindowedAggregate
from barnabas.streams.topology import Topology


@dataclass
class View:
    """A table's state. Keys of windowed tables are Windowed; `fetch` finds all windows of a key."""

    run: Run = field(repr=False)
    node: TableNode = field(repr=False)
    name: str

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key."""
        kept = self.node.lookup(self.run, key)
        return default if kept is None else kept[0]

    def get_with_timestamp(self, key: Any) -> tuple[Any, int] | None:
        """The value of a key and its timestamp."""
        return self.node.lookup(self.run, key)

    def fetch(self, key: Any, first: int | None = None, last: int | None = None) -> list[tuple[Window, Any]]:
        """The windows of a key that begin from `first` to `last`, with their values."""
        return [
            (named.window, value)
            for named, value in self.items()
            if isinstance(named, Windowed)
            and named.key == key
            and (first is None or first <= named.start)
            and (last is None or named.start <= last)
        ]

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All keys with their values."""
        for key, kept in self.run.stores.items(self.node.store):
            if isinstance(self.node, (WindowedAggregate, SessionAggregate, SlidingAggregate)):
                for start, end, value, _ in kept:
                    yield Windowed(key, Window(start, end)), value
            elif isinstance(self.node, VersionedSource):
                if kept[-1][0] is not None:
                    yield key, kept[-1][0]
            else:
                yield key, kept[0]

    all = items

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        return sum(1 for _ in self.items())

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.items())


def layout_of(topology: Topology, name: str) -> str:
    """How a store keeps its values, see `barnabas.pipelines.views.stores`."""
    node = topology.nodes[topology.queryable[name]]
    if isinstance(node, Process):
        return topology.specs[name].kind
    if isinstance(node, (WindowedAggregate, SessionAggregate, SlidingAggregate)):
        return "windows"
    return "versions" if isinstance(node, VersionedSource) else "table"


def ttl_of(topology: Topology, name: str) -> int | None:
    """How long after its last change an entry of a store is kept, in milliseconds."""
    spec = topology.specs.get(name)
    return None if spec is None else spec.ttl_ms


def view_of(topology: Topology, name: str, entries: Mapping[str, str]) -> Any:
    """What a store keeps. entries: the state of all tasks. Raises StreamsError if there is no such store."""
    node_name = topology.queryable.get(name)
    if node_name is None:
        raise StreamsError(f"there is no store {name!r}; {suggestion(name, topology.queryable)}")
    run = Run(topology, 0, dict(entries))
    node = topology.nodes[node_name]
    if isinstance(node, Process):
        spec = topology.specs[name]
        return VIEWS[spec.kind](spec, run)
    assert isinstance(node, TableNode)
    return View(run, node, name)
