"""Tests of processors without Spark: a processor with its state in memory.

test = ProcessorTest(Dangerous, key="driver", time="event", of="at", late="10 minutes")
assert test.send({"driver": "Ada", "at": noon}) == []
test.advance(noon + timedelta(minutes=20))     # timers whose time has come
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from barnabas.pipelines.plan.interpret.expressions import Failed
from barnabas.pipelines.plan.processing import Process, State
from barnabas.pipelines.processing.engine import Engine, RowOutcome
from barnabas.pipelines.processing.processor import MILLISECOND, Processor, declared_states, milliseconds
from barnabas.pipelines.processing.values import EPOCH
from barnabas.pipelines.processing.windows import Aggregator, windowed, windows_in


class MemoryStore:
    """The states of all keys. `key` and `now_ms` are set before each call."""

    def __init__(self, states: Mapping[str, State]) -> None:
        self.states = states
        self.key: Any = None
        self.now_ms = 0
        self.kept: dict[tuple[Any, str], dict[str, tuple[str, int]]] = {}
        self.lists: dict[tuple[Any, str], list[tuple[str, int]]] = {}
        self.timer_times: dict[Any, set[int]] = {}

    def _fresh(self, name: str, since_ms: int) -> bool:
        ttl = self.states[name].ttl_ms
        return ttl is None or self.now_ms < since_ms + ttl

    def get(self, name: str, key: str) -> str | None:
        entry = self.kept.get((self.key, name), {}).get(key)
        return None if entry is None or not self._fresh(name, entry[1]) else entry[0]

    def put(self, name: str, key: str, text: str | None) -> None:
        entries = self.kept.setdefault((self.key, name), {})
        if text is None:
            entries.pop(key, None)
        else:
            entries[key] = (text, self.now_ms)

    def pairs(self, name: str) -> list[tuple[str, str]]:
        entries = self.kept.get((self.key, name), {})
        return [(key, text) for key, (text, since) in entries.items() if self._fresh(name, since)]

    def value(self, name: str) -> str | None:
        return self.get(name, "")

    def set_value(self, name: str, text: str | None) -> None:
        self.put(name, "", text)

    def entries(self, name: str) -> list[str]:
        kept = self.lists.get((self.key, name), [])
        return [text for text, since in kept if self._fresh(name, since)]

    def set_entries(self, name: str, texts: list[str]) -> None:
        self.lists[self.key, name] = [(text, self.now_ms) for text in texts]

    def append(self, name: str, texts: list[str]) -> None:
        self.lists.setdefault((self.key, name), []).extend((text, self.now_ms) for text in texts)

    def timers(self) -> list[int]:
        return sorted(self.timer_times.get(self.key, ()))

    def set_timer(self, at_ms: int) -> None:
        self.timer_times.setdefault(self.key, set()).add(at_ms)

    def delete_timer(self, at_ms: int) -> None:
        self.timer_times.get(self.key, set()).discard(at_ms)


class ProcessorFailed(AssertionError):
    """The processor raised an error for a row or a timer. The message is what would be the reason of the dead letter."""


class MemoryWork:
    """A step of user code with its state in memory, for the interpreter of plans."""

    def __init__(self, step: Process) -> None:
        self.step = step
        self.store = MemoryStore(step.states)
        self._engine = Engine(step.code, step.states, step.returns, self.store)

    def process(self, key: Any, fields: dict[str, Any], now_ms: int) -> list[dict[str, Any]]:
        """The rows that are made of one. Raises Failed."""
        self._begin(key, now_ms)
        self._engine.prepare([fields])
        return self._taken(self._engine.process(fields))

    def advance(self, now_ms: int) -> list[dict[str, Any]]:
        """The rows of timers whose time has come. Raises Failed."""
        rows: list[dict[str, Any]] = []
        while due := [
            (at, key) for key, times in self.store.timer_times.items() for at in times if at <= now_ms
        ]:
            at, key = min(due, key=lambda one: one[0])
            self.store.timer_times[key].discard(at)
            self._begin(key, now_ms)
            rows += self._taken(self._engine.fire(at))
        return rows

    def _begin(self, key: Any, now_ms: int) -> None:
        self.store.key, self.store.now_ms = key, now_ms
        self._engine.begin(key, now_ms, None, timed=self.step.time != "none")

    def _taken(self, answer: RowOutcome) -> list[dict[str, Any]]:
        finished = self._engine.finish() if self._engine.finishes else RowOutcome()
        self._engine.end()
        for part in (answer, finished):
            if part.reason is not None:
                raise Failed(part.reason)
        return [*answer.rows, *finished.rows]


class ProcessorTest:
    """A processor with its state in memory, as one partition of a pipeline would have it.

    key: the names of the key's fields. time: what timers go by: event or clock. of, late: the field with the event time and
    how late a row may be, as a relation's `time` has them. window, emit: of an Aggregator, as a pipeline file has them.
    `rows` are all rows that were made so far.
    """

    def __init__(
        self,
        code: type[Processor] | type[Aggregator],
        key: str | Iterable[str],
        *,
        time: str = "none",
        of: str | None = None,
        late: str | timedelta = "0 seconds",
        now: datetime = EPOCH,
        window: Mapping[str, str] | None = None,
        emit: str = "final",
    ) -> None:
        self._names = (key,) if isinstance(key, str) else tuple(key)
        self._time, self._of, self._late_ms = time, of, milliseconds(late)
        self._now_ms = (now - EPOCH) // MILLISECOND
        self._watermark_ms: int | None = None
        returns: dict[str, str | None] = dict(code.returns)
        if issubclass(code, Aggregator):
            self._time = "event"
            windows = windows_in(window or {}, emit)
            code = windowed(code, windows, self._names)
            returns = {**dict.fromkeys((*self._names, *windows.names)), **returns}
        states = declared_states(code)
        self.store = MemoryStore(states)
        self._engine = Engine(code, states, returns, self.store)
        self.rows: list[dict[str, Any]] = []

    def send(self, *rows: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Processes rows, and returns what was made of them and of the timers whose time has come by them. Raises
        ProcessorFailed."""
        rows_sent: list[dict[str, Any]] = []
        for row in rows:
            key = tuple(row[name] for name in self._names)
            self._begin(key)
            self._engine.prepare([dict(row)])
            time = None if self._of is None or self._time != "event" else row[self._of]
            rows_sent += self._taken(self._engine.process(dict(row), time))
            if self._of is not None and self._time == "event":
                reached = (row[self._of] - EPOCH) // MILLISECOND - self._late_ms
                self._watermark_ms = max(reached, self._watermark_ms or reached)
        return self._kept(rows_sent + self._due())

    def advance(self, to: datetime) -> list[dict[str, Any]]:
        """Lets the clock, or the watermark of the event time, reach a time; returns what timers made. Raises
        ProcessorFailed."""
        reached = (to - EPOCH) // MILLISECOND
        if self._time == "event":
            self._watermark_ms = max(reached, self._watermark_ms or reached)
        else:
            self._now_ms = max(self._now_ms, reached)
        return self._kept(self._due())

    def _kept(self, emitted: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.rows += emitted
        return emitted

    def _begin(self, key: tuple[Any, ...]) -> None:
        self.store.key, self.store.now_ms = key, self._now_ms
        named = key[0] if len(key) == 1 else key
        self._engine.begin(named, self._now_ms, self._watermark_ms, timed=self._time != "none")

    def _taken(self, answer: RowOutcome) -> list[dict[str, Any]]:
        finished = self._engine.finish() if self._engine.finishes else RowOutcome()
        self._engine.end()
        for part in (answer, finished):
            if part.reason is not None:
                raise ProcessorFailed(part.reason)
        return [*answer.rows, *finished.rows]

    def _due(self) -> list[dict[str, Any]]:
        reached = self._watermark_ms if self._time == "event" else self._now_ms
        rows: list[dict[str, Any]] = []
        if self._time == "none" or reached is None:
            return rows
        due = [(at, key) for key, times in self.store.timer_times.items() for at in times if at <= reached]
        for at, key in sorted(due, key=lambda one: one[0]):
            self._begin(key)
            result = self._engine.fire(at)
            self.store.delete_timer(at)
            rows += self._taken(result)
        return rows
