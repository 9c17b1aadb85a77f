"""The nodes of a topology, and how records go from one to the next."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

from barnabas.streams.records import Headers, Record, headers_text
from barnabas.streams.running.stores import Stores
from barnabas.streams.serdes import Serde
from barnabas.streams.texts import text_of

OUT: Final = -1
"""The stage of rows that are records for topics."""
KEPT: Final = -2
"""The stage of rows that say what a store keeps for a key now."""
NO_RECORD: Final = {"to": None, "out_key": None, "out_value": None}
TIME_MAX: Final = (1 << 63) // 1000 - 1
"""In milliseconds; Spark counts microseconds in 64 bits."""
NEVER: Final = -1
"""The stream time before the first record."""
LATEST: Final = "\x1elatest"
"""After a node's name: that of the entry with the latest timestamp that it has seen."""


@dataclass
class Node:
    """A step of a topology. children: the names of the nodes that get what it makes. stores: of its own. reads: nodes
    whose state it looks into, so that they have to be in the same task. stage: found by the topology."""

    kind: ClassVar[str] = "PROCESSOR"
    name: str
    children: list[str] = field(default_factory=list)
    stores: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    stage: int = 0

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        """Takes a record."""
        raise NotImplementedError

    @property
    def functions(self) -> tuple[Any, ...]:
        """The user's functions and classes in it."""
        return ()


class Hop(Node):
    """A node whose results go to the task of their keys."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the record that is being processed comes from."""

    topic: str = ""
    partition: int = -1
    offset: int = -1


class End(Protocol):
    """Where records leave a topology, or come into it."""

    key: Serde[Any]
    value: Serde[Any]
    children: list[str]


class Entry(End, Protocol):
    """Where records come into a topology."""

    def read(self, key: bytes | None, value: bytes | None, at: int, headers: Headers) -> Record[Any, Any]: ...


class Parts(Protocol):
    """What a task asks its topology (topology.py)."""

    nodes: dict[str, Node]
    classes: dict[str, type]
    tasks: int
    shows: bool

    @property
    def cached(self) -> Collection[str]: ...

    @property
    def counting(self) -> Collection[str]: ...

    @property
    def topics(self) -> Collection[str]: ...

    def entries(self, topic: str) -> Sequence[Entry]: ...


@dataclass
class Run:
    """One task of a stage at work. kept: its state. rows_out: rows for later stages and for topics, see `Topology`.
    now_ms: the clock."""

    topology: Parts
    stage: int
    kept: MutableMapping[str, str]
    now_ms: int = 0
    place: Place = field(default_factory=Place)
    rows_out: list[Any] = field(default_factory=list)
    working: dict[str, Any] = field(default_factory=dict)
    stream_time: int = NEVER

    def __post_init__(self) -> None:
        self.stores = Stores(self.kept, self.topology.classes)
        self.nodes: Mapping[str, Node] = self.topology.nodes

    def forward(self, node: Node, record: Record[Any, Any]) -> None:
        """Hands a record to the children of a node."""
        for name in node.children:
            self.pass_to(self.nodes[name], record)

    def changed(self, node: Node, record: Record[Any, Any]) -> None:
        """Hands the new result of a key to the children of a node."""
        self.forward(node, record)

    def pass_to(self, child: Node, record: Record[Any, Any]) -> None:
        """Hands a record to one node."""
        if child.stage == self.stage:
            child.process(self, record)
        else:
            self.hand_over(child, record)

    def hand_over(self, child: Node, record: Record[Any, Any]) -> None:
        """Sends a record to a node of a later stage, in the task of its key; for a global table, in every task."""
        key = text_of(record.key)
        everywhere = getattr(child, "everywhere", False)
        tasks = range(self.topology.tasks) if everywhere else (task_of(key, self.topology.tasks),)
        for task in tasks:
            self.rows_out.append(
                {
                    **NO_RECORD,
                    "stage": child.stage,
                    "node": child.name,
                    "task": task,
                    "key": key,
                    "value": text_of(record.value),
                    "at": time_of(record),
                    "headers": headers_text(record.headers),
                }
            )

    def write(self, sink: End, topic: str, record: Record[Any, Any]) -> None:
        """Writes a record to a topic, and hands it to the sources of the topology that read this topic."""
        key, value = sink.key.write(record.key, "key"), sink.value.write(record.value, "value")
        shows = self.topology.shows
        self.rows_out.append(
            {
                "stage": OUT,
                "node": None,
                "task": 0,
                "key": text_of(record.key) if shows else None,
                "value": text_of(record.value) if shows else None,
                "at": time_of(record),
                "headers": headers_text(record.headers),
                "to": topic,
                "out_key": key,
                "out_value": value,
            }
        )
        for source in self.topology.entries(topic):
            again = source.read(key, value, record.timestamp, record.headers)
            for name in source.children:
                self.hand_over(self.nodes[name], again)

    def time_of(self, node: Node) -> int:
        """The latest timestamp that a node has noted."""
        latest = self.stores.get(node.name + LATEST, "")
        return NEVER if latest is None else int(latest)

    def note_time(self, node: Node, at: int) -> int:
        """Notes a timestamp; returns the latest one."""
        before = self.time_of(node)
        if at > before:
            self.stores.put(node.name + LATEST, "", at)
        return max(before, at)


def time_of(record: Record[Any, Any]) -> int:
    """A record's timestamp. Raises ValueError if user code has given it another one."""
    at = record.timestamp
    if type(at) is not int or not -TIME_MAX <= at <= TIME_MAX:
        raise ValueError(f"a timestamp is a number of milliseconds since 1970, not {at!r:.60}")
    return at


def task_of(key: str, tasks: int) -> int:
    """The task in which the state of a key is."""
    return zlib.crc32(key.encode()) % tasks
