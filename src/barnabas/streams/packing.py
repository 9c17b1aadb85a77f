"""A task at work on entries (pipelines/processing/packed.py): what it hands over and writes are tuples, and results that
only topics get are made once for each key.

An item is what one node is handed: node, key, value, timestamp, headers; for a node that counts, how many records instead
of a value (`Counted`). Keys and values of kinds that pickle keeps as they are travel themselves, others as a tuple with
their text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.pipelines.processing.packed import FINISHED, Entry, Origin, TaskOutput
from barnabas.streams.errors import StreamsError
from barnabas.streams.making import one_more
from barnabas.streams.records import Change, Headers, Record, headers_text
from barnabas.streams.running import flows
from barnabas.streams.running.aggregates import Aggregating, StreamAggregate
from barnabas.streams.running.run import OUT, End, Node, Run, task_of, time_of
from barnabas.streams.running.sliding import SlidingAggregate
from barnabas.streams.running.windows import SessionAggregate
from barnabas.streams.texts import Classes, text_of, value_of

PLAIN: Final = frozenset({str, int, float, bool, bytes, type(None)})
FLOWS: Final = (
    flows.Source,
    flows.Sink,
    flows.Calling,
    flows.Branches,
    flows.Pass,
    flows.Repartition,
    flows.ToStream,
)
"""The nodes that keep nothing."""


@dataclass
class PendingResult:
    """A result that waits for the end of the micro-batch. origin, place: of the record that has made it."""

    node: Node
    record: Record[Any, Any]
    origin: Origin | None
    place: tuple[int, ...]


@dataclass(slots=True)
class Counted:
    """How many records a node that counts is to be handed, with the key, and the latest timestamp. origin, place, headers:
    of the last one."""

    key: Any
    count: int
    at: int
    headers: Headers
    origin: Origin | None
    place: tuple[int, ...]


@dataclass
class PackedRun(Run):
    """A task whose topology keeps results until the end (`Topology.cached`). origin, place: of what is processed now."""

    pending: dict[tuple[str, str], PendingResult] = field(default_factory=dict)
    undo: list[Callable[[], Any]] = field(default_factory=list)
    counted: dict[tuple[str, str], Counted] = field(default_factory=dict)
    origin: Origin | None = None
    number: tuple[int, ...] = ()

    def hand_over(self, child: Node, record: Record[Any, Any]) -> None:
        named = text_of(record.key)
        if child.name in self.topology.counting:
            if record.key is not None and record.value is not None:
                self._count(child, named, record)
            return
        item = (child.name, sent(record.key, named), sent(record.value), time_of(record), record.headers)
        if getattr(child, "everywhere", False):
            self.rows_out.extend((child.stage, task, item) for task in range(self.topology.tasks))
        else:
            self.rows_out.append((child.stage, task_of(named, self.topology.tasks), item))

    def _count(self, child: Node, named: str, record: Record[Any, Any]) -> None:
        """Counts a record here, so that one item is sent for all that have its key."""
        name, at = (child.name, named), time_of(record)
        before = self.counted.get(name)
        count, latest = (0, at) if before is None else (before.count, before.at)
        self.counted[name] = Counted(
            record.key, count + 1, max(at, latest), record.headers, self.origin, self.number
        )
        self.undo.append(lambda: _back(self.counted, name, before))

    def hand_over_counted(self, packed: TaskOutput) -> None:
        """Sends on what was counted."""
        for (node, named), one in self.counted.items():
            item = (node, sent(one.key, named), (one.count, None), one.at, one.headers)
            task = task_of(named, self.topology.tasks)
            self.rows_out.append((self.nodes[node].stage, task, item))
            self.origin, self.number = one.origin, one.place
            self.taken(packed, FINISHED)
        self.counted = {}

    def write(self, sink: End, topic: str, record: Record[Any, Any]) -> None:
        if topic in self.topology.topics:
            raise StreamsError(
                f"the app would read topic {topic}, which it writes itself, in an endless loop"
            )
        key, value = sink.key.write(record.key, "key"), sink.value.write(record.value, "value")
        row = {
            "stage": OUT,
            "at": time_of(record),
            "headers": headers_text(record.headers),
            "to": topic,
            "out_key": key,
            "out_value": value,
        }
        self.rows_out.append((OUT, 0, row))
        for source in self.topology.entries(topic):
            again = source.read(key, value, record.timestamp, record.headers)
            for name in source.children:
                self.hand_over(self.nodes[name], again)

    def changed(self, node: Node, record: Record[Any, Any]) -> None:
        if node.name not in self.topology.cached:
            self.forward(node, record)
            return
        name = (node.name, text_of(record.key))
        before = self.pending.pop(name, None)  # it comes where the last change of its key was
        if before is not None:
            record = record.put(value=Change(record.value.new, before.record.value.old))
        self.pending[name] = PendingResult(node, record, self.origin, self.number)
        self.undo.append(lambda: _back(self.pending, name, before))

    def taken(self, packed: TaskOutput, number: int) -> None:
        """Moves what was made of the present record to the rest. number: of the record's item."""
        for count, (stage, task, what) in enumerate(self.rows_out):
            if stage == OUT:
                packed.rows.append((what, self.origin))
                continue
            entries = packed.onward.setdefault((stage, task), [])
            place = (*self.number, number) if self.stage else ()
            if not entries or entries[-1].origin is not self.origin or entries[-1].place != place:
                entries.append(Entry(self.origin, place, []))
            entries[-1].items.append((count, *what))
        self.rows_out.clear()


def _back(into: dict[tuple[str, str], Any], name: tuple[str, str], before: Any) -> None:
    if before is None:
        into.pop(name, None)
    else:
        into[name] = before


def sent(value: Any, text: str | None = None) -> Any:
    """A key or value as an item has it."""
    return value if type(value) in PLAIN else (text_of(value) if text is None else text,)


def received(item: tuple[Any, ...], classes: Classes) -> tuple[str, Record[Any, Any]]:
    """The node that an item is for, and the record."""
    _, node, key, value, at, headers = item
    key = value_of(key[0], classes) if type(key) is tuple else key
    if type(value) is tuple and len(value) == 1:
        value = value_of(value[0], classes)
    return node, Record(key, value, at, headers)


def counting_in(nodes: dict[str, Node], cached: Collection[str]) -> frozenset[str]:
    """The nodes among the cached ones that only count, and get all records from other tasks."""

    far = {
        name
        for name in cached
        if all(parent.stage < nodes[name].stage for parent in nodes.values() if name in parent.children)
    }
    return frozenset(
        name for name in far if type(node := nodes[name]) is StreamAggregate and node.add is one_more
    )


def keeps_nothing(nodes: list[Node]) -> bool:
    """Whether these nodes have no state."""
    return all(isinstance(node, FLOWS) and not node.stores and not node.reads for node in nodes)


def cached_in(nodes: dict[str, Node]) -> frozenset[str]:
    """The nodes that may give one result of a key for many records: those whose results only topics get."""

    def only_flows(name: str) -> bool:
        node = nodes[name]
        return isinstance(node, FLOWS) and all(only_flows(child) for child in node.children)

    return frozenset(
        node.name
        for node in nodes.values()
        if isinstance(node, Aggregating)
        and not isinstance(node, (SessionAggregate, SlidingAggregate))
        and not getattr(node, "final", False)
        and all(only_flows(child) for child in node.children)
    )
