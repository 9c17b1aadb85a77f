"""The changes in the binary log as events.

An offset has the place where a transaction begins (`file`, `pos`) and how many of its rows are done (`events`), so that a
transaction may be longer than a poll. The other fields are Debezium's.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import (
    GtidEvent,
    HeartbeatLogEvent,
    MariadbGtidEvent,
    QueryEvent,
    RotateEvent,
    XidEvent,
)
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from barnabas.connect.cdc.envelope import Table, boundary, changes, event
from barnabas.connect.cdc.mysql.ddl import Statement, statement_of
from barnabas.connect.records import Json, SourceRecord

HEARTBEAT_S: Final = 0.5
READ_S: Final = 30
EVENTS: Final = (
    GtidEvent, HeartbeatLogEvent, MariadbGtidEvent, QueryEvent, RotateEvent, XidEvent, DeleteRowsEvent, UpdateRowsEvent,
    WriteRowsEvent,
)  # fmt: skip
ENDS: Final = re.compile(r"\s*(COMMIT|ROLLBACK)\s*;?\s*", re.IGNORECASE)
ASIDE: Final = re.compile(r"\s*(SAVEPOINT|RELEASE\s+SAVEPOINT|ROLLBACK\s+TO|#|XA\s)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of streaming. kind: mysql or mariadb."""

    kind: str
    prefix: str
    version: str
    tombstones: bool
    skipped: frozenset[str]
    transactions: bool
    transaction_topic: str
    schema_changes: bool
    signals: str | None = None


@dataclass
class Transaction:
    """The one that is being read. events: its rows so far, captured or not. counts: captured ones by table."""

    gtid: str | None
    at_ms: int
    begun: bool = False
    events: int = 0
    order: int = 0
    counts: dict[str, int] = field(default_factory=dict)


TableOf = Callable[[str, str, list[Any]], Table | None]
"""The captured table of a database and name, whose rows have these columns of the log."""
OnStatement = Callable[[Statement, Mapping[str, Any], int], list[SourceRecord]]
"""The records of a statement that changes tables."""

OnChange = Callable[[Table, Mapping[str, Any] | None, Mapping[str, Any] | None], None]
"""A row of a captured table was changed: before and after."""
OnSignal = Callable[[Mapping[str, Any], Callable[[Table], Mapping[str, Any]]], list[SourceRecord]]
"""The events that follow from a row of the signal table. Their source is made for a table."""


class Binlog:
    """Reads the log from an offset. more: what offsets have besides. Methods raise pymysql.Error."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        server_id: int,
        rules: Rules,
        table_of: TableOf,
        on_statement: OnStatement,
        offset: Json,
    ) -> None:
        self._rules, self._table_of, self._on_statement = rules, table_of, on_statement
        self.file, self.pos = str(offset["file"]), int(offset["pos"])
        self._gtids = offset.get("gtids")
        self._done = int(offset.get("events") or 0)
        self._transaction: Transaction | None = None
        self._server = 0
        self.on_change: OnChange | None = None
        self.on_signal: OnSignal | None = None
        self.more: Callable[[], Json] = dict
        self._chunk_told = False
        self._reader = BinLogStreamReader(
            connection_settings={**arguments, "read_timeout": READ_S},
            server_id=server_id,
            blocking=True,
            resume_stream=True,
            log_file=self.file,
            log_pos=self.pos,
            only_events=list(EVENTS),
            slave_heartbeat=HEARTBEAT_S,
            enable_logging=False,
        )

    def close(self) -> None:
        """Leaves the log."""
        self._reader.close()

    @property
    def between(self) -> bool:
        """Whether it is between two transactions."""
        return self._transaction is None

    def poll(self, count: int) -> tuple[list[SourceRecord], Json | None]:
        """The next events, about so many, and where to go on after them; None if that is not new. It waits for a heartbeat
        at most, which comes when the server has nothing else."""
        records: list[SourceRecord] = []
        offset: Json | None = None
        begun, self._chunk_told = time.monotonic(), False
        while len(records) < count:
            packet = self._reader.fetchone()
            if (
                isinstance(packet, HeartbeatLogEvent)
                and not records
                and time.monotonic() - begun < HEARTBEAT_S / 2
            ):
                continue  # it came while nobody polled; there may be events behind it
            if packet is None or isinstance(packet, HeartbeatLogEvent):
                break
            new_records, after = self._handled(packet)
            records += new_records
            offset = after if after is not None or new_records else offset
            if self._chunk_told and self.between:
                break  # so that the next chunk is read
        return records, offset

    def offset(self) -> Json:
        """Where to go on after what has been read."""
        position = {
            "file": self.file,
            "pos": self.pos,
            "gtids": self._gtids,
            "server_id": self._server,
            "row": 0,
        }
        return {
            **position,
            "events": 0 if self._transaction is None else self._transaction.events,
            **self.more(),
        }

    def _handled(self, packet: Any) -> tuple[list[SourceRecord], Json | None]:
        if isinstance(packet, RotateEvent):
            if packet.timestamp or self._transaction is None:
                self.file, self.pos = _name(packet.next_binlog), packet.position
            return [], None
        self._server = getattr(packet.packet, "server_id", 0) or self._server
        if isinstance(packet, (GtidEvent, MariadbGtidEvent)):
            self._transaction = Transaction(str(packet.gtid), packet.timestamp * 1000, self._done > 0)
            return [], None
        if isinstance(packet, XidEvent):
            return self._commit(packet)
        if isinstance(packet, QueryEvent):
            return self._query(packet)
        return self._rows(packet), None

    def _query(self, packet: QueryEvent) -> tuple[list[SourceRecord], Json | None]:
        text = packet.query.strip()
        if text.upper() == "BEGIN":
            if self._transaction is None:
                self._transaction = Transaction(None, packet.timestamp * 1000, self._done > 0)
            return [], None
        if ENDS.fullmatch(text):
            return self._commit(packet)
        if ASIDE.match(text):
            return [], None
        statement = statement_of(_name(packet.schema), text)
        records: list[SourceRecord] = []
        if statement is not None:
            source = self._source(statement.database, statement.table, packet, 0)
            records = self._on_statement(statement, source, packet.timestamp * 1000)
            if statement.action == "TRUNCATE" and "t" not in self._rules.skipped:
                table = self._table_of(statement.database, statement.table or "", [])
                if table is not None:
                    records.append(event(table, "t", source, time.time_ns()))
        # A statement that changes tables is a transaction of its own.
        self._end(packet)
        offset = self.offset()
        if records:
            records[-1] = replace(records[-1], source_offset=offset)
        return records, offset

    def _end(self, packet: Any) -> None:
        transaction = self._transaction
        if transaction is not None and transaction.gtid is not None:
            self._gtids = merged(self._gtids, transaction.gtid)
        self._transaction, self._done = None, 0
        self.pos = int(packet.packet.log_pos)

    def _begin(self) -> list[SourceRecord]:
        transaction = self._transaction
        if transaction is None or transaction.begun or not self._rules.transactions:
            return []
        transaction.begun = True
        return [boundary(self._rules.transaction_topic, "BEGIN", self._id(transaction), transaction.at_ms)]

    def _id(self, transaction: Transaction) -> str:
        return transaction.gtid or f"file={self.file},pos={self.pos}"

    def _commit(self, packet: Any) -> tuple[list[SourceRecord], Json | None]:
        transaction = self._transaction
        begin = self._begin()
        id = "" if transaction is None else self._id(transaction)
        self._end(packet)
        offset = self.offset()
        if transaction is None or not self._rules.transactions:
            return [], offset
        topic, at_ms = self._rules.transaction_topic, packet.timestamp * 1000
        return [*begin, boundary(topic, "END", id, at_ms, transaction.counts, offset)], offset

    def _rows(self, packet: Any) -> list[SourceRecord]:
        if self._transaction is None:
            self._transaction = Transaction(None, packet.timestamp * 1000, self._done > 0)
        table = self._table_of(_name(packet.schema), _name(packet.table), packet.columns)
        rows = packet.rows
        records: list[SourceRecord] = []
        for number, row in enumerate(rows):
            self._transaction.events += 1
            if table is None:
                continue
            records += self._row(table, packet, number, row, self._transaction.events <= self._done)
        return records

    def _row(
        self, table: Table, packet: Any, number: int, row: Mapping[str, Any], done: bool
    ) -> list[SourceRecord]:
        transaction = self._transaction
        assert transaction is not None
        op, before, after = _parts(table, packet, row)
        if table.path == self._rules.signals:
            return [] if done or op != "c" or after is None else self._signal(after, packet, number)
        if op in self._rules.skipped:
            return []
        if done:
            moved = (
                op == "u"
                and before is not None
                and after is not None
                and table.key_of(before) != table.key_of(after)
            )
            self._ordered(table.path, 2 if moved else 1)
            return []
        if self.on_change is not None:
            self.on_change(table, before, after)
        begin = self._begin()
        source = self._source(table.outer, table.name, packet, number)
        records = changes(
            table,
            op,
            source,
            time.time_ns(),
            before,
            after,
            lambda: self._ordered(table.path),
            tombstones=self._rules.tombstones,
        )
        return [*begin, *records[:-1], replace(records[-1], source_offset=self.offset())]

    def _signal(self, row: Mapping[str, Any], packet: Any, number: int) -> list[SourceRecord]:
        if self.on_signal is None:
            return []

        def source(table: Table) -> Mapping[str, Any]:
            return {**self._source(table.outer, table.name, packet, number), "snapshot": "incremental"}

        records = self.on_signal(row, source)
        if records:
            records[-1] = replace(records[-1], source_offset=self.offset())
        self._chunk_told = True
        return records

    def _ordered(self, path: str, count: int = 1) -> Mapping[str, Any] | None:
        transaction = self._transaction
        if transaction is None or not self._rules.transactions:
            return None
        transaction.order += count
        transaction.counts[path] = transaction.counts.get(path, 0) + count
        return {
            "id": self._id(transaction),
            "total_order": transaction.order,
            "data_collection_order": transaction.counts[path],
        }

    def _source(self, database: str, table: str | None, packet: Any, row: int) -> dict[str, Any]:
        transaction = self._transaction
        at_ms = packet.timestamp * 1000
        size = int(getattr(packet.packet, "event_size", 0) or 0)
        return {
            "version": self._rules.version,
            "connector": self._rules.kind,
            "name": self._rules.prefix,
            "ts_ms": at_ms,
            "snapshot": "false",
            "db": database,
            "sequence": None,
            "ts_us": at_ms * 1000,
            "ts_ns": at_ms * 1_000_000,
            "table": table,
            "server_id": self._server,
            "gtid": None if transaction is None else transaction.gtid,
            "file": self.file,
            "pos": int(packet.packet.log_pos) - size,
            "row": row,
            "thread": None,
            "query": None,
        }


def _parts(
    table: Table, packet: Any, row: Mapping[str, Any]
) -> tuple[str, dict[str, Any] | None, dict[str, Any] | None]:
    names = [column.name for column in packet.columns]

    def struct(values: Mapping[str, Any], why: Mapping[str, str]) -> dict[str, Any]:
        # A set without members is not null, but mysql-replication has no value for it.
        empty = {name for name, reason in why.items() if reason == "empty set"}
        return table.row([frozenset() if name in empty else _mended(values.get(name)) for name in names])

    if isinstance(packet, WriteRowsEvent):
        return "c", None, struct(row["values"], row.get("none_sources") or {})
    if isinstance(packet, DeleteRowsEvent):
        return "d", struct(row["values"], row.get("none_sources") or {}), None
    before = struct(row["before_values"], row.get("before_none_sources") or {})
    return "u", before, struct(row["after_values"], row.get("after_none_sources") or {})


def _mended(value: Any) -> Any:
    """mysql-replication reads a negative TIME with a fraction as if the fraction were counted from the other side:
    -00:00:01.25 as -1.75 s."""
    if isinstance(value, dt.timedelta) and value.days < 0 and value.microseconds:
        seconds, us = divmod(-value // dt.timedelta(microseconds=1), 1_000_000)
        return -dt.timedelta(seconds=seconds, microseconds=1_000_000 - us)
    return value


def _name(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def merged(known: Any, gtid: str) -> str:
    """The GTIDs that are done, with one more. MariaDB's are the last of each domain (0-1-42); of MySQL's the last one of
    each server is kept."""
    gtid_by_source = {part.rpartition("-")[0] if part.count("-") == 2 else part.partition(":")[0]: part
             for part in str(known or "").split(",") if part}  # fmt: skip
    if gtid.count("-") == 2:
        domain = gtid.partition("-")[0]
        gtid_by_source = {
            name: part for name, part in gtid_by_source.items() if part.partition("-")[0] != domain
        }
        gtid_by_source[gtid.rpartition("-")[0]] = gtid
    else:
        gtid_by_source[gtid.partition(":")[0]] = gtid
    return ",".join(gtid_by_source[name] for name in sorted(gtid_by_source))
