"""Incremental snapshots: tables are read again in chunks while changes go on, as rows of a signal table ask for.

A row is inserted into the signal table, a chunk is read, and another row is inserted. When the second row comes in the log,
the chunk's rows become events with op r, but for those whose key was changed between the two rows: their events, in the
log, are newer or as new.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.connect.cdc.envelope import Table
from barnabas.connect.cdc.mysql import server
from barnabas.connect.cdc.mysql.server import TableFacts, quoted
from barnabas.connect.cdc.mysql.tables import Tables
from barnabas.connect.cdc.signals import CLOSE, OPEN, Chunk, Signalled, row_name
from barnabas.connect.records import Json

COMPARED: Final = (int, str, dt.date)
"""Values of keys by which chunks are read: what the server compares as it orders."""


@dataclass(slots=True, kw_only=True)
class MarkedChunk(Chunk):
    """With a mark before it and one behind it. changed: keys that were changed between the marks."""

    is_open: bool = False
    changed: set[str] = field(default_factory=set)


class Incremental(Signalled[MarkedChunk]):
    """Methods raise pymysql.Error."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        tables: Tables,
        signals: str,
        chunk_rows: int,
        state: Json | None,
        now_ns: Callable[[], int],
    ) -> None:
        """signals: the table, as database.table. arguments: of PyMySQL."""
        super().__init__(state, now_ns)
        self._arguments, self._tables, self._signals = arguments, tables, signals
        self._chunk_rows = chunk_rows

    def _connected(self) -> Any:
        return server.connect(self._arguments)

    # --- the log ----------------------------------------------------------------------------------------

    def note(self, table: Table, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """A row was changed."""
        chunk = self._chunk
        if chunk is None or not chunk.is_open or chunk.table.path != table.path:
            return
        for row in (before, after):
            name = None if row is None else row_name(row, chunk.key)
            if name is not None:
                chunk.changed.add(name)

    def _opened(self, id: str) -> None:
        if self._chunk is not None and self._chunk.id == id:
            self._chunk.is_open = True

    def _changed(self, chunk: MarkedChunk) -> Collection[str]:
        return chunk.changed

    # --- the tables -------------------------------------------------------------------------------------

    def _paths(self) -> list[str]:
        names = self._tables.names
        tables = server.tables(self._run())
        return [f"{d}.{t}" for d, t in tables if names.has_table(d, t) and f"{d}.{t}" != names.always]

    def _read_chunk(self) -> None:
        first = self._todo[0]
        connection = self._run()
        database, _, name = first["name"].partition(".")
        facts = server.table_facts(connection, database, name)
        why = "it is gone" if not facts.columns else "it has no primary key, by which chunks are read"
        if not facts.columns or not facts.key:
            self._left_out(first["name"], why)
            return
        table = self._tables.table_of(facts, [(column.name, column.type) for column in facts.columns])
        id = uuid.uuid4().hex
        if self._until is None:
            self._until = self._greatest(facts)
        if self._until is not None and not all(isinstance(part, COMPARED) for part in self._until):
            self._left_out(first["name"], "its primary key is of numbers with a fraction, or of bytes")
            return
        self._until = None if self._until is None else _plain(self._until)
        self._mark(f"{id}-open", OPEN, first["name"])
        values = [] if self._until is None else self._rows(facts, first.get("filter"))
        columns = [column.name for column in facts.columns]
        rows: dict[str, Mapping[str, Any]] = {}
        for row_values in values:
            row = table.row(row_values)
            row_key = row_name(row, facts.key)
            rows[row_key if row_key is not None else f"#{len(rows)}"] = row
        last = None
        if len(values) == self._chunk_rows:
            last = _plain([values[-1][columns.index(part)] for part in facts.key])
        self._chunk = MarkedChunk(id=id, table=table, key=facts.key, rows=rows, last=last)
        self._mark(f"{id}-close", CLOSE, first["name"])

    def _mark(self, id: str, kind: str, table: str) -> None:
        database, _, name = self._signals.partition(".")
        text = f"INSERT INTO {quoted(database)}.{quoted(name)} VALUES (%s, %s, %s)"
        server.ask(self._run(), text, [id, kind, json.dumps({"table": table})])

    def _greatest(self, facts: TableFacts) -> tuple[Any, ...] | None:
        """The greatest key; None if the table is empty."""
        key = ", ".join(map(quoted, facts.key))
        down = ", ".join(f"{quoted(name)} DESC" for name in facts.key)
        text = f"SELECT {key} FROM {quoted(facts.database)}.{quoted(facts.name)} ORDER BY {down} LIMIT 1"
        rows = server.ask(self._run(), text)
        return rows[0] if rows else None

    def _rows(self, facts: TableFacts, condition: str | None) -> list[tuple[Any, ...]]:
        assert self._until is not None
        columns = ", ".join(quoted(column.name) for column in facts.columns)
        key = ", ".join(map(quoted, facts.key))
        places = ", ".join(["%s"] * len(facts.key))
        where, values = [f"({key}) <= ({places})"], [*self._until]
        if self._after is not None:
            where.append(f"({key}) > ({places})")
            values += self._after
        if condition:
            where.append(f"({condition.replace('%', '%%')})")
        text = (
            f"SELECT {columns} FROM {quoted(facts.database)}.{quoted(facts.name)} WHERE {' AND '.join(where)} "
            f"ORDER BY {key} LIMIT {self._chunk_rows}"
        )
        return server.ask(self._run(), text, values)


def _plain(key: Sequence[Any]) -> tuple[Any, ...]:
    """A key as it is in the offsets."""
    return tuple(part if isinstance(part, (int, str)) else str(part) for part in key)
