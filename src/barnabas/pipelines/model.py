"""A pipeline as plain data, however it was written down: in a file (spec.py) or in Python (builder.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """A target of an output that is no topic: its kind's name (see delivery/) and checked options."""

    kind: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One step. label: its place and kind, `2 parse`, as dead letters name it. where: file and line."""

    kind: str
    label: str
    options: Mapping[str, Any]
    where: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """Time windows: column `of` in windows of `every` (beginning each `slide`); `name` is the start's column."""

    of: str
    every: str
    slide: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Aggregate:
    """compute: result columns to Spark SQL aggregates. late: how late a record may come and still count; None
    keeps every window open for ever."""

    window: Window | None
    by: tuple[str, ...]
    compute: Mapping[str, str]
    late: str | None


@dataclass(frozen=True, slots=True)
class Route:
    """Where each record goes. by: Spark SQL; topics: its values and their topics (empty: the value is the topic's
    name). What is not among them goes to the output's own topic."""

    by: str
    topics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Output:
    """One streaming query. key, value, timestamp, headers: Spark SQL; value None is a JSON object of all
    columns."""

    name: str
    topic: str
    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    aggregate: Aggregate | None = None
    partitions: int = -1
    config: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    trigger: str | None = None
    route: Route | None = None
    target: Target | None = None

    @property
    def destination(self) -> str:
        """Where it goes, for people."""
        return self.topic or (self.target.kind if self.target is not None else "")

    def topics(self) -> tuple[str, ...]:
        """Every topic that is known to be written."""
        routed = self.route.topics.values() if self.route is not None else ()
        return tuple(dict.fromkeys(name for name in [self.topic, *routed] if name))


@dataclass(frozen=True, slots=True)
class Source:
    """What is read: exactly one of topics and pattern."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: str = "earliest"
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """One streaming query. sends_common: records that failed in the pipeline's common steps are its to send.
    only_dead: it sends nothing but bad records."""

    name: str
    output: Output
    sends_common: bool = False
    only_dead: bool = False


@dataclass(frozen=True, slots=True)
class PipelineSpec:
    """A whole pipeline. where: the file, for messages."""

    name: str
    source: Source
    outputs: tuple[Output, ...]
    dead_letters: str
    steps: tuple[Step, ...] = ()
    bootstrap: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    trigger: str | None = None
    where: str = ""

    def queries(self) -> tuple[Query, ...]:
        """What runs: a query per output, and where no output can send bad records, one that does only that.

        A record that fails in the common steps is sent to the dead letters once, by the first output
        that is not an aggregate.
        """
        found: list[Query] = []
        plain = [output for output in self.outputs if output.aggregate is None]
        for output in self.outputs:
            found.append(Query(output.name, output, sends_common=bool(plain) and output is plain[0]))
            if output.aggregate is not None and output.steps:
                found.append(Query(f"{output.name}.dead-letters", output, only_dead=True))
        if not plain:
            nothing = Output("dead-letters", self.dead_letters)
            found.append(Query("dead-letters", nothing, sends_common=True, only_dead=True))
        return tuple(found)

    def group(self, query: Query) -> str:
        """The consumer group that shows a query's progress."""
        return self.name if len(self.queries()) == 1 else f"{self.name}.{query.name}"
