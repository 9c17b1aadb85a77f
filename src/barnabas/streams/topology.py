"""A topology: nodes, and the stages into which they are divided.

Records pass from one stage to the next where their key has changed, or where a global table has to reach every task. A
stage runs as a number of tasks; the state of a key is in the task that `task_of` says.

    stage 0: tasks by the key's bytes          stage 1: tasks by the new key           written
    source -> flat_map_values -> group_by  =>  count -> to_stream -> sink          =>  topic
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final

from barnabas.streams.ahead import Ahead
from barnabas.streams.describing import described, drawn
from barnabas.streams.dividing import stages_of
from barnabas.streams.errors import StreamsError
from barnabas.streams.handling import Handlers
from barnabas.streams.packing import cached_in, counting_in
from barnabas.streams.running.flows import Sink, Source
from barnabas.streams.running.run import Node
from barnabas.streams.running.stores_of_users import StoreSpec
from barnabas.streams.texts import is_model, name_of

TASKS: Final = 4
"""Tasks of each stage, unless something else was said."""


@dataclass
class Topology:
    """Nodes by name, in the order in which they were made. queryable: the node of each store. named: the stores that can be
    looked up while the topology runs. classes: those of values in state. inner: the sources of topics
    that the topology writes itself. shows: whether records for topics also have their values, for the test driver. cached:
    the nodes that make one result of a key in each micro-batch on Spark."""

    nodes: dict[str, Node]
    specs: dict[str, StoreSpec] = field(default_factory=dict)
    queryable: dict[str, str] = field(default_factory=dict)
    named: frozenset[str] = frozenset()
    tasks: int = TASKS
    classes: dict[str, type] = field(default_factory=dict)
    inner: dict[str, list[Source]] = field(default_factory=dict)
    stages: int = 1
    shows: bool = False
    by_clock: bool = False
    handlers: Handlers = field(default_factory=Handlers)
    cached: frozenset[str] = frozenset()

    @cached_property
    def counting(self) -> frozenset[str]:
        """The nodes that may be handed a number in place of so many records."""
        return counting_in(self.nodes, self.cached)

    @property
    def sources(self) -> list[Source]:
        """The sources that are read from brokers."""
        inner = {source.name for sources in self.inner.values() for source in sources}
        return [node for node in self.nodes.values() if isinstance(node, Source) and node.name not in inner]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are read from brokers."""
        return tuple(dict.fromkeys(topic for source in self.sources for topic in source.topics))

    @property
    def sinks(self) -> list[Sink]:
        """The nodes that write topics."""
        return [node for node in self.nodes.values() if isinstance(node, Sink)]

    def shown_in(self, task: int) -> frozenset[str]:
        """The stores whose changes a task tells; those that every task has whole are told by the first one."""
        if task == 0:
            return self.named
        nodes = {name: self.nodes[self.queryable[name]] for name in self.named}
        return frozenset(name for name, node in nodes.items() if not getattr(node, "everywhere", False))

    def ahead_in(self, stage: int) -> list[Any]:
        """The nodes of a stage whose functions are called for many records at once."""
        return [
            node
            for node in self.nodes.values()
            if node.stage == stage and isinstance(getattr(node, "call", None), Ahead)
        ]

    def entries(self, topic: str) -> Sequence[Source]:
        """The sources that read a topic which the topology writes itself."""
        return self.inner.get(topic, ())

    def describe(self) -> str:
        """The topology as text, in the form of Kafka Streams."""
        return described(self.nodes, self.stages)

    def svg(self) -> str:
        """The topology as a picture."""
        return drawn(self.nodes)

    def as_json(self) -> dict[str, Any]:
        """The topology as JSON can hold it: stages, and nodes with what comes after them."""
        nodes = [
            {
                "name": node.name,
                "kind": node.kind,
                "stage": node.stage,
                "stores": list(node.stores),
                "to": node.children,
            }
            for node in self.nodes.values()
        ]
        return {"stages": self.stages, "tasks": self.tasks, "topics": list(self.topics), "nodes": nodes}

    def __str__(self) -> str:
        return self.describe()


def topology_of(
    nodes: Mapping[str, Node],
    specs: Mapping[str, StoreSpec],
    queryable: Mapping[str, str],
    tasks: int = TASKS,
    named: Collection[str] = (),
) -> Topology:
    """The topology of these nodes, divided into stages. Raises StreamsError."""
    shown = frozenset(name for name in named if name in queryable)
    topology = Topology(dict(nodes), dict(specs), dict(queryable), shown, tasks)
    if not any(isinstance(node, Source) for node in nodes.values()):
        raise StreamsError(
            "the topology reads nothing: begin with builder.stream(topic) or builder.table(topic)"
        )
    written = {sink.topic for sink in topology.sinks if isinstance(sink.topic, str)}
    for node in nodes.values():
        if isinstance(node, Source) and (both := written & set(node.topics)):
            if set(node.topics) - both:
                raise StreamsError(
                    f"{node.name} reads {sorted(both)[0]}, which the topology writes itself, together with other topics: "
                    "read it on its own, and merge the streams"
                )
            for topic in both:
                topology.inner.setdefault(topic, []).append(node)
    if not topology.topics:
        raise StreamsError("the topology reads only topics that it writes itself")
    stages = stages_of(topology.nodes, topology.inner)
    if stages is None:
        raise StreamsError(
            "the topology goes round in a circle: it reads a topic that is made of what it reads there"
        )
    for name, node in topology.nodes.items():
        node.stage = stages[name]
    topology.stages = 1 + max(stages.values())
    topology.classes = _classes(topology)
    topology.cached = cached_in(topology.nodes)
    topology.by_clock = any(getattr(node, "by_clock", False) for node in nodes.values()) or any(
        spec.ttl_ms is not None for spec in topology.specs.values()
    )
    return topology


# --- classes ------------------------------------------------------------------------------------------


def _classes(topology: Topology) -> dict[str, type]:
    """The dataclasses, models and enums that the modules of the users' functions have, and those of serdes, by name."""
    classes: dict[str, type] = {}
    for node in topology.nodes.values():
        for serde in (getattr(node, "key", None), getattr(node, "value", None)):
            for kind in getattr(serde, "classes", ()):
                classes[name_of(kind)] = kind
                classes |= _in_module(sys.modules.get(kind.__module__))
        for function in node.functions:
            inner = getattr(function, "call", function)
            spaces = getattr(inner, "__globals__", None)
            module = sys.modules.get(getattr(inner, "__module__", "") or "")
            classes |= _kept(spaces.values()) if spaces is not None else _in_module(module)
            for cell in getattr(inner, "__closure__", None) or ():
                classes |= _kept([cell.cell_contents]) if cell.cell_contents is not None else {}
    return classes


def _in_module(module: Any) -> dict[str, type]:
    return {} if module is None else _kept(list(vars(module).values()))


def _kept(values: Any) -> dict[str, type]:
    return {
        name_of(value): value
        for value in list(values)
        if isinstance(value, type)
        and not value.__module__.startswith(("barnabas.", "pyspark."))
        and (dataclasses.is_dataclass(value) or is_model(value) or issubclass(value, Enum))
    }
