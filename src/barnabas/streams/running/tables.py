"""Nodes of tables: they take and make changes, and can say what is kept for a key.

Old values travel with a change only where a node further down needs them (`needs_old`): then, as in Kafka Streams, changes
from nothing to nothing are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.streams.records import Change, Record
from barnabas.streams.running.run import Hop, Node, Run

Kept = tuple[Any, int]
"""A value and its timestamp."""


@dataclass
class TableNode(Node):
    """A node that makes a table. store: where its rows are; empty if they are computed from those of `reads`."""

    store: str = ""
    sends_old: bool = False

    def lookup(self, run: Run, key: Any) -> Kept | None:
        """What the table has for a key."""
        assert self.store
        entry = run.stores.get(self.store, key)
        return None if entry is None else (entry[0], entry[1])

    def lookup_at(self, run: Run, key: Any, at: int) -> Kept | None:
        """What it had at a time, if it keeps versions; else what it has."""
        return self.lookup(run, key)

    def needs_old(self, nodes: dict[str, Node]) -> None:
        """Makes it send old values."""
        self.sends_old = True

    def offers_old(self, nodes: dict[str, Node]) -> bool:
        """Makes it send old values if that costs nothing; whether it does."""
        self.needs_old(nodes)
        return True

    def is_looked_up(self, nodes: dict[str, Node]) -> None:
        """Notes that a join looks its rows up."""
        if not self.store:
            for name in self.reads:
                above = nodes[name]
                assert isinstance(above, TableNode)
                above.is_looked_up(nodes)

    def keep(self, run: Run, key: Any, value: Any, at: int) -> None:
        """Sets the row of a key; None removes it."""
        run.stores.put(self.store, key, None if value is None else [value, at])

    def _above(self, run: Run, number: int = 0) -> TableNode:
        node = run.nodes[self.reads[number]]
        assert isinstance(node, TableNode)
        return node

    def _ask_above(self, nodes: dict[str, Node]) -> None:
        for name in self.reads:
            above = nodes[name]
            assert isinstance(above, TableNode)
            above.needs_old(nodes)


@dataclass
class Newest(TableNode):
    """The newest value of each key. asked: whether something needs what it keeps; until then, Kafka Streams keeps nothing,
    and a filter cannot know what was."""

    asked: bool = False

    def needs_old(self, nodes: dict[str, Node]) -> None:
        self.asked = self.sends_old = True

    def offers_old(self, nodes: dict[str, Node]) -> bool:
        self.sends_old = self.sends_old or self.asked
        return self.asked

    def is_looked_up(self, nodes: dict[str, Node]) -> None:
        self.asked = True


@dataclass
class TableSource(Newest):
    """The newest record of each key of a topic, or of a stream. everywhere: every task has all of them."""

    everywhere: bool = False

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if record.key is None:
            return
        before = self.lookup(run, record.key)
        self.keep(run, record.key, record.value, record.timestamp)
        old = before[0] if before is not None and self.sends_old else None
        run.forward(self, record.put(value=Change(record.value, old)))


@dataclass
class VersionedSource(TableNode):
    """Every version of each key's record. history_ms: how long old versions are kept, by the times of records."""

    history_ms: int = 0

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if record.key is None:
            return
        at = record.timestamp
        latest = run.note_time(self, at)
        if at < latest - self.history_ms:
            return  # too old for any lookup
        versions = run.stores.get(self.store, record.key) or []
        before = versions[-1] if versions else None
        versions = [one for one in versions if one[1] != at]
        versions.append([record.value, at])
        versions.sort(key=lambda one: int(one[1]))
        oldest = latest - self.history_ms
        begun = sum(one[1] <= oldest for one in versions)
        run.stores.put(self.store, record.key, versions[max(begun - 1, 0) :])
        if before is None or at >= before[1]:
            old = before[0] if before is not None and self.sends_old else None
            run.forward(self, record.put(value=Change(record.value, old)))

    def lookup(self, run: Run, key: Any) -> Kept | None:
        versions = run.stores.get(self.store, key) or []
        return _present(versions[-1:])

    def lookup_at(self, run: Run, key: Any, at: int) -> Kept | None:
        if at < run.time_of(self) - self.history_ms:
            return None
        return _present([one for one in run.stores.get(self.store, key) or [] if one[1] <= at][-1:])


def _present(versions: list[Any]) -> Kept | None:
    return (versions[0][0], versions[0][1]) if versions and versions[0][0] is not None else None


@dataclass
class TableWork(TableNode):
    """Rows made of those of another table by a function of key and value."""

    call: Callable[[Any, Any], Any] = None  # type: ignore[assignment]

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.call,)

    def worked(self, key: Any, value: Any) -> Any:
        """The value of a row; None if there is no row."""
        raise NotImplementedError

    def needs_old(self, nodes: dict[str, Node]) -> None:
        self.sends_old = True
        if not self.store:
            self._ask_above(nodes)

    def offers_old(self, nodes: dict[str, Node]) -> bool:
        if self.store:
            self.sends_old = True
            return True
        above = nodes[self.reads[0]]
        assert isinstance(above, TableNode)
        self.sends_old = above.offers_old(nodes)
        return self.sends_old

    def lookup(self, run: Run, key: Any) -> Kept | None:
        if self.store:
            return super().lookup(run, key)
        return self._of(key, self._above(run).lookup(run, key))

    def lookup_at(self, run: Run, key: Any, at: int) -> Kept | None:
        return (
            self.lookup(run, key) if self.store else self._of(key, self._above(run).lookup_at(run, key, at))
        )

    def _of(self, key: Any, row: Kept | None) -> Kept | None:
        value = None if row is None else self.worked(key, row[0])
        return None if row is None or value is None else (value, row[1])

    def _old(self, run: Run, key: Any, change: Change) -> Any:
        if not self.sends_old:
            return None
        if self.store:
            before = self.lookup(run, key)
            return None if before is None else before[0]
        return None if change.old is None else self.worked(key, change.old)

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        change: Change = record.value
        new = None if change.new is None else self.worked(record.key, change.new)
        old = self._old(run, record.key, change)
        if self.store:
            self.keep(run, record.key, new, record.timestamp)
        elif self.sends_old and old is None and new is None and self.drops_nothing:
            return
        run.forward(self, record.put(value=Change(new, old)))

    drops_nothing = False
    """Whether a change from nothing to nothing is left out."""


class TableFilter(TableWork):
    """The rows for which the function is true."""

    drops_nothing = True

    def worked(self, key: Any, value: Any) -> Any:
        return value if self.call(key, value) else None


class TableFilterNot(TableWork):
    """The rows for which the function is false."""

    drops_nothing = True

    def worked(self, key: Any, value: Any) -> Any:
        return None if self.call(key, value) else value


class TableMap(TableWork):
    """Other values."""

    def worked(self, key: Any, value: Any) -> Any:
        return self.call(key, value)


@dataclass
class TableRegroup(Hop):
    """Gives the rows of a table other keys and values, by which they are grouped: what was, goes to its old group, what is,
    to the new one."""

    call: Callable[[Any, Any], Any] = None  # type: ignore[assignment]

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.call,)

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        change: Change = record.value
        old, new = self._pair(record.key, change.old), self._pair(record.key, change.new)
        if old is not None and new is not None and old[0] == new[0]:
            run.forward(self, record.put(key=new[0], value=Change(new[1], old[1])))
            return
        if old is not None:
            run.forward(self, record.put(key=old[0], value=Change(None, old[1])))
        if new is not None:
            run.forward(self, record.put(key=new[0], value=Change(new[1], None)))

    def _pair(self, key: Any, value: Any) -> tuple[Any, Any] | None:
        if value is None:
            return None
        pair = self.call(key, value)
        if pair is None or pair[0] is None or pair[1] is None:
            return None
        return pair[0], pair[1]


@dataclass
class Mirror(TableNode):
    """The rows of a table in the tasks of another stage. of: the table's node."""

    of: str = ""

    def needs_old(self, nodes: dict[str, Node]) -> None:
        above = nodes[self.of]
        assert isinstance(above, TableNode)
        above.needs_old(nodes)

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        self.keep(run, record.key, record.value.new, record.timestamp)
        run.forward(self, record)
