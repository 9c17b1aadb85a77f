"""Runs a topology in the process itself, without Spark, a broker or Java.

    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_input("lines", None, "to be or not to be")
        assert [(r.key, r.value) for r in driver.read_output("counts")][-1] == ("be", 2)

It interprets the plan that Spark runs (`barnabas.pipelines.plan.interpret`), record by record.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from barnabas.pipelines.plan.graph import plan_of
from barnabas.pipelines.plan.interpret.interpreter import Interpreter
from barnabas.pipelines.plan.interpret.processes import Record as Input
from barnabas.pipelines.processing.testing import MemoryWork
from barnabas.streams.durations import Duration, milliseconds
from barnabas.streams.errors import StreamsError
from barnabas.streams.queries import view_of
from barnabas.streams.records import Record, headers_of, milliseconds_of, pairs_of
from barnabas.streams.running.flows import Source
from barnabas.streams.serdes import STRING
from barnabas.streams.stages import WRITTEN, plan_from
from barnabas.streams.texts import value_of
from barnabas.streams.topology import Topology

log = logging.getLogger("barnabas.streams")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be processed, and why."""

    topic: str
    key: bytes | None
    value: bytes | None
    reason: str


class TopologyTestDriver:
    """A topology at work. now: where its clock begins, in milliseconds since 1970 or as a datetime; it moves only by
    `advance_time`. dead_letters: the records that could not be processed."""

    def __init__(self, topology: Topology, *, now: int | datetime = 0) -> None:
        if not isinstance(topology, Topology):
            raise StreamsError("TopologyTestDriver needs a topology: builder.build()")
        self.topology = replace(topology, tasks=1, shows=True, named=frozenset())
        self._works: list[MemoryWork] = []
        self._interpreter = Interpreter(plan_of(plan_from(self.topology)), self._at_work)
        self._interpreter.now_ms = milliseconds_of(now)
        self._seen = 0
        self._letters_seen = 0
        self._offsets: dict[str, int] = {}
        self._outputs: dict[str, deque[Record[Any, Any]]] = {}

    def _at_work(self, step: Any) -> MemoryWork:
        work = MemoryWork(step)
        self._works.append(work)
        return work

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open; for symmetry with `with`."""

    @property
    def now(self) -> int:
        """The clock, in milliseconds since 1970."""
        return self._interpreter.now_ms

    # --- in -----------------------------------------------------------------------------------------------

    def pipe_input(
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        timestamp: int | datetime | None = None,
        headers: Any = None,
    ) -> None:
        """Processes a record: key and value as the source's serdes have them, or as bytes. timestamp: in milliseconds since
        1970 or a datetime; None: the clock. headers: a dict or pairs. Raises StreamsError for a topic that nothing reads."""
        source = self._source(topic)
        at = self.now if timestamp is None else milliseconds_of(timestamp)
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        record = Input(
            topic,
            _bytes(source.key, key, "key"),
            _bytes(source.value, value, "value"),
            at * 1000,
            0,
            offset,
            pairs_of(headers),
        )
        self._interpreter.read([record])
        self._collect()

    def _source(self, topic: str) -> Source:
        for source in self.topology.sources:
            if topic in source.topics:
                return source
        raise StreamsError(
            f"the topology does not read {topic!r}; it reads {', '.join(self.topology.topics)}"
        )

    def advance_time(self, by: Duration) -> None:
        """Moves the clock: calls that are scheduled by it are made."""
        self._interpreter.advance(self.now + milliseconds(by))
        self._collect()

    advance_wall_clock_time = advance_time

    # --- out ----------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        rows = self._interpreter.stream(WRITTEN)
        for row in rows[self._seen :]:
            record = Record(
                value_of(row["key"], self.topology.classes),
                value_of(row["value"], self.topology.classes),
                row["at"],
                headers_of(row["headers"]),
            )
            self._outputs.setdefault(row["to"], deque()).append(record)
        self._seen = len(rows)
        letters = self._interpreter.letters
        for letter in letters[self._letters_seen :]:
            log.warning("a record of %s became a dead letter: %s", letter.record.topic, letter.reason)
        self._letters_seen = len(letters)

    def read_output(self, topic: str) -> list[Record[Any, Any]]:
        """The records that were written to a topic and have not been read yet."""
        records = list(self._outputs.get(topic, ()))
        self._outputs.pop(topic, None)
        return records

    def read_record(self, topic: str) -> Record[Any, Any] | None:
        """The next record of a topic; None if there is none."""
        waiting = self._outputs.get(topic)
        return waiting.popleft() if waiting else None

    def read_values(self, topic: str) -> list[Any]:
        """The values of `read_output`."""
        return [record.value for record in self.read_output(topic)]

    def read_table(self, topic: str) -> dict[Any, Any]:
        """The last value of each key among the records of `read_output`; deleted keys are left out."""
        rows: dict[Any, Any] = {}
        for record in self.read_output(topic):
            rows.pop(record.key, None)
            if record.value is not None:
                rows[record.key] = record.value
        return rows

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """The records that could not be processed."""
        return [
            DeadLetter(one.record.topic, one.record.key, one.record.value, one.reason)
            for one in self._interpreter.letters
        ]

    # --- state --------------------------------------------------------------------------------------------

    def store(self, name: str) -> Any:
        """What a store keeps now: `driver.store("counts").get("be")`. Raises StreamsError if there is no such store."""
        entries: dict[str, str] = {}
        for work in self._works:
            for (_, state), kept in work.store.kept.items():
                if state == "kept":
                    entries.update({_text(key): _text(text) for key, (text, _) in kept.items()})
        return view_of(self.topology, name, entries)

    get_state_store = store

    def stores(self) -> Iterator[str]:
        """The names of the stores that can be looked into."""
        yield from self.topology.queryable


def _text(written: str) -> str:
    """State keeps text as JSON text."""
    text: str = json.loads(written)
    return text


def _bytes(serde: Any, value: Any, what: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str) and serde.name == "text":
        return STRING.write(value, what)
    try:
        written: bytes | None = serde.write(value, what)
    except ValueError as error:
        raise StreamsError(str(error)) from None
    return written
