"""Sliding windows: one for each span of records that are at most a difference apart.

Each record has a window that ends with it, and one that begins right after it as soon as that has records. Windows that
would begin before 1970 are one, from 0 on. Both bounds of a window belong to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from barnabas.streams.records import Change, Record, Window, Windowed
from barnabas.streams.running.aggregates import Aggregating
from barnabas.streams.running.run import Run
from barnabas.streams.running.tables import Kept


@dataclass
class _Near:
    """The windows near a record. left, right: aggregate and timestamp for the windows that end with it and begin after it.
    there: whether those exist. before: the time of the record before it. starts: of all windows near."""

    left: Kept | None = None
    right: Kept | None = None
    left_there: bool = False
    right_there: bool = False
    before: int | None = None
    starts: set[int] = field(default_factory=set)


@dataclass
class SlidingAggregate(Aggregating):
    """difference_ms: how far the records of a window may be apart. grace_ms: how long after its end it takes records."""

    difference_ms: int = 0
    grace_ms: int = 0

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        if record.key is None or record.value is None:
            return
        at, difference = record.timestamp, self.difference_ms
        latest = run.note_time(self, at)
        over = latest - self.grace_ms
        if at + 1 + difference > over:
            if at < difference:
                self._early(run, record, over)
            else:
                self._usual(run, record, over)
        for _, key in run.stores.due(self.store, latest - 2 * difference - self.grace_ms):
            kept = run.stores.get(self.store, key) or []
            left = [one for one in kept if one[0] > latest - 2 * difference - self.grace_ms]
            run.stores.put(self.store, key, left or None)

    def _windows(self, run: Run, key: Any, first: int, last: int) -> list[Any]:
        """The windows that begin from `first` to `last`: start, end, aggregate and timestamp; the earliest first."""
        return [one for one in run.stores.get(self.store, key) or [] if first <= one[0] <= last]

    def _usual(self, run: Run, record: Record[Any, Any], over: int) -> None:
        at, difference = record.timestamp, self.difference_ms
        near = _Near()
        for start, end, value, time in reversed(
            self._windows(run, record.key, max(0, at - 2 * difference), at + 1)
        ):
            near.starts.add(start)
            if start == at + 1:
                near.right_there = True
            elif end > at:
                near.right = near.right or (value, time)
                self._update(run, record, start, (value, time), over)
            elif end == at:
                near.left_there = True
                self._update(run, record, start, (value, time), over)
                if time >= at:
                    return  # a record of the same time has made all windows
                near.before = time
            else:
                near.left, near.before = (value, time), time
                break
        before = near.before
        if before is not None and before + 1 not in near.starts and before + 1 + difference >= at:
            self._update(run, record, before + 1, None, over)
        if not near.left_there:
            has_left = before is not None and at - difference <= before
            self._update(run, record, at - difference, near.left if has_left else None, over)
        self._begin_right(run, record, near, over)

    def _early(self, run: Run, record: Record[Any, Any], over: int) -> None:
        at = record.timestamp
        near, whole = _Near(), None
        for start, _, value, time in self._windows(run, record.key, 0, at + 1):
            near.starts.add(start)
            if start == 0:
                whole = (value, time)
                near.before = time if time < at else None
            elif start <= at:
                near.right = (value, time)
                self._update(run, record, start, (value, time), over)
            else:
                near.right_there = True
        if near.right is None and whole is not None and whole[1] > at:
            near.right = whole
        self._begin_right(run, record, near, over)
        if near.before is not None and near.before + 1 not in near.starts:
            self._update(run, record, near.before + 1, None, over)
        self._update(run, record, 0, whole, over)

    def _begin_right(self, run: Run, record: Record[Any, Any], near: _Near, over: int) -> None:
        """Begins the window after a record, if there are younger ones."""
        if not near.right_there and near.right is not None and near.right[1] > record.timestamp:
            self._put(run, record, record.timestamp + 1, near.right[0], near.right[1], over)

    def _update(self, run: Run, record: Record[Any, Any], start: int, before: Kept | None, over: int) -> None:
        """Adds a record to a window. before: its aggregate so far, and the latest timestamp."""
        if start + self.difference_ms < over:
            return
        new = self.added(record.key, record.value, None if before is None else before[0])
        at = record.timestamp if before is None else max(record.timestamp, before[1])
        self._put(run, record, start, new, at, over)

    def _put(self, run: Run, record: Record[Any, Any], start: int, value: Any, at: int, over: int) -> None:
        end = start + self.difference_ms
        if end < over:
            return
        key = Windowed(record.key, Window(start, end))
        old = self.lookup(run, key) if self.sends_old else None
        left = [one for one in run.stores.get(self.store, record.key) or [] if one[0] != start]
        if value is not None:
            left = sorted([*left, [start, end, value, at]], key=lambda one: int(one[0]))
            run.stores.note(self.store, start, record.key)
        run.stores.put(self.store, record.key, left or None)
        run.forward(self, record.put(key=key, value=Change(value, old and old[0]), timestamp=at))

    def lookup(self, run: Run, key: Any) -> Kept | None:
        entries = run.stores.get(self.store, key.key) or []
        return next(((one[2], one[3]) for one in entries if one[0] == key.window.start), None)
