"""A node that holds the changes of a table back: until a window is over, or for a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from barnabas.streams.errors import StreamsError
from barnabas.streams.records import Change, Record, Windowed
from barnabas.streams.running.run import Run
from barnabas.streams.running.tables import Kept, TableNode
from barnabas.streams.texts import text_of


@dataclass
class Suppress(TableNode):
    """wait_ms: how long a change is held back, by the times of records: after the window's end if `final`, else after the
    first change. records_max: of all keys of a task; one more lets the earliest go, or fails if `strict`."""

    wait_ms: int = 0
    final: bool = False
    records_max: int | None = None
    strict: bool = False

    def needs_old(self, nodes: Any) -> None:
        self.sends_old = True
        self._ask_above(nodes)

    def offers_old(self, nodes: Any) -> bool:
        above = nodes[self.reads[0]]
        assert isinstance(above, TableNode)
        self.sends_old = above.offers_old(nodes)
        return self.sends_old

    def lookup(self, run: Run, key: Any) -> Kept | None:
        raise StreamsError(f"{self.name}: what a suppressed table holds back cannot be looked up in a join")

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        latest = run.note_time(self, record.timestamp)
        change: Change = record.value
        waiting = run.stores.get(self.store, record.key)
        at = record.key.window.end if self.final else record.timestamp
        if waiting is None:
            run.stores.note(self.store, at, record.key)
            self._count(run, 1)
        old = change.old if waiting is None else waiting[2]
        since = at if waiting is None else waiting[0]
        sent = [since, change.new, old, record.timestamp, [list(pair) for pair in record.headers]]
        run.stores.put(self.store, record.key, sent)
        due = run.stores.due(self.store, latest - self.wait_ms)
        for since, key in sorted(due, key=lambda one: (one[0], _order(one[1]))):
            self._let_go(run, key, since)
        self._bound(run)

    def _count(self, run: Run, more: int) -> int:
        count = (run.stores.get(self.store + "\x1ecount", "") or 0) + more
        run.stores.put(self.store + "\x1ecount", "", count)
        return int(count)

    def _let_go(self, run: Run, key: Any, since: int) -> None:
        waiting = run.stores.get(self.store, key)
        if waiting is None or waiting[0] != since:
            return
        run.stores.put(self.store, key, None)
        self._count(run, -1)
        _, new, old, at, headers = waiting
        if new is not None or not self.final:
            pairs = tuple((name, value) for name, value in headers)
            run.forward(self, Record(key, Change(new, old if self.sends_old else None), at, pairs))

    def _bound(self, run: Run) -> None:
        while self.records_max is not None and self._count(run, 0) > self.records_max:
            if self.strict:
                raise StreamsError(f"{self.name}: more than {self.records_max:,} records are held back")
            due = run.stores.due(self.store, run.stores.earliest(self.store))
            for at, key in due[1:]:
                run.stores.note(self.store, at, key)
            self._let_go(run, due[0][1], due[0][0])


def _order(key: Any) -> tuple[str, int]:
    """In which order keys go that are held back for equally long."""
    return (text_of(key.key), key.start) if isinstance(key, Windowed) else (text_of(key), 0)
