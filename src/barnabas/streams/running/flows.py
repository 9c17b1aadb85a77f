"""Nodes of streams that keep nothing: from a topic, record by record, to a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from barnabas.streams.errors import StreamsError
from barnabas.streams.records import Change, Record
from barnabas.streams.running.run import Hop, Node, Run
from barnabas.streams.serdes import ANY, Serde

Pair = Callable[[Any, Any], Any]


@dataclass
class Source(Node):
    """The records of topics. inner: topics that the topology itself writes, which are not read from a broker."""

    kind: ClassVar[str] = "SOURCE"
    topics: tuple[str, ...] = ()
    key: Serde[Any] = ANY
    value: Serde[Any] = ANY

    def read(self, key: bytes | None, value: bytes | None, at: int, headers: Any) -> Record[Any, Any]:
        """The record of these bytes. Raises ValueError."""
        return Record(
            None if key is None else self.key.read(key, "key"),
            None if value is None else self.value.read(value, "value"),
            at,
            headers,
        )

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        run.forward(self, record)


@dataclass
class Sink(Node):
    """Writes a topic, or the one that a function of key and value names."""

    kind: ClassVar[str] = "SINK"
    topic: str | Pair = ""
    key: Serde[Any] = ANY
    value: Serde[Any] = ANY

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.topic,) if callable(self.topic) else ()

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        topic = self.topic if isinstance(self.topic, str) else self.topic(record.key, record.value)
        if not isinstance(topic, str) or not topic:
            raise StreamsError(
                f"{self.name}: the function for the topic returned {topic!r}, not a topic's name"
            )
        run.write(self, topic, record)


@dataclass
class Calling(Node):
    """A node with a user's function of key and value."""

    call: Pair = None  # type: ignore[assignment]

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.call,)


class Filter(Calling):
    """Keeps the records for which the function is true."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if self.call(record.key, record.value):
            run.forward(self, record)


class FilterNot(Calling):
    """Keeps the records for which the function is false."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if not self.call(record.key, record.value):
            run.forward(self, record)


class Map(Calling):
    """Makes another key and value."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        key, value = _pair(self.call(record.key, record.value), self.name)
        run.forward(self, record.put(key=key, value=value))


class MapValues(Calling):
    """Makes another value."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        run.forward(self, record.put(value=self.call(record.key, record.value)))


class FlatMap(Calling):
    """Makes any number of keys and values."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        for pair in self.call(record.key, record.value) or ():
            key, value = _pair(pair, self.name)
            run.forward(self, record.put(key=key, value=value))


class FlatMapValues(Calling):
    """Makes any number of values."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        for value in self.call(record.key, record.value) or ():
            run.forward(self, record.put(value=value))


class SelectKey(Calling):
    """Makes another key."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        run.forward(self, record.put(key=self.call(record.key, record.value)))


class Peek(Calling):
    """Calls the function and passes the record on."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        self.call(record.key, record.value)
        run.forward(self, record)


class ForEach(Calling):
    """Calls the function."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        self.call(record.key, record.value)


WORDS: Final[Mapping[type[Calling], str]] = {
    Filter: "filter",
    Map: "map",
    MapValues: "map_values",
    FlatMap: "flat_map",
    FlatMapValues: "flat_map_values",
}
"""The steps that take async functions, and what they are called."""


@dataclass
class Branches(Node):
    """Passes each record to the first child whose function is true."""

    calls: tuple[Pair, ...] = ()

    @property
    def functions(self) -> tuple[Any, ...]:
        return self.calls

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        for name, call in zip(self.children, self.calls, strict=True):
            if call(record.key, record.value):
                run.pass_to(run.nodes[name], record)
                return


class Pass(Node):
    """Passes everything on: where streams are merged, or begin after a split."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        run.forward(self, record)


class Repartition(Hop):
    """Sends each record to the task of its key."""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        run.forward(self, record)


@dataclass
class ToStream(Node):
    """The new values of a table's changes. call: makes another key."""

    call: Pair | None = None

    @property
    def functions(self) -> tuple[Any, ...]:
        return () if self.call is None else (self.call,)

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        change: Change = record.value
        key = record.key if self.call is None else self.call(record.key, change.new)
        run.forward(self, record.put(key=key, value=change.new))


def _pair(pair: Any, name: str) -> tuple[Any, Any]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise StreamsError(f"{name}: the function returned {pair!r:.80}, not a pair of key and value")
    return pair


def always(key: Any, value: Any) -> bool:
    """True."""
    return True
