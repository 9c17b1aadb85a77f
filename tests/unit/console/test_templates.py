"""Templates of records, and examples that fit their schemas."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from barnabas.console.pages.produce.examples import example_of
from barnabas.console.pages.produce.templates import filled
from barnabas.schemas.codecs.schemas import make_codec

AVRO = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "price", "type": ["double", "string"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": []}}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "attributes", "type": {"type": "map", "values": "string"}},
        {"name": "last", "type": "shop.State"},
        {"name": "before", "type": ["null", "Order"]},
    ],
}  # fmt: skip
JSON = {
    "type": "object", "required": ["id", "address"],
    "properties": {
        "id": {"type": "integer", "minimum": 1}, "kind": {"enum": ["a", "b"]}, "address": {"$ref": "#/$defs/address"},
        "tags": {"type": "array", "items": {"type": "string"}}, "name": {"type": ["string", "null"]},
    },
    "$defs": {"address": {"type": "object", "properties": {"city": {"type": "string", "default": "Ulm"}}}},
}  # fmt: skip
PROTOBUF = """syntax = "proto3"; message Order { int64 id = 1; string country = 2; repeated string tags = 3;
  enum State { NEW = 0; PAID = 1; } State state = 4; }"""


@pytest.mark.parametrize(
    ("kind", "text"), [("AVRO", json.dumps(AVRO)), ("JSON", json.dumps(JSON)), ("PROTOBUF", PROTOBUF)]
)
def test_an_example_fits_its_schema(kind: str, text: str) -> None:
    example: Any = example_of(kind, text)
    assert "id" in example
    codec = make_codec(kind, text, ())
    assert codec.decode(codec.encode(example)) is not None


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", "{"), ("AVRO", "[]"), ("JSON", "[" * 100_000), ("JSON", '{"$ref": "#"}'), ("JSON", '{"$ref": "#/a"}'),
        ("PROTOBUF", "message"), ("XML", "{}"), ("JSON", "3"), ("AVRO", '{"type": "record", "name": "A"}'),
        ("AVRO", '{"type":"record","name":"A","fields":[{"name":"a","type":"A"}]}'),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_read_has_no_end_or_no_example(kind: str, text: str) -> None:
    example_of(kind, text)


def test_gaps_are_filled_anew_and_all_else_stays() -> None:
    template = '{"n": {{n}}, "at": "{{ now }}", "ms": {{now_ms}}, "id": "{{uuid}}", "x": {{random 5 -5}},'
    template += ' "c": "{{pick DE | FR}}"}'
    made = [json.loads(filled(template, number, 1_767_225_600.25)) for number in (1, 2)]
    assert [one["n"] for one in made] == [1, 2]
    assert (made[0]["at"], made[0]["ms"]) == ("2026-01-01T00:00:00.250Z", 1_767_225_600_250)
    assert made[0]["id"] != made[1]["id"]
    assert all(-5 <= one["x"] <= 5 and re.fullmatch("DE|FR", one["c"]) for one in made)
    for text in ("{{other}}", "{n}", "{{random 1}}", "{{pick }}", "{{" * 50_000):
        assert filled(text, 1, 0.0) == text
