"""The rows that are there when a connector begins, table by table, as events with op r.

All are read in one transaction, which sees exactly what the stream does not have. When the reading was interrupted, that
transaction is gone: the rest is read behind the last key in a new one, and the stream repeats the changes that rows already
show. So the last event about a row is still right, and none is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from barnabas.connect.cdc.envelope import Table, event, snapshot_mark
from barnabas.connect.cdc.postgres.catalog import Catalog, TableFacts, as_texts, connect
from barnabas.connect.cdc.postgres.tables import Tables
from barnabas.connect.records import SourceRecord

CURSOR: Final = "barnabas_snapshot"

MakeSource = Callable[[Table, str], Mapping[str, Any]]
"""The source of an event of a table, with what is said in `snapshot`."""
MakeOffset = Callable[[str, Sequence[str], bool], Mapping[str, Any]]
"""The offset after a row: its table, the texts of its key, and whether it is the last of all. A table without a key has
an offset only after its last row."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an interrupted snapshot goes on: in or behind this table, behind this key."""

    table: str
    key: tuple[str, ...]


class Snapshot:
    """One reading of all captured tables. Methods raise psycopg.Error."""

    def __init__(
        self,
        parameters: dict[str, Any],
        tables: Tables,
        exported: str | None,
        fetch_rows: int,
        place: Place | None = None,
        conditions: Mapping[str, str] | None = None,
    ) -> None:
        """exported: the snapshot to see; None: a new one. conditions: what to select instead of all rows, by table."""
        self._connection = connect(parameters)
        self._tables, self._fetch_rows, self._place = tables, fetch_rows, place
        self._conditions = dict(conditions or {})
        run = self._connection.execute
        run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if exported is not None:
            run(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported)))
        catalog = Catalog(self._connection)
        row = run("SELECT extract(epoch FROM now()) * 1000000, txid_current_snapshot()::text").fetchone()
        assert row is not None
        self.at_us = int(row[0])
        self.seen = str(row[1])
        self.facts = [
            catalog.table(*table)
            for table in catalog.tables()
            if tables.names.has_table(table[1], table[2]) and f"{table[1]}.{table[2]}" != tables.names.always
        ]
        self.tables = {facts.id: tables.from_catalog(catalog, facts) for facts in self.facts}
        as_texts(self._connection)
        self._rows = self._all()
        self._ahead = next(self._rows, None)

    def _all(self) -> Iterator[tuple[TableFacts, Sequence[Any], bool]]:
        """All rows, each with whether it is the first of its table."""
        skipping = self._place is not None and any(_path(facts) == self._place.table for facts in self.facts)
        for facts in self.facts:
            here = self._place is not None and _path(facts) == self._place.table
            if skipping and not here:
                continue
            skipping = False
            after = self._place.key if here and self._place is not None else None
            if after is not None and not facts.key:
                continue
            first = after is None
            for row in self._of_table(facts, after):
                yield facts, row, first
                first = False

    def _of_table(self, facts: TableFacts, after: tuple[str, ...] | None) -> Iterator[Sequence[Any]]:
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in facts.columns)
        chosen = self._conditions.get(_path(facts))
        source: sql.Composable = sql.Identifier(facts.schema, facts.name)
        if chosen:
            source = sql.SQL("({}) AS barnabas_chosen").format(sql.SQL(chosen))
        query = sql.SQL("SELECT {} FROM {}").format(names, source)
        if facts.key:
            key = sql.SQL(", ").join(map(sql.Identifier, facts.key))
            if after is not None and len(after) == len(facts.key):
                values = sql.SQL(", ").join(map(sql.Literal, after))
                query += sql.SQL(" WHERE ({}) > ({})").format(key, values)
            query += sql.SQL(" ORDER BY {}").format(key)
        with self._connection.cursor(CURSOR) as cursor:
            cursor.itersize = self._fetch_rows
            cursor.execute(query)
            yield from cursor

    def take(
        self, count: int, source: MakeSource, offset: MakeOffset, first: bool
    ) -> tuple[list[SourceRecord], bool]:
        """The next events, and whether these are the last ones. first: nothing was read before."""
        records: list[SourceRecord] = []
        ended = False
        while len(records) < count and not ended:
            row, following = self._ahead, next(self._rows, None)
            ended, self._ahead = following is None, following
            if row is None:
                break
            facts, values, of_table = row
            table = self.tables[facts.id]
            last_of_table = following is None or following[2]
            mark = snapshot_mark(first and not records, of_table, last_of_table, ended)
            key = [values[_place(facts, name)] for name in facts.key]
            records.append(
                event(
                    table,
                    "r",
                    source(table, mark),
                    time.time_ns(),
                    after=table.row(values),
                    offset=offset(_path(facts), key, ended) if facts.key or ended or last_of_table else None,
                )
            )
        return records, ended

    def close(self) -> None:
        """Ends the transaction."""
        self._connection.close()


def _path(facts: TableFacts) -> str:
    return f"{facts.schema}.{facts.name}"


def _place(facts: TableFacts, name: str) -> int:
    return next(place for place, column in enumerate(facts.columns) if column.name == name)


def transaction_ids(seen: str) -> tuple[int, int, frozenset[int]]:
    """xmin, xmax and the running ones of a snapshot's text like 10:20:11,13."""
    low, high, running = seen.split(":")
    return int(low), int(high), frozenset(int(id) for id in running.split(",") if id)


def is_visible(transaction_id: int, seen: tuple[int, int, frozenset[int]]) -> bool:
    """Whether a transaction's changes are in a snapshot. The stream has 32 bits of its id only."""
    _, high, running = seen
    full = (high & ~0xFFFFFFFF) | transaction_id
    if full > high + (1 << 31):
        full -= 1 << 32
    return full < high and full not in running
