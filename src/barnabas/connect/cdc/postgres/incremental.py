"""Incremental snapshots: tables are read again in chunks while changes go on, as rows of a signal table ask for.

    INSERT INTO signals (id, type, data) VALUES ('1', 'execute-snapshot',
        '{"data-collections": ["public.orders"], "type": "incremental"}');

A chunk is read in a transaction of its own, then a row is inserted into the signal table. When that row comes back in the
stream, the chunk's rows become events with op r, but for those whose key has been changed meanwhile by a transaction that
the chunk's transaction did not see: their events, in the stream, are newer. How far the reading has come is in the
offsets, so a restart goes on behind the last chunk. The signals are Debezium's.
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from barnabas.connect.cdc.envelope import Table
from barnabas.connect.cdc.postgres.catalog import Catalog, TableFacts, as_texts, connect
from barnabas.connect.cdc.postgres.snapshot import is_visible, transaction_ids
from barnabas.connect.cdc.postgres.tables import Tables
from barnabas.connect.cdc.signals import CLOSE, Chunk, Signalled, row_name
from barnabas.connect.records import Json

CHANGES_MAX: Final = 100_000
"""So many changed keys are remembered. If there are more while a chunk waits, it is read again."""


@dataclass(slots=True, kw_only=True)
class SeenChunk(Chunk):
    """seen: the transactions that the rows show. since: how many changes came before. Keys are texts."""

    seen: tuple[int, int, frozenset[int]]
    since: int


class Incremental(Signalled[SeenChunk]):
    """Methods raise psycopg.Error."""

    def __init__(
        self,
        parameters: dict[str, Any],
        tables: Tables,
        signals: str,
        chunk_rows: int,
        state: Json | None,
        now_ns: Callable[[], int],
    ) -> None:
        super().__init__(state, now_ns)
        self._parameters, self._tables, self._signals = parameters, tables, signals
        self._chunk_rows = chunk_rows
        self._changes: deque[tuple[str, str, int]] = deque(maxlen=CHANGES_MAX)
        self._count = 0

    def _connected(self) -> psycopg.Connection[Any]:
        return connect(self._parameters)

    # --- the stream -------------------------------------------------------------------------------------

    def note(
        self,
        table: Table,
        before: Mapping[str, Any] | None,
        after: Mapping[str, Any] | None,
        transaction: int,
    ) -> None:
        """A row was changed."""
        for row in (before, after):
            name = None if row is None else row_name(row, self._key_of(table))
            if name is not None:
                self._changes.append((table.path, name, transaction))
                self._count += 1

    def _key_of(self, table: Table) -> tuple[str, ...]:
        chunk = self._chunk
        return chunk.key if chunk is not None and chunk.table.path == table.path else table.key

    def _changed(self, chunk: SeenChunk) -> Collection[str] | None:
        if self._count - chunk.since >= CHANGES_MAX:
            return None
        return {
            name
            for path, name, transaction in self._changes
            if path == chunk.table.path and not is_visible(transaction, chunk.seen)
        }

    # --- the tables -------------------------------------------------------------------------------------

    def _paths(self) -> list[str]:
        names = self._tables.names
        paths = [(row[1], row[2]) for row in Catalog(self._run()).tables()]
        return [f"{s}.{t}" for s, t in paths if names.has_table(s, t) and f"{s}.{t}" != names.always]

    def _read_chunk(self) -> None:
        first = self._todo[0]
        connection = self._run()
        catalog = Catalog(connection)
        row = next((r for r in catalog.tables() if f"{r[1]}.{r[2]}" == first["name"]), None)
        facts = None if row is None else catalog.table(*row)
        table = None if facts is None else self._tables.from_catalog(catalog, facts)
        if facts is None or table is None or not facts.key:
            why = "it is gone" if facts is None else "it has no primary key, by which chunks are read"
            self._left_out(first["name"], why)
            return
        with connect(self._parameters) as reading:
            as_texts(reading)
            reading.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if self._until is None:
                self._until = _greatest(reading, facts)
            seen = str(_one(reading.execute("SELECT txid_current_snapshot()::text")))
            values = [] if self._until is None else self._rows(reading, facts, first.get("filter"))
        places = [next(n for n, c in enumerate(facts.columns) if c.name == name) for name in facts.key]
        rows: dict[str, Mapping[str, Any]] = {}
        for row_values in values:
            row_by_name = table.row(row_values)
            name = row_name(row_by_name, facts.key)
            rows[name if name is not None else f"#{len(rows)}"] = row_by_name
        last = tuple(str(values[-1][place]) for place in places) if len(values) == self._chunk_rows else None
        chunk = self._chunk = SeenChunk(
            id=uuid.uuid4().hex,
            table=table,
            key=facts.key,
            rows=rows,
            last=last,
            seen=transaction_ids(seen),
            since=self._count,
        )
        schema, _, name = self._signals.partition(".")
        mark = sql.SQL("INSERT INTO {} VALUES (%s, %s, %s)").format(sql.Identifier(schema, name))
        connection.execute(mark, [f"{chunk.id}-close", CLOSE, json.dumps({"table": first["name"]})])

    def _rows(
        self, reading: psycopg.Connection[Any], facts: TableFacts, condition: str | None
    ) -> list[Sequence[Any]]:
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in facts.columns)
        key = sql.SQL(", ").join(map(sql.Identifier, facts.key))
        assert self._until is not None
        where = [sql.SQL("({}) <= ({})").format(key, sql.SQL(", ").join(map(sql.Literal, self._until)))]
        if self._after is not None:
            where.append(
                sql.SQL("({}) > ({})").format(key, sql.SQL(", ").join(map(sql.Literal, self._after)))
            )
        if condition:
            where.append(sql.SQL("({})").format(sql.SQL(condition)))
        query = sql.SQL("SELECT {} FROM {} WHERE {} ORDER BY {} LIMIT {}").format(
            names,
            sql.Identifier(facts.schema, facts.name),
            sql.SQL(" AND ").join(where),
            key,
            sql.Literal(self._chunk_rows),
        )
        return list(reading.execute(query).fetchall())


def _greatest(reading: psycopg.Connection[Any], facts: TableFacts) -> tuple[str, ...] | None:
    """The texts of the greatest key; None if the table is empty."""
    key = sql.SQL(", ").join(map(sql.Identifier, facts.key))
    down = sql.SQL(", ").join(sql.SQL("{} DESC").format(sql.Identifier(name)) for name in facts.key)
    query = sql.SQL("SELECT {} FROM {} ORDER BY {} LIMIT 1")
    row = reading.execute(query.format(key, sql.Identifier(facts.schema, facts.name), down)).fetchone()
    return None if row is None else tuple(map(str, row))


def _one(cursor: psycopg.Cursor[Any]) -> Any:
    row = cursor.fetchone()
    assert row is not None
    return row[0]
