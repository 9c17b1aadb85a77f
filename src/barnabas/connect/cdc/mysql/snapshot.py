"""The rows that are there when a connector begins, table by table, as events with op r.

All are read in one transaction, which sees the tables as of one place in the log. When the reading was interrupted, the rest
is read behind the last key in a new transaction, and the log is read from the first place: it repeats changes that those
rows already show, so that the last event about a row is right, and none is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pymysql.cursors import SSCursor

from barnabas.connect.cdc.envelope import Table, event, snapshot_mark
from barnabas.connect.cdc.mysql import server
from barnabas.connect.cdc.mysql.server import TableFacts, quoted
from barnabas.connect.cdc.mysql.tables import Tables
from barnabas.connect.records import SourceRecord
from barnabas.connect.unread import leave

MakeSource = Callable[[Table, str], Mapping[str, Any]]
"""The source of an event of a table, with what is said in `snapshot`."""
MakeOffset = Callable[[str, Sequence[Any], bool], Mapping[str, Any]]
"""The offset after a row: its table, its key, and whether it is the last of all."""


class Snapshot:
    """One reading of all captured tables. Methods raise pymysql.Error."""

    def __init__(
        self, arguments: Mapping[str, Any], tables: Tables, place: tuple[str, Sequence[Any]] | None
    ) -> None:
        """place: the table and the key behind which an interrupted reading goes on; no key: behind the table."""
        self._connection = server.connect(arguments, autocommit=False)
        self._place = place
        self._cursor: Any = None
        self.position = server.begin_snapshot(self._connection)
        self.at_ms = int(time.time() * 1000)
        names = tables.names
        chosen = [table for table in server.tables(self._connection) if names.has_table(*table)]
        self.facts = [
            server.table_facts(self._connection, *table)
            for table in chosen
            if ".".join(table) != names.always
        ]
        self.tables = {
            facts.path: tables.table_of(facts, [(column.name, column.type) for column in facts.columns])
            for facts in self.facts
        }
        self._rows = self._all()
        self._ahead = next(self._rows, None)

    def _all(self) -> Iterator[tuple[TableFacts, Sequence[Any], bool]]:
        skipping = self._place is not None and any(facts.path == self._place[0] for facts in self.facts)
        for facts in self.facts:
            here = self._place is not None and facts.path == self._place[0]
            if skipping and not here:
                continue
            skipping = False
            after = tuple(self._place[1]) if here and self._place is not None else None
            if after is not None and not (facts.key and after):
                continue
            first = after is None
            for row in self._of_table(facts, after):
                yield facts, row, first
                first = False

    def _of_table(self, facts: TableFacts, after: tuple[Any, ...] | None) -> Iterator[Sequence[Any]]:
        columns = ", ".join(quoted(column.name) for column in facts.columns)
        text = f"SELECT {columns} FROM {quoted(facts.database)}.{quoted(facts.name)}"
        if facts.key:
            key = ", ".join(map(quoted, facts.key))
            if after:
                text += f" WHERE ({key}) > ({', '.join(['%s'] * len(after))})"
            text += f" ORDER BY {key}"
        with self._connection.cursor(SSCursor) as cursor:
            self._cursor = cursor
            cursor.execute(text, after or None)
            yield from cursor

    def take(
        self, count: int, source: MakeSource, offset: MakeOffset, first: bool
    ) -> tuple[list[SourceRecord], bool]:
        """The next events, and whether these are the last ones. first: nothing was read before."""
        records: list[SourceRecord] = []
        ended = self._ahead is None
        while len(records) < count and self._ahead is not None:
            (facts, values, of_table), following = self._ahead, next(self._rows, None)
            ended, self._ahead = following is None, following
            last_of_table = following is None or following[2]
            mark = snapshot_mark(first and not records, of_table, last_of_table, ended)
            table = self.tables[facts.path]
            names = [column.name for column in facts.columns]
            key = [values[names.index(name)] for name in facts.key]
            usable = bool(key) and all(isinstance(part, (int, str)) for part in key)
            after = offset(facts.path, key if usable else [], ended) if usable or last_of_table else None
            records.append(
                event(table, "r", source(table, mark), time.time_ns(), after=table.row(values), offset=after)
            )
        return records, ended

    def close(self) -> None:
        """Ends the transaction without reading the rest."""
        leave(self._cursor)
        self._connection._force_close()
