"""Debezium's envelope: the schemas of events, and events as records. No I/O.

An event has the row before and after, where it comes from (source), and what happened (op: r read by a snapshot, c created,
u updated, d deleted, t truncated, m message). Source: its documentation, and what version 3.5 writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from barnabas.connect.records import Header, Json, SourceRecord
from barnabas.connect.schemas import INT64, OPTIONAL_STRING, STRING, Field, Schema, array, struct

log = logging.getLogger(__name__)

OPTIONAL_INT64: Final = INT64.as_optional()
SNAPSHOT: Final = Schema(
    "string",
    True,
    "io.debezium.data.Enum",
    1,
    default="false",
    parameters=(
        ("allowed", "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"),
    ),
)
SOURCE_FIELDS: Final[Mapping[str, Schema]] = {
    "version": STRING,
    "connector": STRING,
    "name": STRING,
    "ts_ms": INT64,
    "snapshot": SNAPSHOT,
    "db": STRING,
    "sequence": OPTIONAL_STRING,
    "ts_us": OPTIONAL_INT64,
    "ts_ns": OPTIONAL_INT64,
}
"""What the sources of all connectors have."""
TRANSACTION: Final = struct(
    {"id": STRING, "total_order": INT64, "data_collection_order": INT64},
    "event.block",
    optional=True,
    version=1,
)
TRANSACTION_KEY: Final = struct(
    {"id": STRING}, "io.debezium.connector.common.TransactionMetadataKey", version=1
)
TRANSACTION_VALUE: Final = struct(
    {
        "status": STRING,
        "id": STRING,
        "event_count": OPTIONAL_INT64,
        "data_collections": array(
            struct(
                {"data_collection": STRING, "event_count": INT64},
                "event.collection",
                optional=True,
                version=1,
            ),
            optional=True,
        ),
        "ts_ms": INT64,
    },
    "io.debezium.connector.common.TransactionMetadataValue",
    version=1,
)
HEARTBEAT_KEY: Final = struct({"serverName": STRING}, "io.debezium.connector.common.ServerNameKey", version=1)
HEARTBEAT_VALUE: Final = struct({"ts_ms": INT64}, "io.debezium.connector.common.Heartbeat", version=1)
OLD_KEY, NEW_KEY = "__debezium.oldkey", "__debezium.newkey"


@dataclass(frozen=True)
class Column:
    """A captured column. convert: of the database's value, never of None. fallback: instead of null, where that is not
    allowed: a row before may have nothing but its key."""

    name: str
    schema: Schema
    convert: Callable[[Any], Any]
    fallback: Any = None


@dataclass(frozen=True)
class Table:
    """A captured table as it is now. places: of the columns in the database's rows. key: names of columns."""

    topic: str
    outer: str
    name: str
    columns: tuple[Column, ...]
    places: tuple[int, ...]
    key: tuple[str, ...]
    source: Schema

    @property
    def path(self) -> str:
        """schema.table, or database.table."""
        return f"{self.outer}.{self.name}"

    @cached_property
    def row_schema(self) -> Schema:
        """Of the rows before and after."""
        fields = [Field(column.name, column.schema) for column in self.columns]
        return struct(fields, f"{self.topic}.Value", optional=True)

    @cached_property
    def key_schema(self) -> Schema | None:
        """None without a key."""
        chosen = [column for name in self.key for column in self.columns if column.name == name]
        if not chosen:
            return None
        return struct([Field(column.name, column.schema) for column in chosen], f"{self.topic}.Key")

    @cached_property
    def envelope(self) -> Schema:
        """Of a record's value."""
        return struct(
            {
                "before": self.row_schema,
                "after": self.row_schema,
                "source": self.source,
                "transaction": TRANSACTION,
                "op": STRING,
                "ts_ms": OPTIONAL_INT64,
                "ts_us": OPTIONAL_INT64,
                "ts_ns": OPTIONAL_INT64,
            },
            f"{self.topic}.Envelope",
            version=2,
        )

    def row(self, values: Sequence[Any]) -> dict[str, Any]:
        """A row of the database as a struct. A value that cannot be converted is left out, with a warning, as Debezium does:
        it would come again and again, and nothing after it."""
        row_values = {}
        for column, place in zip(self.columns, self.places, strict=True):
            value = values[place] if place < len(values) else None
            if value is not None:
                try:
                    value = column.convert(value)
                except (ValueError, ArithmeticError, LookupError, TypeError) as error:
                    fields = {"table": self.path, "column": column.name, "reason": str(error)}
                    log.warning("value left out", extra=fields)
                    value = None
            row_values[column.name] = column.fallback if value is None else value
        return row_values

    def key_of(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """The key of a struct; None without one."""
        if self.key_schema is None:
            return None
        return {field.name: row[field.name] for field in self.key_schema.fields}


def event(
    table: Table,
    op: str,
    source: Mapping[str, Any],
    now_ns: int,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    transaction: Mapping[str, Any] | None = None,
    headers: tuple[Header, ...] = (),
    offset: Json | None = None,
) -> SourceRecord:
    """One event as a record. now_ns: when it is processed, since 1970."""
    row = after if after is not None else before
    return SourceRecord(
        table.topic,
        {
            "before": before,
            "after": after,
            "source": source,
            "transaction": transaction,
            "op": op,
            "ts_ms": now_ns // 1_000_000,
            "ts_us": now_ns // 1000,
            "ts_ns": now_ns,
        },
        None if row is None else table.key_of(row),
        table.envelope,
        None if row is None else table.key_schema,
        headers,
        source_offset=offset,
    )


def tombstone(table: Table, key: Mapping[str, Any]) -> SourceRecord:
    """Tells a compacted topic to forget a key."""
    return SourceRecord(table.topic, None, key, None, table.key_schema)


def changes(
    table: Table,
    op: str,
    source: Mapping[str, Any],
    now_ns: int,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    order: Callable[[], Mapping[str, Any] | None],
    *,
    tombstones: bool,
) -> list[SourceRecord]:
    """The records of one change of a row. An update of the key is a delete and a create, each naming the other's key.

    order: called for each event; what it tells about its transaction.
    """
    if op == "u" and before is not None and after is not None and table.key_schema is not None:
        old, new = table.key_of(before), table.key_of(after)
        if old != new:
            # The row before has at least its key if the key was changed.
            gone = (Header(NEW_KEY, new, table.key_schema),)
            old_key_headers = (Header(OLD_KEY, old, table.key_schema),)
            assert old is not None
            return [
                event(table, "d", source, now_ns, before=before, transaction=order(), headers=gone),
                *([tombstone(table, old)] if tombstones else []),
                event(table, "c", source, now_ns, after=after, transaction=order(), headers=old_key_headers),
            ]
    records = [event(table, op, source, now_ns, before=before, after=after, transaction=order())]
    if op == "d" and tombstones and records[0].key is not None:
        records.append(tombstone(table, records[0].key))
    return records


def heartbeat(topic: str, prefix: str, now_ms: int, offset: Json) -> SourceRecord:
    """A sign of life, which also stores the offset."""
    key, value = {"serverName": prefix}, {"ts_ms": now_ms}
    return SourceRecord(topic, value, key, HEARTBEAT_VALUE, HEARTBEAT_KEY, source_offset=offset)


def boundary(
    topic: str,
    status: str,
    id: str,
    ts_ms: int,
    counts: Mapping[str, int] | None = None,
    offset: Json | None = None,
) -> SourceRecord:
    """BEGIN or END of a transaction. counts: events by table, at the end."""
    value = {
        "status": status,
        "id": id,
        "event_count": None if counts is None else sum(counts.values()),
        "data_collections": None
        if counts is None
        else [{"data_collection": name, "event_count": count} for name, count in counts.items()],
        "ts_ms": ts_ms,
    }
    return SourceRecord(topic, value, {"id": id}, TRANSACTION_VALUE, TRANSACTION_KEY, source_offset=offset)


def snapshot_mark(first: bool, of_table: bool, last_of_table: bool, last: bool) -> str:
    """What `snapshot` in the source says; the rarest holds."""
    if first:
        return "first"
    if last:
        return "last"
    if last_of_table:
        return "last_in_data_collection"
    return "first_in_data_collection" if of_table else "true"
