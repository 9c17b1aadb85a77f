"""ExtractNewRecordState and the outbox's EventRouter, as Debezium's documentation describes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.connect.cdc.envelope import Column, Table, event, tombstone
from barnabas.connect.errors import DataError
from barnabas.connect.records import SourceRecord
from barnabas.connect.schemas import INT32, INT64, STRING, Schema, struct
from barnabas.connect.transforms.finding import make_transform

SOURCE = struct({"ts_ms": INT64, "table": STRING, "lsn": INT64}, "Source")
PEOPLE = Table(
    "w.people",
    "public",
    "people",
    (Column("id", INT32, int), Column("name", STRING.as_optional(), str)),
    (0, 1),
    ("id",),
    SOURCE,
)


def change(op: str, before: dict | None, after: dict | None, table: Table = PEOPLE) -> SourceRecord:
    return event(
        table, op, {"ts_ms": 7, "table": "people", "lsn": 9}, 1_000_000_000, before=before, after=after
    )


def extract(**options: str) -> Any:
    named = {f"transforms.u.{name.replace('_', '.')}": value for name, value in options.items()}
    return make_transform({"transforms.u.type": "io.debezium.transforms.ExtractNewRecordState", **named}, "u")


INSERT = change("c", None, {"id": 1, "name": "a"})
DELETE = change("d", {"id": 1, "name": None}, None)
TOMBSTONE = tombstone(PEOPLE, {"id": 1})


def test_rows_and_tombstones():
    unwrap = extract()
    row = unwrap.apply(INSERT)
    assert (row.topic, row.key, row.value) == ("w.people", {"id": 1}, {"id": 1, "name": "a"})
    assert (row.value_schema.name, row.value_schema.optional) == ("w.people.Value", False)
    assert unwrap.apply(DELETE) is None
    assert unwrap.apply(TOMBSTONE) == TOMBSTONE


@pytest.mark.parametrize(
    ("mode", "of_delete", "of_tombstone"),
    [
        ("drop", None, None),
        ("rewrite", {"id": 1, "name": None, "__deleted": "true"}, None),
        ("rewrite-with-tombstone", {"id": 1, "name": None, "__deleted": "true"}, "kept"),
        ("delete-to-tombstone", "tombstone", None),
    ],
)
def test_deletes(mode, of_delete, of_tombstone):
    unwrap = extract(delete_tombstone_handling_mode=mode)
    changed = unwrap.apply(DELETE)
    if of_delete is None:
        assert changed is None
    elif of_delete == "tombstone":
        assert changed.value is None
    else:
        assert changed.value == of_delete
        assert unwrap.apply(INSERT).value["__deleted"] == "false"
    assert (unwrap.apply(TOMBSTONE) is None) == (of_tombstone is None)


def test_fields_and_headers_of_the_envelope():
    unwrap = extract(add_fields="op,table,source.ts_ms,lsn:position", add_headers="op")
    changed = unwrap.apply(INSERT)
    assert changed.value == {
        "id": 1, "name": "a", "__op": "c", "__table": "people", "__source_ts_ms": 7, "__position": 9,
    }  # fmt: skip
    assert [(field.name, field.schema.type) for field in changed.value_schema.fields][2:] == [
        ("__op", "string"),
        ("__table", "string"),
        ("__source_ts_ms", "int64"),
        ("__position", "int64"),
    ]
    assert [(header.key, header.value) for header in changed.headers] == [("__op", "c")]


def test_other_records_pass():
    other = SourceRecord("t", {"a": 1}, None, struct({"a": INT32}))
    assert extract().apply(other) is other


OUTBOX = Table(
    "w.outbox",
    "public",
    "outbox",
    tuple(
        Column(name, schema, str)
        for name, schema in (
            ("id", STRING),
            ("aggregatetype", STRING),
            ("aggregateid", STRING),
            ("type", STRING),
            ("payload", Schema("string", True, "io.debezium.data.Json", 1)),
        )
    ),
    (0, 1, 2, 3, 4),
    ("id",),
    SOURCE,
)
ROW = {
    "id": "e1",
    "aggregatetype": "order",
    "aggregateid": "7",
    "type": "OrderCreated",
    "payload": '{"n": 1}',
}


def router(**options: str) -> Any:
    return make_transform({"transforms.o.type": "io.debezium.transforms.outbox.EventRouter", **options}, "o")


def test_the_outbox():
    outgoing = router().apply(change("c", None, ROW, OUTBOX))
    assert (outgoing.topic, outgoing.key, outgoing.value) == ("outbox.event.order", "7", '{"n": 1}')
    assert [(header.key, header.value) for header in outgoing.headers] == [("id", "e1")]
    options = {
        "transforms.o.table.expand.json.payload": "true",
        "transforms.o.table.fields.additional.placement": "type:header:eventType",
        "transforms.o.route.topic.replacement": "events.${routedByValue}",
    }
    outgoing = router(**options).apply(change("c", None, ROW, OUTBOX))
    assert (outgoing.topic, outgoing.value) == ("events.order", {"n": 1})
    assert outgoing.headers[1].key == "eventType"
    assert router().apply(change("d", ROW, None, OUTBOX)) is None
    assert router().apply(change("u", ROW, ROW, OUTBOX)) is None
    strict = router(**{"transforms.o.table.op.invalid.behavior": "error"})
    with pytest.raises(DataError, match="rows must only be inserted and deleted"):
        strict.apply(change("u", ROW, ROW, OUTBOX))
    lost = replace(OUTBOX, columns=OUTBOX.columns[:2], places=(0, 1))
    with pytest.raises(DataError, match=r"has no column aggregateid, which table\.field\.event\.key names"):
        router().apply(change("c", None, {"id": "e", "aggregatetype": "order"}, lost))
