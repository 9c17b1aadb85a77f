"""Signals of Debezium: rows that are inserted into a signal table and ask for tables to be read again.

    INSERT INTO signals (id, type, data) VALUES ('1', 'execute-snapshot',
        '{"data-collections": ["public.orders"], "type": "incremental"}');

What is to be read and how far the reading has come is in the offsets, so a restart goes on behind the last chunk. How a
chunk is read, and which of its rows were changed meanwhile, depends on the database.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from barnabas.connect.cdc.envelope import Table, event
from barnabas.connect.records import Json, SourceRecord

log = logging.getLogger("barnabas.connect")

EXECUTE, STOP, PAUSE, RESUME = "execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot"
OPEN: Final = "snapshot-window-open"
CLOSE: Final = "snapshot-window-close"
MakeSource = Callable[[Table], Mapping[str, Any]]


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Rows that wait for their mark in the stream. id: of the mark. rows: by key. last: the last key; None if these are the
    last rows of the table."""

    id: str
    table: Table
    key: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Any]]
    last: tuple[Any, ...] | None


C = TypeVar("C", bound=Chunk)


class Signalled(Generic[C]):
    """What signals have asked for, and the chunk that was read last. Methods raise what the database's client raises.

    state: the tables that are still to be read (name, filter), the last key of the first one, and its greatest key when its
    reading began.
    """

    def __init__(self, state: Json | None, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._chunk: C | None = None
        self._connection: Any = None
        self._todo: list[dict[str, str]] = [dict(one) for one in (state or {}).get("tables", ())]
        self._after: tuple[Any, ...] | None = _key((state or {}).get("after"))
        self._until: tuple[Any, ...] | None = _key((state or {}).get("until"))
        self._paused = bool((state or {}).get("paused"))

    def _connected(self) -> Any:
        """A new connection."""
        raise NotImplementedError

    def _paths(self) -> list[str]:
        """The captured tables."""
        raise NotImplementedError

    def _read_chunk(self) -> None:
        """Reads the next chunk of the first table, or goes on to the next table."""
        raise NotImplementedError

    def _opened(self, id: str) -> None:
        """The mark before a chunk was read in the stream."""

    def _changed(self, chunk: C) -> Collection[str] | None:
        """The keys of a chunk's rows of which the stream has newer events; None if that is not known."""
        raise NotImplementedError

    def _run(self) -> Any:
        if self._connection is None:
            self._connection = self._connected()
        return self._connection

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def step(self) -> None:
        """Reads a chunk, if one is to be read and none waits."""
        while self._todo and self._chunk is None and not self._paused:
            self._read_chunk()

    def _left_out(self, table: str, why: str) -> None:
        log.warning("a table cannot be read", extra={"table": table, "reason": why})
        self._next_table(table)

    def _closed(self, id: str, source: MakeSource) -> list[SourceRecord]:
        """The mark behind a chunk was read in the stream; the chunk's events."""
        chunk = self._chunk
        if chunk is None or chunk.id != id:
            return []  # of another run, or of a snapshot that was stopped
        self._chunk = None
        changed = self._changed(chunk)
        if changed is None:
            log.info("a chunk is read again", extra={"table": chunk.table.path})
            return []
        if chunk.last is None:
            self._next_table(chunk.table.path)
        else:
            self._after = chunk.last
        origin = source(chunk.table)
        rows = [row for name, row in chunk.rows.items() if name not in changed]
        return [event(chunk.table, "r", origin, self._now_ns(), after=row) for row in rows]

    @property
    def state(self) -> Json | None:
        """For the offsets; None if there is nothing to read."""
        if not self._todo:
            return None
        snapshot_state: dict[str, Any] = {"tables": self._todo}
        for name, value in (("after", self._after), ("until", self._until)):
            if value is not None:
                snapshot_state[name] = list(value)
        return {**snapshot_state, **({"paused": True} if self._paused else {})}

    def signal(self, row: Mapping[str, Any], source: MakeSource) -> list[SourceRecord]:
        """A row was inserted into the signal table; the events that follow from it."""
        values = list(row.values())
        id, kind, data = (
            str(value) if value is not None else "" for value in (*values, None, None, None)[:3]
        )
        if kind == OPEN:
            self._opened(id.removesuffix("-open"))
            return []
        if kind == CLOSE:
            return self._closed(id.removesuffix("-close"), source)
        if kind in (PAUSE, RESUME):
            self._paused = kind == PAUSE
            return []
        if kind == "log":
            log.info("signal", extra={"id": id, "data": data[:1000]})
        if kind not in (EXECUTE, STOP):
            return []
        try:
            request = json.loads(data or "{}")
            patterns = [re.compile(str(name)) for name in request.get("data-collections") or ()]
            filters = {
                str(one["data-collection"]): str(one["filter"])
                for one in request.get("additional-conditions") or ()
            }
        except (ValueError, TypeError, KeyError, AttributeError, re.error) as error:
            log.warning(
                "signal not understood",
                extra={"id": id, "type": kind, "reason": str(error), "data": data[:1000]},
            )
            return []
        if str(request.get("type", "incremental")).lower() != "incremental":
            log.warning(
                "only incremental snapshots can be asked for by a signal",
                extra={"id": id, "data": data[:1000]},
            )
        elif kind == STOP:
            self._stop(patterns)
        else:
            self._execute(id, patterns, filters)
        return []

    def _execute(self, id: str, patterns: Sequence[re.Pattern[str]], filters: Mapping[str, str]) -> None:
        tables = [path for path in self._paths() if any(pattern.fullmatch(path) for pattern in patterns)]
        if not tables:
            log.warning(
                "a signal names no captured table", extra={"id": id, "tables": [p.pattern for p in patterns]}
            )
        there = {one["name"] for one in self._todo}
        for path in tables:
            if path not in there:
                condition = filters.get(path)
                self._todo.append({"name": path, **({"filter": condition} if condition else {})})

    def _stop(self, patterns: Sequence[re.Pattern[str]]) -> None:
        first = self._todo[0]["name"] if self._todo else None
        self._todo = [
            one
            for one in self._todo
            if patterns and not any(pattern.fullmatch(one["name"]) for pattern in patterns)
        ]
        if not self._todo or self._todo[0]["name"] != first:
            self._next_table(first)

    def _next_table(self, done: str | None) -> None:
        if self._todo and self._todo[0]["name"] == done:
            del self._todo[0]
        self._after = self._until = self._chunk = None


def row_name(row: Mapping[str, Any], key: Sequence[str]) -> str | None:
    """A text that identifies a row by its key; None if the row does not have it."""
    if not key or any(name not in row for name in key):
        return None
    return repr([row[name] for name in key])


def _key(json_key: Any) -> tuple[Any, ...] | None:
    return tuple(json_key) if isinstance(json_key, list) else None
