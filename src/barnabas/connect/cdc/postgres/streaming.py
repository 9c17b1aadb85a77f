"""The changes of a slot's stream as events.

A transaction may be longer than a poll. An offset therefore says behind which commit the stream is to begin (`lsn_commit`),
and how many of the following transaction's changes are done (`events`): a slot sends the same transactions again, in
the same order. Offsets have Debezium's fields as well (`lsn`, `lsn_proc`, `txId`, `ts_usec`), so that either goes on after
the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from barnabas.connect.cdc.envelope import TRANSACTION, Table, boundary, changes, event
from barnabas.connect.cdc.postgres import pgoutput
from barnabas.connect.cdc.postgres.replication import Payload, Replication
from barnabas.connect.cdc.postgres.snapshot import is_visible, transaction_ids
from barnabas.connect.cdc.postgres.tables import SOURCE
from barnabas.connect.cdc.semantic import binary
from barnabas.connect.records import Json, SourceRecord
from barnabas.connect.schemas import INT64, OPTIONAL_STRING, STRING, Schema, struct

WAIT_S: Final = 0.5
IDLE_S: Final = 10.0
"""How often the offset moves on although nothing was captured, so that the slot does not keep the log."""
MESSAGE_KEY: Final = struct(
    {"prefix": OPTIONAL_STRING}, "io.debezium.connector.postgresql.MessageKey", version=1
)


@dataclass(frozen=True, slots=True)
class Rules:
    """The options of streaming."""

    prefix: str
    version: str
    database: str
    tombstones: bool
    skipped: frozenset[str]
    transactions: bool
    transaction_topic: str
    message_topic: str
    signals: str | None = None
    binary: str = "bytes"


@dataclass
class Transaction:
    """The one that is being read. events: of it, whether captured or not. counts: captured ones by table."""

    id: int
    final_lsn: int
    at_us: int
    hidden: bool = False
    events: int = 0
    begun: bool = False
    begin_lsn: int = 0
    order: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    origin: str | None = None
    origin_lsn: int | None = None


TableOf = Callable[[pgoutput.Relation], Table | None]
OnChange = Callable[[Table, Mapping[str, Any] | None, Mapping[str, Any] | None, int], None]
"""Is told the rows before and after a change, and the transaction's id."""


class Streaming:
    """Reads one slot. Methods raise psycopg.Error, DecodeError."""

    def __init__(
        self,
        replication: Replication,
        rules: Rules,
        table_of: TableOf,
        offset: Json,
    ) -> None:
        """The stream has been started at the offset."""
        self._replication, self._rules, self._table_of = replication, rules, table_of
        # A slot that was there before the snapshot also sends what the snapshot has seen.
        text, lsn = offset.get("seen") or ("", 0)
        self._seen_lsn = int(lsn)
        self._seen = transaction_ids(text) if text else None
        self.last_commit = int(offset.get("lsn_commit") or offset.get("lsn") or 0)
        self._known_commit = offset.get("lsn_commit")
        self._done = int(offset.get("events") or 0)
        content, self._content = binary(rules.binary)
        self._message_schema = message_schema(content)
        self._tables: dict[int, Table | None] = {}
        self._paths: dict[int, str] = {}
        self._transaction: Transaction | None = None
        self._moved_at = time.monotonic()
        self._extra: Json = {name: offset[name] for name in ("seen", "incremental") if name in offset}
        self.on_change: OnChange | None = None
        self.on_signal: Callable[[Mapping[str, Any]], list[SourceRecord]] | None = None

    @property
    def between(self) -> bool:
        """Whether the stream is between two transactions."""
        return self._transaction is None

    @property
    def position(self) -> int:
        """Everything that committed up to here has been read."""
        return max(self.last_commit, self._replication.seen) if self.between else self.last_commit

    def keep(self, name: str, value: Any) -> None:
        """Makes all following offsets have this as well; None takes it away."""
        self._extra = {key: kept for key, kept in self._extra.items() if key != name}
        if value is not None:
            self._extra = {**self._extra, name: value}

    def poll(self, count: int) -> tuple[list[SourceRecord], Json | None]:
        """The next events, about so many, and where to go on after them; None if that is not new."""
        records: list[SourceRecord] = []
        offset: Json | None = None
        wait_s = WAIT_S
        while len(records) < count:
            payload = self._replication.read(wait_s)
            if payload is None:
                break
            wait_s = 0.0
            new_records, after = self._handled(payload)
            records += new_records
            # The offset of a commit is no more the last one when records of the next transaction follow.
            offset = after if after is not None or new_records else offset
        if offset is None and not records and self.between:
            offset = self._idle()
        return records, offset

    def _idle(self) -> Json | None:
        now, seen = time.monotonic(), self._replication.seen
        if now - self._moved_at < IDLE_S or seen <= self.last_commit:
            return None
        self._moved_at, self.last_commit = now, seen
        return self.offset(seen)

    def offset(self, lsn: int) -> Json:
        """Where to go on after what has been read."""
        transaction = self._transaction
        position: dict[str, Any] = {
            "lsn": lsn,
            "lsn_proc": lsn,
            "lsn_commit": self.last_commit,
            **self._extra,
        }
        if transaction is None:
            return {**position, "events": 0}
        return {
            **position,
            "txId": transaction.id,
            "ts_usec": transaction.at_us,
            "events": transaction.events,
        }

    # --- messages ---------------------------------------------------------------------------------------

    def _handled(self, payload: Payload) -> tuple[list[SourceRecord], Json | None]:
        """The events of one message, and the offset after it if there is one."""
        message = pgoutput.decode(payload.data)
        if isinstance(message, pgoutput.Relation):
            self._tables[message.id] = self._table_of(message)
            self._paths[message.id] = f"{message.schema}.{message.name}"
            return [], None
        if isinstance(message, pgoutput.Begin):
            if self._seen is not None and message.final_lsn > self._seen_lsn:
                self._seen = None
                self.keep("seen", None)
            hidden = self._seen is not None and is_visible(message.transaction_id, self._seen)
            self._transaction = Transaction(message.transaction_id, message.final_lsn, message.at_us, hidden)
            self._transaction.begun = self._done > 0
            self._transaction.begin_lsn = payload.lsn
            return [], None
        if isinstance(message, pgoutput.Commit):
            return self._commit(message, payload)
        if isinstance(message, pgoutput.Origin) and self._transaction is not None:
            self._transaction.origin, self._transaction.origin_lsn = message.name, message.lsn
            return [], None
        if isinstance(message, pgoutput.LogicalMessage):
            return self._logical(message, payload), None
        if isinstance(message, pgoutput.TypeName | pgoutput.Origin):
            return [], None
        return self._changed(message, payload), None

    def _begin(self) -> list[SourceRecord]:
        """The record that a transaction has begun, once, before its first event or its end."""
        transaction = self._transaction
        if transaction is None or transaction.begun or not self._rules.transactions:
            return []
        transaction.begun = True
        id = f"{transaction.id}:{transaction.begin_lsn}"
        return [boundary(self._rules.transaction_topic, "BEGIN", id, transaction.at_us // 1000)]

    def _commit(self, message: pgoutput.Commit, payload: Payload) -> tuple[list[SourceRecord], Json | None]:
        transaction = self._transaction
        begin = self._begin() if transaction is not None and not transaction.hidden else []
        self._transaction, self._done = None, 0
        self.last_commit = self._known_commit = message.end_lsn
        self._moved_at = time.monotonic()
        offset = self.offset(message.end_lsn)
        if transaction is None or transaction.hidden or not self._rules.transactions:
            return [], offset
        id, at_ms = f"{transaction.id}:{payload.lsn}", transaction.at_us // 1000
        topic = self._rules.transaction_topic
        return [*begin, boundary(topic, "END", id, at_ms, transaction.counts, offset)], offset

    def _is_done(self) -> bool:
        """Counts a change; whether it was read before the last restart, or is in the snapshot."""
        transaction = self._transaction
        if transaction is None:
            return False
        transaction.events += 1
        return transaction.events <= self._done or transaction.hidden

    def _changed(
        self,
        message: pgoutput.Insert | pgoutput.Update | pgoutput.Delete | pgoutput.Truncate,
        payload: Payload,
    ) -> list[SourceRecord]:
        if isinstance(message, pgoutput.Truncate):
            return self._truncated(message, payload)
        done = self._is_done()
        table = self._tables.get(message.relation_id)
        if table is None:
            return []
        op, old, new = _parts(message)
        before = None if old is None else table.row(old)
        after = None if new is None else table.row(_filled(new, old, message))
        if done:
            # The counts go on, so that a transaction's numbers do not depend on restarts.
            self._ordered(table.path, payload, count=2 if _is_key_change(table, op, before, after) else 1)
            return []
        if table.path == self._rules.signals:
            return self._signalled(op, after, payload)
        if self.on_change is not None:
            self.on_change(table, before, after, self._transaction.id if self._transaction else 0)
        if op in self._rules.skipped:
            return []
        begin = self._begin()
        source = self.source(table.outer, table.name, payload.lsn)
        records = changes(
            table,
            op,
            source,
            time.time_ns(),
            before,
            after,
            lambda: self._ordered(table.path, payload),
            tombstones=self._rules.tombstones,
        )
        return [*begin, *records[:-1], _with_offset(records[-1], self.offset(payload.lsn))]

    def _signalled(self, op: str, row: Mapping[str, Any] | None, payload: Payload) -> list[SourceRecord]:
        """The events that follow from a row of the signal table."""
        if op != "c" or row is None or self.on_signal is None:
            return []
        records = self.on_signal(row)
        if records:
            records[-1] = _with_offset(records[-1], self.offset(payload.lsn))
        return records

    def _truncated(self, message: pgoutput.Truncate, payload: Payload) -> list[SourceRecord]:
        if self._is_done() or "t" in self._rules.skipped:
            return []
        records = self._begin()
        for id in message.relation_ids:
            table = self._tables.get(id)
            if table is not None:
                source = self.source(table.outer, table.name, payload.lsn)
                order = self._ordered(table.path, payload)
                records.append(event(table, "t", source, time.time_ns(), transaction=order))
        if records and records[-1].source_offset is None:
            records[-1] = _with_offset(records[-1], self.offset(payload.lsn))
        return records

    def _logical(self, message: pgoutput.LogicalMessage, payload: Payload) -> list[SourceRecord]:
        if message.transactional and self._is_done():
            return []
        if not message.transactional and payload.lsn <= self.last_commit:
            return []
        source = self.source("", "", payload.lsn)
        value = {
            "op": "m",
            "ts_ms": time.time_ns() // 1_000_000,
            "source": source,
            "transaction": self._ordered("message", payload),
            "message": {"prefix": message.prefix, "content": self._content(message.content)},
        }
        return [
            *(self._begin() if message.transactional else []),
            SourceRecord(
                self._rules.message_topic,
                value,
                {"prefix": message.prefix},
                self._message_schema,
                MESSAGE_KEY,
                source_offset=self.offset(payload.lsn),
            ),
        ]

    def _ordered(self, path: str, payload: Payload, count: int = 1) -> Mapping[str, Any] | None:
        """The place of the next event in its transaction."""
        transaction = self._transaction
        if transaction is None or not self._rules.transactions:
            return None
        transaction.order += count
        transaction.counts[path] = transaction.counts.get(path, 0) + count
        return {
            "id": f"{transaction.id}:{payload.lsn}",
            "total_order": transaction.order,
            "data_collection_order": transaction.counts[path],
        }

    def source(self, schema: str, table: str, lsn: int, snapshot: str = "false") -> dict[str, Any]:
        """Where an event comes from."""
        transaction = self._transaction
        at_us = transaction.at_us if transaction is not None else time.time_ns() // 1000
        before = "null" if self._known_commit is None else f'"{self._known_commit}"'
        return {
            "version": self._rules.version,
            "connector": "postgresql",
            "name": self._rules.prefix,
            "ts_ms": at_us // 1000,
            "snapshot": snapshot,
            "db": self._rules.database,
            "sequence": f'[{before},"{lsn}"]',
            "ts_us": at_us,
            "ts_ns": at_us * 1000,
            "schema": schema,
            "table": table,
            "txId": None if transaction is None else transaction.id,
            "lsn": lsn,
            "xmin": None,
            "origin": None if transaction is None else transaction.origin,
            "origin_lsn": None if transaction is None else transaction.origin_lsn,
        }


def message_schema(content: Schema) -> Schema:
    """Of values that tell logical messages. content: what bytes are, by binary.handling.mode."""
    message = struct(
        {"prefix": OPTIONAL_STRING, "content": content.as_optional()},
        "io.debezium.connector.postgresql.Message",
        version=1,
    )
    return struct(
        {
            "op": STRING,
            "ts_ms": INT64.as_optional(),
            "source": SOURCE,
            "transaction": TRANSACTION,
            "message": message,
        },
        "io.debezium.connector.postgresql.MessageValue",
        version=1,
    )


Rows = tuple[pgoutput.Value, ...]


def _parts(
    message: pgoutput.Insert | pgoutput.Update | pgoutput.Delete,
) -> tuple[str, Rows | None, Rows | None]:
    if isinstance(message, pgoutput.Insert):
        return "c", None, message.after
    if isinstance(message, pgoutput.Update):
        return "u", message.before, message.after
    return "d", message.before, None


def _filled(new: Rows, old: Rows | None, message: object) -> Rows:
    """A row, with large values that were not sent again taken from a whole old row."""
    whole = isinstance(message, pgoutput.Update) and old is not None and not message.before_is_key
    if not whole or old is None:
        return new
    return tuple(
        before if after is pgoutput.UNCHANGED else after for after, before in zip(new, old, strict=True)
    )


def _is_key_change(
    table: Table, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> bool:
    return (
        op == "u" and before is not None and after is not None and table.key_of(before) != table.key_of(after)
    )


def _with_offset(record: SourceRecord, offset: Json) -> SourceRecord:
    return replace(record, source_offset=offset)
