"""Joins of tables by a foreign key: the left table's rows tell the right table's rows that they want to hear of them, and
hear of each change.

    Ask (tasks of the left keys) -> Answer (tasks of the foreign keys) -> ForeignJoin (tasks of the left keys)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from barnabas.streams.records import Change, Record
from barnabas.streams.running.joins import Joiner
from barnabas.streams.running.run import Hop, Node, Run
from barnabas.streams.running.tables import Newest, TableNode
from barnabas.streams.texts import text_of, value_of

FORGET, FORGET_AND_TELL, TELL, TELL_IF_THERE = "forget", "forget and tell", "tell", "tell if there"
NO_KEY: Final = "\x1enone"
"""What a row without a foreign key asks for: nothing has this key."""


@dataclass
class Ask(Hop):
    """Sends to the task of each foreign key which row wants to hear of it."""

    call: Callable[[Any, Any], Any] = None  # type: ignore[assignment]
    left: bool = False

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.call,)

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if record.key is None:
            return
        change: Change = record.value
        old = None if change.old is None else self.call(record.key, change.old)
        new = None if change.new is None else self.call(record.key, change.new)
        for foreign, what in self._wanted(change, old, new):
            message = [record.key, what, text_of(change.new)]
            run.forward(self, record.put(key=NO_KEY if foreign is None else foreign, value=message))

    def _wanted(self, change: Change, old: Any, new: Any) -> list[tuple[Any, str]]:
        if self.left:
            if change.old is None and change.new is None:
                return []
            return [*([(old, FORGET)] if old is not None and old != new else []), (new, TELL)]
        if change.old is None:
            return [] if change.new is None or new is None else [(new, TELL_IF_THERE)]
        if old is None:
            return [] if new is None else [(new, TELL_IF_THERE)]
        if new is None:
            return [(old, FORGET_AND_TELL)]
        return [(new, TELL_IF_THERE)] if old == new else [(old, FORGET), (new, TELL)]


@dataclass
class Answer(Hop):
    """Notes which rows want to hear of a foreign key, and tells them of its row. Its first input is `Ask`, its second the
    right table's changes."""

    store: str = ""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if isinstance(record.value, Change):
            for key, left in run.stores.get(self.store, record.key) or []:
                run.forward(self, record.put(key=key, value=[left, record.value.new]))
            return
        key, what, left = record.value
        entries = [one for one in run.stores.get(self.store, record.key) or [] if one[0] != key]
        if what in (TELL, TELL_IF_THERE) and record.key != NO_KEY:
            entries = sorted([*entries, [key, left]], key=lambda one: text_of(one[0]))
        run.stores.put(self.store, record.key, entries or None)
        table = run.nodes[self.reads[0]]
        assert isinstance(table, TableNode)
        row = None if record.key == NO_KEY else table.lookup(run, record.key)
        if what == FORGET or (what == TELL_IF_THERE and row is None):
            return
        value = None if row is None or what == FORGET_AND_TELL else row[0]
        at = record.timestamp if row is None else max(record.timestamp, row[1])
        run.forward(self, record.put(key=key, value=[left, value], timestamp=at))


@dataclass
class Latest(Node):
    """What the left table has, in the tasks of its keys where answers arrive. store: key to the text of its value."""

    store: str = ""

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if record.key is not None:
            new = record.value.new
            run.stores.put(self.store, record.key, None if new is None else text_of(new))


@dataclass
class ForeignJoin(Newest):
    """The result: an answer counts if the left row is still the one that asked. of: the store of `Latest`."""

    of: str = ""
    join: Joiner = None  # type: ignore[assignment]
    left: bool = False

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.join,)

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        asked, right = record.value
        there = run.stores.get(self.of, record.key)
        if asked != ("null" if there is None else there):
            return
        left = value_of(asked, run.topology.classes)
        none = left is None or (right is None and not self.left)
        new = None if none else self.join(record.key, left, right)
        before = self.lookup(run, record.key)
        self.keep(run, record.key, new, record.timestamp)
        old = before[0] if before is not None and self.sends_old else None
        run.forward(self, record.put(value=Change(new, old)))
