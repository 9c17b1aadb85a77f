"""Nodes that aggregate the records of a key: without windows, of a table, and several streams into one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.streams.records import Change, Record
from barnabas.streams.running.run import Node, Run
from barnabas.streams.running.tables import TableNode

Add = Callable[[Any, Any, Any], Any]
"""Of key, value and aggregate."""


@dataclass
class Aggregating(TableNode):
    """init: the aggregate of no records; None: the first value is the aggregate (`reduce`). add: with one record more."""

    init: Callable[[], Any] | None = None
    add: Add = None  # type: ignore[assignment]

    @property
    def functions(self) -> tuple[Any, ...]:
        return tuple(one for one in (self.init, self.add) if one is not None)

    def added(self, key: Any, value: Any, before: Any) -> Any:
        """The aggregate with one record more. before: None if there was none."""
        if before is None:
            if self.init is None:
                return value
            before = self.init()
        return self.add(key, value, before)


@dataclass
class StreamAggregate(Aggregating):
    """The records of a stream. Where old values are sent, that of a new key is the aggregate of no records."""

    def offers_old(self, nodes: dict[str, Node]) -> bool:
        return self.sends_old

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if record.key is None or record.value is None:
            return
        before = self.lookup(run, record.key)
        at = record.timestamp if before is None else max(record.timestamp, before[1])
        new = self.added(record.key, record.value, None if before is None else before[0])
        # Read again, because the function may have changed what it was given.
        old = self._old(run, record.key) if self.sends_old else None
        self.keep(run, record.key, new, at)
        run.changed(self, record.put(value=Change(new, old), timestamp=at))

    def count(self, run: Run, record: Record[Any, Any], more: int) -> None:
        """The same as `process` for so many records, of an aggregate that counts."""
        before = self.lookup(run, record.key)
        count, at = (0, record.timestamp) if before is None else before
        at = max(at, record.timestamp)
        self.keep(run, record.key, count + more, at)
        run.changed(self, record.put(value=Change(count + more, None), timestamp=at))

    def _old(self, run: Run, key: Any) -> Any:
        kept = self.lookup(run, key)
        if kept is not None:
            return kept[0]
        return None if self.init is None else self.init()


@dataclass
class Cogroup(StreamAggregate):
    """The records of several streams, each with its own function. adds: by the name of the node that they come from."""

    adds: dict[str, Add] | None = None

    @property
    def functions(self) -> tuple[Any, ...]:
        return (*([self.init] if self.init else ()), *(self.adds or {}).values())

    def added(self, key: Any, value: Any, before: Any) -> Any:
        name, plain = value
        assert self.adds is not None
        assert self.init is not None
        return self.adds[name](key, plain, self.init() if before is None else before)


@dataclass
class TableAggregate(Aggregating):
    """The rows of a table that has been grouped. subtract: the aggregate with one row less, of key, value and aggregate."""

    subtract: Add = None  # type: ignore[assignment]

    @property
    def functions(self) -> tuple[Any, ...]:
        return (*super().functions, self.subtract)

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        change: Change = record.value
        before = self.lookup(run, record.key)
        old = None if before is None else before[0]
        at = record.timestamp
        new = old
        if change.old is not None and old is not None:
            new = self.subtract(record.key, change.old, old)
            at = max(record.timestamp, before[1] if before else at)
        if change.new is not None:
            at = self._time_after(record, before, new, at)
            new = self.added(record.key, change.new, new)
        again = self.lookup(run, record.key) if self.sends_old else None  # see StreamAggregate
        self.keep(run, record.key, new, at)
        run.changed(self, record.put(value=Change(new, again and again[0]), timestamp=at))

    def _time_after(
        self, record: Record[Any, Any], before: tuple[Any, int] | None, between: Any, at: int
    ) -> int:
        """The result's timestamp once a row has been added: of `reduce`, that of the row if there was nothing else."""
        if before is None or (self.init is None and between is None):
            return at
        return max(record.timestamp, before[1])
