"""Aggregates that users write, over windows of event time: tumbling, hopping, sliding by record, and sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar

from barnabas.pipelines.plan.processing import Windows
from barnabas.pipelines.processing.processor import (
    MILLISECOND,
    ListState,
    MapState,
    Processor,
    milliseconds,
)
from barnabas.pipelines.processing.values import EPOCH


class TooLate(ValueError):
    """A row came when its window was over."""


class Aggregator:
    """An aggregate of its own. accumulator: the type of what is kept for each window. returns: the fields of the result.
    takes: the fields that `add` uses, with their types; only needed for sliding windows, which keep rows.

    An accumulator that `add` and `merge` were given may be changed and returned. merge: only needed for sessions.
    """

    accumulator: ClassVar[str] = ""
    takes: ClassVar[Mapping[str, str]] = {}
    returns: ClassVar[Mapping[str, str]] = {}

    def init(self) -> Any:
        """The accumulator of no rows."""
        raise NotImplementedError(f"{type(self).__name__} has no method init(self)")

    def add(self, accumulator: Any, row: dict[str, Any]) -> Any:
        """The accumulator with one more row."""
        raise NotImplementedError(f"{type(self).__name__} has no method add(self, accumulator, row)")

    def merge(self, accumulator: Any, other: Any) -> Any:
        """The accumulator of the rows of both; `other` has the later ones."""
        raise NotImplementedError(f"{type(self).__name__} has no method merge(self, accumulator, other)")

    def result(self, accumulator: Any) -> Mapping[str, Any]:
        """The fields of the result."""
        raise NotImplementedError(f"{type(self).__name__} has no method result(self, accumulator)")


def windowed(code: type[Aggregator], windows: Windows, keys: tuple[str, ...]) -> type[Processor]:
    """A processor that aggregates the rows of each key and window. keys: the fields for the key's values."""
    bases: Mapping[str, type[_Windowed]] = {"every": _Fixed, "session": _Sessions, "sliding": _Sliding}
    rows = ",".join(f"`{name}`:{kind}" for name, kind in code.takes.items())
    states: dict[str, Any] = {}
    if windows.kind == "every":
        states["kept"] = MapState("timestamp", code.accumulator)
    elif windows.kind == "session":
        states["kept"] = MapState("timestamp", f"struct<last:timestamp,of:{code.accumulator}>")
    else:
        states["rows"] = ListState(f"struct<at:timestamp,row:struct<{rows or 'nothing:int'}>>")
    for name, state in states.items():
        state.__set_name__(bases[windows.kind], name)
    members = {**states, "code": code, "windows": windows, "keys": keys, "__module__": code.__module__}
    return type(f"{code.__name__}InWindows", (bases[windows.kind],), members)


class _Windowed(Processor):
    """What is common to all kinds of windows."""

    code: ClassVar[type[Aggregator]]
    windows: ClassVar[Windows]
    keys: ClassVar[tuple[str, ...]]

    def init(self) -> None:
        self.aggregator = self.code()
        self.length = self.windows.length_ms * MILLISECOND

    def _time(self) -> datetime:
        assert self.time is not None, "a step with windows goes by event time"
        return self.time

    def _is_over(self, end: datetime) -> bool:
        return self.watermark is not None and end <= self.watermark

    def _late(self, end: datetime) -> TooLate:
        reached = "" if self.watermark is None else self.watermark.isoformat()
        return TooLate(f"its window ended at {end.isoformat()}, and the event time is {reached}")

    def _row(self, accumulator: Any, start: datetime, end: datetime) -> dict[str, Any]:
        values = (self.key,) if len(self.keys) == 1 else self.key
        bounds = {self.windows.start: start, **({self.windows.end: end} if self.windows.end else {})}
        return {**dict(zip(self.keys, values, strict=True)), **bounds, **self.aggregator.result(accumulator)}


class _Fixed(_Windowed):
    """Windows of one length that begin at fixed times."""

    kept: MapState

    def _starts(self, at: datetime) -> Iterator[datetime]:
        slide = self.windows.slide_ms * MILLISECOND
        start = EPOCH + (at - EPOCH) // slide * slide
        while start + self.length > at:
            yield start
            start -= slide

    def process(self, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        at = self._time()
        starts = [start for start in self._starts(at) if not self._is_over(start + self.length)]
        if not starts:
            raise self._late(max(self._starts(at), default=at) + self.length)
        for start in sorted(starts):
            before = self.kept.get(start)
            now = self.aggregator.add(self.aggregator.init() if before is None else before, row)
            self.kept[start] = now
            self.timers.set(start + self.length)
            if not self.windows.final:
                yield self._row(now, start, start + self.length)

    def on_timer(self, at: datetime) -> Iterable[dict[str, Any]]:
        for start in sorted(self.kept):
            if start + self.length <= at:
                if self.windows.final:
                    yield self._row(self.kept[start], start, start + self.length)
                del self.kept[start]


class _Sessions(_Windowed):
    """Windows that end when nothing has come for a time."""

    kept: MapState

    def process(self, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        at = self._time()
        near = sorted(
            start
            for start, session in self.kept.items()
            if start < at + self.length and at < session["last"] + self.length
        )
        if not near and self._is_over(at + self.length):
            raise self._late(at + self.length)
        accumulator, last = None, at
        for start in near:
            session = self.kept.pop(start)
            self.timers.delete(session["last"] + self.length)
            last = max(last, session["last"])
            of = session["of"]
            accumulator = of if accumulator is None else self.aggregator.merge(accumulator, of)
        first = min([at, *near])
        added = self.aggregator.add(self.aggregator.init() if accumulator is None else accumulator, row)
        self.kept[first] = {"last": last, "of": added}
        # Several sessions of a key may end at the same time, and have one timer: deleting it above would forget the others.
        for session in self.kept.values():
            self.timers.set(session["last"] + self.length)
        return ()

    def on_timer(self, at: datetime) -> Iterable[dict[str, Any]]:
        for start in sorted(self.kept):
            session = self.kept[start]
            end = session["last"] + self.length
            if end <= at:
                yield self._row(session["of"], start, end)
                del self.kept[start]


class _Sliding(_Windowed):
    """For each row a window that ends with it, and has the rows of the time before: both bounds belong to it."""

    rows: ListState

    def process(self, row: dict[str, Any]) -> Iterable[dict[str, Any]]:
        at = self._time()
        if self._is_over(at):
            raise self._late(at)
        self.rows.append({"at": at, "row": {name: row.get(name) for name in self.code.takes}})
        self.timers.set(at)
        self.timers.set(at + self.length)  # until then it is in windows of later rows
        if self.windows.final:
            return
        rows = list(self.rows)
        for end in sorted({one["at"] for one in rows if at <= one["at"] <= at + self.length}):
            yield self._of(rows, end)

    def _of(self, rows: list[dict[str, Any]], end: datetime) -> dict[str, Any]:
        accumulator = self.aggregator.init()
        for one in sorted(rows, key=lambda one: one["at"]):
            if end - self.length <= one["at"] <= end:
                accumulator = self.aggregator.add(accumulator, one["row"])
        return self._row(accumulator, end - self.length, end)

    def on_timer(self, at: datetime) -> Iterable[dict[str, Any]]:
        rows = list(self.rows)
        if self.windows.final:
            for end in sorted({one["at"] for one in rows if at - MILLISECOND < one["at"] <= at}):
                yield self._of(rows, end)
        # Windows that are not over yet end later, and reach less far back.
        self.rows.set([one for one in rows if one["at"] > at - self.length])


def windows_in(entries: Mapping[str, str], emit: str = "final") -> Windows:
    """Windows as a pipeline file has them: {every, slide}, {session} or {sliding}, with the names of fields in as and end.
    Raises ValueError."""
    kind: Any = next((kind for kind in ("every", "session", "sliding") if kind in entries), None)
    if kind is None:
        raise ValueError("a window needs every, session or sliding")
    whole = milliseconds(entries[kind])
    step = milliseconds(entries["slide"]) if "slide" in entries else whole
    if whole <= 0 or not 0 < step <= whole:
        raise ValueError("a window is longer than nothing, and slides by at most its length")
    if emit == "changes" and kind == "session":
        raise ValueError("sessions need emit: final: until a session is over, its end may still change")
    return Windows(kind, whole, step, entries.get("as", "window"), entries.get("end", ""), emit != "changes")
