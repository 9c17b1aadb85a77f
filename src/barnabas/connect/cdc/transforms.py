"""Debezium's transforms: rows of its envelope alone, and the outbox pattern.

Source: Debezium's documentation, "New Record State Extraction" and "Outbox Event Router".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from barnabas.connect.errors import DataError
from barnabas.connect.options import ConnectorOption, Importance, Type
from barnabas.connect.records import Header, Record
from barnabas.connect.schemas import INT64, OPTIONAL_STRING, STRING, Field, Schema, struct
from barnabas.connect.transforms.base import Transform

DELETED: Final = "__deleted"
KINDS: Final = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone", "none")


def is_envelope(record: Record) -> bool:
    """Whether a record is an event of change data capture."""
    if record.value_schema is not None:
        return (record.value_schema.name or "").endswith(".Envelope")
    return isinstance(record.value, dict) and {"op", "source"} <= set(record.value)


class ExtractNewRecordState(Transform):
    """The row after a change instead of the envelope."""

    doc = "The row after a change, instead of Debezium's envelope."
    options = (
        ConnectorOption(
            "delete.tombstone.handling.mode",
            default="tombstone",
            choices=KINDS,
            doc="What becomes of deletes. drop: nothing. tombstone: a record without a value. rewrite: the row before, with "
            "__deleted. rewrite-with-tombstone: both. delete-to-tombstone: a record without a value, and the connector's "
            "own tombstone is dropped. none: as they are.",
        ),
        ConnectorOption(
            "delete.handling.mode",
            default=None,
            importance=Importance.LOW,
            doc="Older: drop, rewrite or none.",
        ),
        ConnectorOption(
            "drop.tombstones", Type.BOOLEAN, None, Importance.LOW, "Older: whether tombstones are left out."
        ),
        ConnectorOption(
            "add.fields",
            Type.LIST,
            [],
            doc="Of the envelope into the row: op, table, source.ts_ms, lsn:position.",
        ),
        ConnectorOption(
            "add.fields.prefix",
            default="__",
            importance=Importance.LOW,
            doc="Before the names of those fields.",
        ),
        ConnectorOption("add.headers", Type.LIST, [], doc="Of the envelope into headers."),
        ConnectorOption(
            "add.headers.prefix",
            default="__",
            importance=Importance.LOW,
            doc="Before the names of those headers.",
        ),
        ConnectorOption(
            "route.by.field",
            default="",
            importance=Importance.LOW,
            doc="The field of the row that names the topic.",
        ),
        ConnectorOption("drop.fields.header.name", default=None, importance=Importance.LOW, doc="Accepted."),
    )

    def configure(self, config: Mapping[str, Any]) -> None:
        """See Transform."""
        super().configure(config)
        self._mode = self.config["delete.tombstone.handling.mode"]
        older = self.config["delete.handling.mode"]
        if older is not None:
            tombstones = self.config["drop.tombstones"] is False
            self._mode = {
                "drop": "tombstone" if tombstones else "drop",
                "rewrite": "rewrite-with-tombstone" if tombstones else "rewrite",
                "none": "none",
            }.get(older, older)

    def apply(self, record: Record) -> Record | None:
        """See Transform."""
        if record.value is None:
            return record if self._mode in ("tombstone", "rewrite-with-tombstone", "none") else None
        if not is_envelope(record):
            return record
        envelope, schema = record.value, record.value_schema
        headers = (*record.headers, *self._headers(envelope, schema))
        if envelope.get("after") is None:
            return self._deleted(replace(record, headers=headers), envelope, schema)
        row_schema = None if schema is None else schema.by_name["after"].schema
        return self._row(replace(record, headers=headers), envelope, "after", row_schema, False)

    def _deleted(self, record: Record, envelope: Mapping[str, Any], schema: Schema | None) -> Record | None:
        if envelope.get("op") == "t" or self._mode == "drop":
            return None
        if self._mode == "delete-to-tombstone":
            return replace(record, value=None, value_schema=None)
        if self._mode == "tombstone":
            return None  # the tombstone follows
        if self._mode == "none":
            return record
        row_schema = None if schema is None else schema.by_name["before"].schema
        return self._row(record, envelope, "before", row_schema, True)

    def _row(
        self, record: Record, envelope: Mapping[str, Any], part: str, row_schema: Schema | None, deleted: bool
    ) -> Record:
        row = dict(envelope[part] or {})
        added = {
            name: (value, schema)
            for name, value, schema in self._added(envelope, record.value_schema, "add.fields")
        }
        if self._mode.startswith("rewrite"):
            added[DELETED] = (str(deleted).lower(), STRING)
        row |= {name: value for name, (value, _) in added.items()}
        topic: Any = record.topic
        if self.config["route.by.field"]:
            topic = str(row.get(self.config["route.by.field"]))
        if row_schema is not None:
            row_schema = _with_fields(
                row_schema, tuple((name, schema) for name, (_, schema) in added.items())
            )
        return replace(record, topic=topic, value=row, value_schema=row_schema)

    def _headers(self, envelope: Mapping[str, Any], schema: Schema | None) -> list[Header]:
        return [
            Header(name, value, kind) for name, value, kind in self._added(envelope, schema, "add.headers")
        ]

    def _added(
        self, envelope: Mapping[str, Any], schema: Schema | None, option: str
    ) -> list[tuple[str, Any, Schema]]:
        fields = []
        for entry in self.config[option]:
            path, _, other = entry.partition(":")
            outer, _, inner = path.rpartition(".")
            places = [outer] if outer else ["", "source", "transaction"]
            for place in places:
                holder = envelope if not place else envelope.get(place)
                if isinstance(holder, dict) and inner in holder:
                    name = self.config[f"{option}.prefix"] + (other or path.replace(".", "_"))
                    fields.append((name, holder[inner], _schema_at(schema, place, inner, holder[inner])))
                    break
        return fields


def _schema_at(schema: Schema | None, place: str, name: str, value: Any) -> Schema:
    if schema is not None:
        holder = schema.by_name[place].schema if place else schema
        if name in holder.by_name:
            return holder.by_name[name].schema.as_optional()
    return INT64.as_optional() if isinstance(value, int) else OPTIONAL_STRING


@lru_cache(maxsize=1000)
def _with_fields(schema: Schema, added: tuple[tuple[str, Schema], ...]) -> Schema:
    fields = [*schema.fields, *(Field(name, kind) for name, kind in added)]
    return replace(schema, optional=False, fields=tuple(fields))


class EventRouter(Transform):
    """Rows that are inserted into an outbox table become events: routed, keyed and unpacked."""

    doc = "Rows of an outbox table as events of their own topics."
    options = (
        ConnectorOption(
            "table.field.event.id",
            default="id",
            doc="The column with the event's id, which becomes a header.",
        ),
        ConnectorOption("table.field.event.key", default="aggregateid", doc="The column with the key."),
        ConnectorOption("table.field.event.payload", default="payload", doc="The column with the value."),
        ConnectorOption(
            "table.field.event.timestamp", default=None, doc="The column with the record's time."
        ),
        ConnectorOption(
            "table.field.event.schema.version", default=None, importance=Importance.LOW, doc="Accepted."
        ),
        ConnectorOption(
            "route.by.field", default="aggregatetype", doc="The column that says where the event goes."
        ),
        ConnectorOption(
            "route.topic.regex", default="(?<routedByValue>.*)", importance=Importance.LOW, doc="Accepted."
        ),
        ConnectorOption(
            "route.topic.replacement",
            default="outbox.event.${routedByValue}",
            doc="The topic, made of that column.",
        ),
        ConnectorOption(
            "table.fields.additional.placement",
            Type.LIST,
            [],
            doc="More columns: column:header, column:envelope, column:partition, each with :name.",
        ),
        ConnectorOption(
            "table.expand.json.payload",
            Type.BOOLEAN,
            False,
            doc="Whether a payload of JSON becomes a value with fields.",
        ),
        ConnectorOption(
            "table.op.invalid.behavior",
            default="warn",
            choices=("warn", "error", "fatal"),
            doc="What happens with updates of the table: warn leaves them out, the others refuse them.",
        ),
        ConnectorOption(
            "route.tombstone.on.empty.payload",
            Type.BOOLEAN,
            False,
            doc="Whether an empty payload is a record without a value.",
        ),
    )

    def apply(self, record: Record) -> Record | None:
        """See Transform."""
        if record.value is None or not is_envelope(record):
            return None if record.value is None else record
        op = record.value.get("op")
        if op == "d":
            return None
        if op not in ("c", "r"):
            if self.config["table.op.invalid.behavior"] == "warn":
                return None
            raise DataError(f"the outbox table had a change {op!r}; rows must only be inserted and deleted")
        row = record.value["after"]
        schema = None if record.value_schema is None else record.value_schema.by_name["after"].schema
        return self._event(record, row, schema)

    def _event(self, record: Record, row: Mapping[str, Any], schema: Schema | None) -> Record:
        config = self.config

        def part(option: str) -> tuple[Any, Schema | None]:
            name = config[option]
            if name not in row:
                raise DataError(f"the outbox row has no column {name}, which {option} names")
            return row[name], None if schema is None else schema.by_name[name].schema

        key, key_schema = part("table.field.event.key")
        value, value_schema = part("table.field.event.payload")
        route, _ = part("route.by.field")
        event_id, id_schema = part("table.field.event.id")
        headers = [*record.headers, Header("id", event_id, id_schema)]
        timestamp_ms = record.timestamp_ms
        if config["table.field.event.timestamp"]:
            at, at_schema = part("table.field.event.timestamp")
            timestamp_ms = _milliseconds(at, at_schema)
        if config["table.expand.json.payload"] and isinstance(value, str):
            value, value_schema = _expanded(value), None
        if value in ("", b"") and config["route.tombstone.on.empty.payload"]:
            value, value_schema = None, None
        partition = record.partition
        added: dict[str, tuple[Any, Schema | None]] = {}
        for entry in config["table.fields.additional.placement"]:
            column, _, rest = entry.partition(":")
            where, _, name = rest.partition(":")
            if column not in row:
                raise DataError(
                    f"the outbox row has no column {column}, which table.fields.additional.placement names"
                )
            column_schema = None if schema is None else schema.by_name[column].schema
            if where == "header":
                headers.append(Header(name or column, row[column], column_schema))
            elif where == "partition":
                partition = None if row[column] is None else int(row[column])
            else:
                added[name or column] = (row[column], column_schema)
        if added:
            schemas = {"payload": value_schema, **{name: one for name, (_, one) in added.items()}}
            value = {"payload": value, **{name: one for name, (one, _) in added.items()}}
            known = {name: one for name, one in schemas.items() if one is not None}
            value_schema = struct(known, f"{route}.Value") if len(known) == len(schemas) else None
        topic = config["route.topic.replacement"].replace("${routedByValue}", str(route))
        return replace(
            record,
            topic=topic,
            key=key,
            key_schema=key_schema,
            value=value,
            value_schema=value_schema,
            headers=tuple(headers),
            timestamp_ms=timestamp_ms,
            partition=partition,
        )


def _expanded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"the payload of the outbox row is not JSON: {error}") from error


def _milliseconds(value: Any, schema: Schema | None) -> int | None:
    """A time of Debezium's types in milliseconds since 1970."""
    if not isinstance(value, int):
        return None
    name = (schema.name or "") if schema is not None else ""
    return (
        value // 1000
        if name.endswith("MicroTimestamp")
        else value // 1_000_000
        if name.endswith("NanoTimestamp")
        else value
    )
