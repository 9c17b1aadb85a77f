"""Nodes that join a stream with a table, and tables with each other by their keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.streams.records import Change, Record
from barnabas.streams.running.run import Node, Run
from barnabas.streams.running.tables import Kept, TableNode

Joiner = Callable[[Any, Any, Any], Any]
"""Of the key, the left value and the right value."""


@dataclass
class StreamTableJoin(Node):
    """Each record with the row of its key, or of the key that `on` makes of key and value."""

    join: Joiner = None  # type: ignore[assignment]
    left: bool = False
    on: Callable[[Any, Any], Any] | None = None

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.join, *([] if self.on is None else [self.on]))

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if record.value is None:
            return
        key = record.key if self.on is None else self.on(record.key, record.value)
        if key is None and not self.left:
            return
        table = run.nodes[self.reads[0]]
        assert isinstance(table, TableNode)
        row = None if key is None else table.lookup_at(run, key, record.timestamp)
        if row is None and not self.left:
            return
        run.forward(self, record.put(value=self.join(record.key, record.value, row and row[0])))


@dataclass
class TableSide(Node):
    """Takes the changes of one side of a join of tables. other: the node of the other side. result: the join's node.
    is_left: which side it is. mine, theirs: whether there is a result if only this side, or only the other, has a row."""

    other: str = ""
    result: str = ""
    is_left: bool = True
    mine: bool = False
    theirs: bool = False

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if record.key is None:
            return
        change: Change = record.value
        other, join = run.nodes[self.other], run.nodes[self.result]
        assert isinstance(other, TableNode)
        assert isinstance(join, TableJoin)
        row = other.lookup(run, record.key)
        if row is None and not (self.mine and (change.new is not None or change.old is not None)):
            return
        at = record.timestamp if row is None else max(record.timestamp, row[1])
        new = self._joined(join, record.key, change.new, row)
        old = self._joined(join, record.key, change.old, row) if join.sends_old else None
        run.pass_to(join, record.put(value=Change(new, old), timestamp=at))

    def _joined(self, join: TableJoin, key: Any, value: Any, row: Kept | None) -> Any:
        if value is None and not (self.theirs and row is not None):
            return None
        other = None if row is None else row[0]
        return join.join(key, value, other) if self.is_left else join.join(key, other, value)


@dataclass
class TableJoin(TableNode):
    """The result of a join of tables, `reads` of which are its sides."""

    join: Joiner = None  # type: ignore[assignment]
    keeps_left: bool = False
    keeps_right: bool = False

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.join,)

    def needs_old(self, nodes: dict[str, Node]) -> None:
        self.sends_old = True
        self._ask_above(nodes)

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        change: Change = record.value
        if self.store:
            before = self.lookup(run, record.key) if self.sends_old else None
            self.keep(run, record.key, change.new, record.timestamp)
            record = record.put(value=Change(change.new, before and before[0]))
        run.forward(self, record)

    def lookup(self, run: Run, key: Any) -> Kept | None:
        if self.store:
            return super().lookup(run, key)
        left, right = self._above(run, 0).lookup(run, key), self._above(run, 1).lookup(run, key)
        if (left is None and (right is None or not self.keeps_right)) or (
            right is None and not self.keeps_left
        ):
            return None
        value = self.join(key, left and left[0], right and right[0])
        at = max(one[1] for one in (left, right) if one is not None)
        return None if value is None else (value, at)
