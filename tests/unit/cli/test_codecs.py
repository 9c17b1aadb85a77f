"""`-s value=avro` and its like: JSON to bytes and back, and what is said when they do not suit each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.cli.records.codecs import (
    Codecs,
    Mismatch,
    Undecodable,
    Wanted,
    json_of,
    make_codec,
    parse_wanted,
)
from barnabas.cli.records.formatting import json_writer, value_writer
from barnabas.client.registry import RegistryClient, RegistryError
from barnabas.schemas.framing import NotFramed, Schema, frame
from barnabas.terminal.errors import CliError, UsageError

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
AVRO = Schema(1, "AVRO", json.dumps(ORDER))
JSON = Schema(
    2, "JSON", '{"properties": {"id": {"type": "string", "pattern": "^[a-z]+$"}}, "required": ["id"]}'
)
PROTOBUF = Schema(
    3,
    "PROTOBUF",
    'syntax = "proto3"; message A { string id = 1; message B { int64 n = 1; } } message C { A a = 1; }',
)


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        ([], {}),
        (["avro"], {"key": Wanted("AVRO", None), "value": Wanted("AVRO", None)}),
        (["value=jsonschema"], {"value": Wanted("JSON", None)}),
        (
            ["key=protobuf", "value=AVRO@a.avsc"],
            {"key": Wanted("PROTOBUF", None), "value": Wanted("AVRO", "a.avsc")},
        ),
        (["avro", "key=jsonschema"], {"key": Wanted("JSON", None), "value": Wanted("AVRO", None)}),
    ],
)
def test_what_is_asked_for(items: list[str], wanted: dict[str, Wanted]) -> None:
    assert parse_wanted(items) == wanted


@pytest.mark.parametrize("item", ["", "xml", "value=", "head=avro", "value=avro@", "avro@a.avsc", "=avro"])
def test_what_cannot_be_asked_for(item: str) -> None:
    with pytest.raises(UsageError, match="-s "):
        parse_wanted([item])


@pytest.mark.parametrize(
    ("schema", "document", "read"),
    [
        (AVRO, {"id": "ä", "count": 1, "note": {"string": "x"}}, None),
        (AVRO, {"id": "a", "count": 1, "note": None}, None),
        (AVRO, {"id": "a", "count": 1}, {"id": "a", "count": 1, "note": None}),
        (Schema(1, "AVRO", '"string"'), "text\nof two lines", None),
        (Schema(1, "AVRO", '{"type": "map", "values": "long"}'), {"a": 1 << 40}, None),
        (JSON, {"id": "a", "more": [1, None]}, None),
        (PROTOBUF, {"id": "a"}, None),
    ],
)
def test_there_and_back(schema: Schema, document: Any, read: Any) -> None:
    codec = make_codec(schema)
    assert codec.decode(codec.encode(document)) == (document if read is None else read)


@pytest.mark.parametrize(
    ("schema", "text", "reason"),
    [
        (AVRO, "{", "'{' is not JSON"),
        (AVRO, '{"id": "a"}', "/count: the field is missing and has no default"),
        (AVRO, '{"id": "a", "count": 1099511627776}', "/count: 1099511627776 is not of type int"),
        (AVRO, '{"id": "a", "count": "1"}', '/count: "1" is not of type int'),
        (AVRO, '{"id": "a", "count": 1, "nots": 1}', "/nots: the schema has no such field"),
        (AVRO, "[]", "/: [] is not an object"),
        (JSON, '{"id": 5}', '/id: 5 is not of type "string"'),
        (JSON, "{}", '"id" is a required property'),
        (PROTOBUF, '{"idd": 1}', "does not suit the schema"),
        (PROTOBUF, "5", "does not suit the schema"),
    ],
)
def test_json_that_does_not_suit(schema: Schema, text: str, reason: str) -> None:
    with pytest.raises(Mismatch) as raised:
        make_codec(schema).encode(json_of(text))
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (AVRO, b""), (AVRO, b"\xff\xff\xff\xff"), (AVRO, b"\2a\2\0\0"), (JSON, b"{"), (JSON, b"\xff"), (PROTOBUF, b""),
        (PROTOBUF, b"\0\xff"), (PROTOBUF, b"\2\x0a"), (PROTOBUF, b"\4\0\4"),
    ],
)  # fmt: skip
def test_bytes_that_do_not_suit(schema: Schema, payload: bytes) -> None:
    with pytest.raises((Mismatch, NotFramed)):
        make_codec(schema).decode(payload)


def test_messages_within_messages() -> None:
    assert make_codec(PROTOBUF).decode(b"\4\0\0\x08\x05") == {"n": "5"}
    assert make_codec(PROTOBUF).decode(b"\2\2\x0a\x03\x0a\x01a") == {"a": {"id": "a"}}


@pytest.mark.parametrize(
    "schema",
    [Schema(1, "AVRO", '"strin"'), Schema(1, "JSON", "{"), Schema(1, "PROTOBUF", "x"), Schema(1, "XML", "")],
)
def test_schemas_that_are_none(schema: Schema) -> None:
    with pytest.raises(CliError, match="schema 1"):
        make_codec(schema)


class Known(RegistryClient):
    """A registry of the three schemas above."""

    def by_id(self, schema_id: int) -> Schema:
        for schema in (AVRO, JSON, PROTOBUF):
            if schema.id == schema_id:
                return schema
        raise RegistryError(f"Schema {schema_id} not found", 40403)

    def newest(self, subject: str) -> Schema:
        return AVRO


class Message:
    """As of confluent_kafka."""

    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return 1, 5

    def headers(self) -> None:
        return None


def test_records_as_a_pipe_gets_them() -> None:
    codecs = Codecs({"value": Wanted("AVRO", None)}, Known("http://nowhere:1"))
    codecs.prepare("orders")
    value = codecs.encoded("value", b'{"id": "a", "count": 1}')
    assert value is not None
    assert value[:5] == b"\0\0\0\0\1"
    assert codecs.encoded("key", b"k") == b"k"
    assert codecs.encoded("value", None) is None
    messages = [Message(b"k", value), Message(None, None)]
    plain = codecs.writer(value_writer(b"\n", b":", b"NULL"))
    assert plain(messages) == b'k:{"id":"a","count":1,"note":null}\nNULL:NULL\n'
    lines = codecs.writer(json_writer())(messages).splitlines()
    assert [json.loads(line)["payload"] for line in lines] == [{"id": "a", "count": 1, "note": None}, None]
    assert json.loads(lines[0])["key"] == "k"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            b"plain",
            "orders [0] offset 7: value: the bytes do not begin with the id of a schema: 0x706c61696e",
        ),
        (frame(9, b""), "orders [0] offset 7: value: Schema 9 not found (-r http://nowhere:1)"),
        (frame(2, b"{}"), "orders [0] offset 7: value: schema 2 is of type JSON, not AVRO"),
        (frame(1, b""), "orders [0] offset 7: value: the bytes do not suit the schema"),
    ],
)
def test_a_record_that_cannot_be_decoded(value: bytes, reason: str) -> None:
    codecs = Codecs({"value": Wanted("AVRO", None)}, Known("http://nowhere:1"))
    codecs.prepare("orders")
    good = codecs.encoded("value", b'{"id": "a", "count": 1}')
    with pytest.raises(Undecodable) as raised:
        codecs.writer(value_writer(b"\n", None, b""))([Message(None, good), Message(None, value)])
    assert str(raised.value).startswith(reason)
    assert raised.value.before == b'{"id":"a","count":1,"note":null}\n'


def test_a_subject_of_another_type() -> None:
    with pytest.raises(CliError, match="the newest version of orders-key is of type AVRO, not PROTOBUF"):
        Codecs({"key": Wanted("PROTOBUF", None)}, Known("http://nowhere:1")).prepare("orders")


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://127.0.0.1:1", "no registry answers at http://127.0.0.1:1"), ("ftp://h", "not the address of a registry"),
     ("http://h:x", "not the address of a registry"), ("http://me:secret@127.0.0.1:1", "at http://127.0.0.1:1")],
)  # fmt: skip
def test_a_registry_that_is_not_there(url: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.client.registry.PAUSE_S", 0.0)
    with pytest.raises(CliError) as raised:
        Codecs({"value": Wanted("AVRO", None)}, RegistryClient(url)).prepare("orders")
    assert reason in str(raised.value)
    assert "secret" not in str(raised.value)
