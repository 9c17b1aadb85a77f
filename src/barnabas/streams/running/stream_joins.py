"""Nodes that join two streams: each keeps its records for as long as partners may come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from barnabas.streams.records import Record
from barnabas.streams.running.joins import Joiner
from barnabas.streams.running.run import Node, Run


@dataclass
class StreamSide(Node):
    """One side of a join of streams. store: its records; other: the store of the other side. before_ms, after_ms: how much
    older and younger a partner may be. keeps: whether a record without a partner makes a result, once none can come;
    either: whether one of either side does. shared: the name of the join, for what both sides note. join: of the key, this
    side's value and the other's."""

    store: str = ""
    other: str = ""
    shared: str = ""
    is_left: bool = True
    before_ms: int = 0
    after_ms: int = 0
    grace_ms: int = 0
    keeps: bool = False
    either: bool = False
    join: Joiner = None  # type: ignore[assignment]
    reads_time: ClassVar[str] = "\x1elatest"

    @property
    def functions(self) -> tuple[Any, ...]:
        return (self.join,)

    def process(self, run: Run, record: Record[Any, Any]) -> None:
        latest = self._note_time(run, record.timestamp)
        if record.key is not None:
            run.note_time(self, record.timestamp)
        if record.value is None:
            return
        if record.key is None:
            if self.keeps:
                run.forward(self, record.put(value=self._joined(None, record.value, None)))
            return
        if self.either and record.timestamp == latest:
            self._tell_lonely(run, record, latest)
        met = self._meet(run, record, latest)
        if self.keeps and not met:
            if record.timestamp + self.after_ms < latest:
                run.forward(self, record.put(value=self._joined(record.key, record.value, None)))
            else:
                self._wait(run, record)
        self._put(run, record, latest)

    def _joined(self, key: Any, mine: Any, theirs: Any) -> Any:
        return self.join(key, mine, theirs) if self.is_left else self.join(key, theirs, mine)

    def _note_time(self, run: Run, at: int) -> int:
        before = run.stores.get(self.shared + self.reads_time, "")
        if before is None or at > before:
            run.stores.put(self.shared + self.reads_time, "", at)
        return at if before is None else max(before, at)

    @property
    def _retention_ms(self) -> int:
        return self.before_ms + self.after_ms + self.grace_ms

    def _put(self, run: Run, record: Record[Any, Any], latest: int) -> None:
        own = run.note_time(self, record.timestamp)
        for _, key in run.stores.due(self.store, own - self._retention_ms):
            left = [one for one in run.stores.get(self.store, key) or [] if one[0] > own - self._retention_ms]
            run.stores.put(self.store, key, left or None)
        if record.timestamp <= own - self._retention_ms:
            return
        entries = run.stores.get(self.store, record.key) or []
        entries = sorted([*entries, [record.timestamp, record.value]], key=lambda one: int(one[0]))
        run.stores.put(self.store, record.key, entries)
        run.stores.note(self.store, record.timestamp, record.key)

    def _meet(self, run: Run, record: Record[Any, Any], latest: int) -> bool:
        """Makes the results with all partners that are there; whether there were any."""
        has_met = False
        begin = max(0, record.timestamp - self.before_ms)
        for at, value in run.stores.get(self.other, record.key) or []:
            if begin <= at <= record.timestamp + self.after_ms:
                has_met = True
                self._release(run, record.key, at)
                joined = self._joined(record.key, record.value, value)
                run.forward(self, record.put(value=joined, timestamp=max(record.timestamp, at)))
        return has_met

    # --- records without a partner so far -----------------------------------------------------------------

    def _wait(self, run: Run, record: Record[Any, Any]) -> None:
        side = "l" if self.is_left else "r"
        name = [record.timestamp, side, record.key]
        waiting = run.stores.get(self.shared, name) or []
        run.stores.put(self.shared, name, [*waiting, record.value])
        run.stores.note(self.shared + side, record.timestamp, record.key)

    def _release(self, run: Run, key: Any, at: int) -> None:
        if self.either:
            run.stores.put(self.shared, [at, "r" if self.is_left else "l", key], None)

    def _tell_lonely(self, run: Run, record: Record[Any, Any], latest: int) -> None:
        """Makes the results of records of both sides for which no partner can come any more, the earliest first."""
        lonely: list[tuple[int, str, Any]] = []
        for side in "lr":
            after = self.after_ms if (side == "l") == self.is_left else self.before_ms
            until = latest - after - self.grace_ms - 1
            lonely += [(at, side, key) for at, key in run.stores.due(self.shared + side, until)]
        for at, side, key in sorted(lonely, key=lambda one: one[:2]):
            values = run.stores.get(self.shared, [at, side, key]) or []
            run.stores.put(self.shared, [at, side, key], None)
            for value in values:
                mine = (side == "l") == self.is_left
                pair = (value, None) if mine else (None, value)
                joined = record.put(key=key, value=self._joined(key, *pair), timestamp=at)
                run.forward(self, joined)
