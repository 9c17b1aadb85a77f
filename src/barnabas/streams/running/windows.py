"""Nodes that aggregate in windows of time, and what their stores keep: for each key a list of windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from barnabas.streams.records import Change, Record, Window, Windowed
from barnabas.streams.running.aggregates import Aggregating
from barnabas.streams.running.run import NEVER, Run
from barnabas.streams.running.tables import Kept

FOREVER: Final = (1 << 63) - 1
PUT: Final = "\x1eput"
"""After the name of a store of sessions: the latest end of one, by which it forgets others."""


@dataclass
class WindowedAggregate(Aggregating):
    """Windows that begin at fixed times. size_ms; advance_ms: how often one begins. grace_ms: how long after its end a
    window takes records, by the times of records. final: results only when a window is over. unlimited_from: one window
    that begins then and never ends."""

    size_ms: int = 0
    advance_ms: int = 0
    grace_ms: int = 0
    final: bool = False
    unlimited_from: int | None = None

    def windows(self, at: int) -> Iterator[Window]:
        """The windows that a record is in, the earliest first."""
        if self.unlimited_from is not None:
            if at >= self.unlimited_from:
                yield Window(self.unlimited_from, FOREVER)
            return
        start = max(0, at - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        while start <= at:
            yield Window(start, start + self.size_ms)
            start += self.advance_ms

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if record.key is None:
            return
        latest = run.note_time(self, record.timestamp)
        over = latest - self.grace_ms
        for window in self.windows(record.timestamp):
            if window.end > over:
                self._add(run, record, window)
        if self.unlimited_from is None:
            self._expire(run, record, over)

    def _add(self, run: Run, record: Record[Any, Any], window: Window) -> None:
        entries = run.stores.get(self.store, record.key) or []
        there = next((one for one in entries if one[0] == window.start), None)
        old = None if there is None else there[2]
        at = record.timestamp if there is None else max(record.timestamp, there[3])
        new = self.added(record.key, record.value, old)
        left = [one for one in entries if one is not there]
        if new is not None:
            left.append([window.start, window.end, new, at])
            if there is None and window.end != FOREVER:
                run.stores.note(self.store, window.end, record.key)
        key = Windowed(record.key, window)
        before = self.lookup(run, key) if self.sends_old else None
        run.stores.put(self.store, record.key, sorted(left, key=lambda one: int(one[0])) or None)
        if not self.final:
            run.changed(self, record.put(key=key, value=Change(new, before and before[0]), timestamp=at))

    def _expire(self, run: Run, record: Record[Any, Any], over: int) -> None:
        """Makes the results of windows that are over, if they are to be made then, and forgets the windows."""
        for end, key in run.stores.due(self.store, over):
            entries = run.stores.get(self.store, key) or []
            run.stores.put(self.store, key, [one for one in entries if one[1] != end] or None)
            for start, _, value, at in [one for one in entries if one[1] == end] if self.final else ():
                named = Windowed(key, Window(start, end))
                run.forward(self, record.put(key=named, value=Change(value, None), timestamp=at))

    def lookup(self, run: Run, key: Any) -> Kept | None:
        entries = run.stores.get(self.store, key.key) or []
        return next(((one[2], one[3]) for one in entries if one[0] == key.window.start), None)


@dataclass
class SessionAggregate(Aggregating):
    """Windows that end when nothing has come for `gap_ms`. merge: the aggregate of two sessions, of key and both."""

    gap_ms: int = 0
    grace_ms: int = 0
    merge: Callable[[Any, Any, Any], Any] = None  # type: ignore[assignment]
    final: bool = False

    @property
    def functions(self) -> tuple[Any, ...]:
        return (*super().functions, self.merge)

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if record.key is None:
            return
        at = record.timestamp
        over = run.note_time(self, at) - self.grace_ms - self.gap_ms
        entries = run.stores.get(self.store, record.key) or []
        put = run.stores.get(self.store + PUT, "")
        put = NEVER if put is None else put
        near = [
            one
            for one in entries
            if one[1] >= at - self.gap_ms
            and one[0] <= at + self.gap_ms
            and (self.final or one[1] > put - self.gap_ms - self.grace_ms)
        ]
        window = Window(min([at, *(one[0] for one in near)]), max([at, *(one[1] for one in near)]))
        if window.end >= over:
            self._add(run, record, entries, near, window, max(put, window.end))
        self._expire(run, record, over)

    def _add(
        self, run: Run, record: Record[Any, Any], entries: Any, near: Any, window: Window, put: int
    ) -> None:
        aggregate = None if self.init is None else self.init()
        for one in near:
            aggregate = one[2] if aggregate is None else self.merge(record.key, aggregate, one[2])
        if window != Window(record.timestamp, record.timestamp):
            for start, end, old, _ in near:
                change = Change(None, old if self.sends_old else None)
                key = Windowed(record.key, Window(start, end))
                self._tell(run, record.put(key=key, value=change, timestamp=end))
        if aggregate is None and self.init is None:
            new = record.value
        else:
            new = self.add(record.key, record.value, aggregate)
        run.stores.put(self.store + PUT, "", put)
        left = [one for one in entries if one not in near]
        if new is not None and (self.final or window.end > put - self.gap_ms - self.grace_ms):
            left.append([window.start, window.end, new, window.end])
            run.stores.note(self.store, window.end, record.key)
        run.stores.put(self.store, record.key, sorted(left, key=lambda one: (one[1], one[0])) or None)
        key = Windowed(record.key, window)
        self._tell(run, record.put(key=key, value=Change(new, None), timestamp=window.end))

    def _tell(self, run: Run, record: Record[Any, Any]) -> None:
        if not self.final:
            run.forward(self, record)

    def _expire(self, run: Run, record: Record[Any, Any], over: int) -> None:
        for end, key in run.stores.due(self.store, over - 1):
            entries = run.stores.get(self.store, key) or []
            run.stores.put(self.store, key, [one for one in entries if one[1] != end] or None)
            for start, _, value, at in [one for one in entries if one[1] == end] if self.final else ():
                named = Windowed(key, Window(start, end))
                run.forward(self, record.put(key=named, value=Change(value, None), timestamp=at))

    def lookup(self, run: Run, key: Any) -> Kept | None:
        entries = run.stores.get(self.store, key.key) or []
        wanted = (key.window.start, key.window.end)
        return next(((one[2], one[3]) for one in entries if (one[0], one[1]) == wanted), None)
