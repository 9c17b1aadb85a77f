"""Embedded formats: JSON to a record's bytes and back."""

from __future__ import annotations

import io
import json
import uuid
from types import SimpleNamespace
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.proxy import formats
from barnabas.proxy.formats import Mismatch, make_codec
from barnabas.proxy.json_stream import JsonStream, StreamError
from barnabas.schemas.codecs.avro import AvroCodec
from barnabas.schemas.errors import InvalidSchema

RECORD = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {
            "name": "u",
            "type": ["null", "int", "double", "string", {"type": "enum", "name": "E", "symbols": ["X"]}],
        },
        {"name": "next", "type": ["null", "Order"], "default": None},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 3},
        {
            "name": "tags",
            "type": {"type": "map", "values": {"type": "array", "items": "string"}},
            "default": {},
        },
        {"name": "two", "type": {"type": "fixed", "name": "F", "size": 2}, "default": "ab"},
    ],
}
CODEC = AvroCodec(json.dumps(RECORD))


def order(u: Any, **more: Any) -> dict[str, Any]:
    return {"u": u, "next": None, "raw": "\u00ff", "at": 3, "tags": {}, "two": "ab", **more}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"u": None}, order(None)),
        ({"u": {"int": 5}}, order({"int": 5})),
        ({"u": {"double": 1}}, order({"double": 1.0})),
        ({"u": {"shop.E": "X"}}, order({"shop.E": "X"})),
        ({"u": {"E": "X"}}, order({"shop.E": "X"})),
        ({"u": 7}, order({"int": 7})),  # without its type: the first that fits
        ({"u": "text"}, order({"string": "text"})),
        ({"u": {"double": "NaN"}}, order({"double": "NaN"})),
        (
            {"u": None, "tags": {"a": ["b"]}, "raw": "\x00\u0080"},
            order(None, tags={"a": ["b"]}, raw="\x00\u0080"),
        ),
        ({"u": None, "next": {"shop.Order": {"u": None}}}, order(None, next={"shop.Order": order(None)})),
    ],
)
def test_avro_in_json(value: Any, read: Any) -> None:
    data = CODEC.encode(value)
    assert CODEC.decode(data) == read
    assert CODEC.encode(read) == data
    fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(RECORD), None)  # as every other reader


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"u": {"x": 1}}, "/u"),
        ({"u": None, "zz": 1}, "/zz"),
        ({}, "/u"),
        (5, "/"),
        ({"u": None, "raw": "\u0100"}, "/raw"),
        ({"u": None, "two": "abc"}, "/two"),
        ({"u": {"int": 1 << 31}}, "/u/int"),
        ({"u": None, "at": 1 << 63}, "/at"),
        ({"u": None, "at": True}, "/at"),
        ({"u": None, "tags": {"a": [1]}}, "/tags/a/0"),
    ],
)
def test_values_that_do_not_suit_their_avro_schema(value: Any, place: str) -> None:
    with pytest.raises(Mismatch) as caught:
        CODEC.encode(value)
    assert str(caught.value).startswith(f"{place}:")


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        assert CODEC.encode(CODEC.decode(data))
    except Mismatch:
        pass


def test_protobuf_in_json() -> None:
    text = 'syntax="proto3"; message Z { string name=1; int64 n=2; message B { int32 z=1; } } message A { int32 q=1; }'
    codec = make_codec(formats.PROTOBUF, text, [])
    data = codec.encode({"name": "x", "n": "5"})
    assert data == b"\0\x0a\x01x\x10\x05"
    assert codec.decode(data) == {"name": "x", "n": "5"}
    assert codec.decode(b"\x02\x02\x08\x07") == {"q": 7}  # the second message
    assert codec.decode(b"\x04\x00\x00\x08\x07") == {"z": 7}  # a nested one
    for bad in (b"", b"\x04\x09\x00", b"\xff" * 9, b"\0\xff"):
        with pytest.raises(Mismatch):
            codec.decode(bad)
    with pytest.raises(Mismatch):
        codec.encode({"nope": 1})


def test_json_schema() -> None:
    codec = make_codec(
        formats.JSONSCHEMA, '{"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}', []
    )
    assert codec.encode({"a": "aa"}) == b'{"a":"aa"}'
    with pytest.raises(Mismatch, match="/a: "):
        codec.encode({"a": "a" * 60 + "b"})  # at once, whatever the pattern


@pytest.mark.parametrize("format", sorted(formats.WITH_SCHEMA))
def test_schemas_that_are_none(format: str) -> None:
    with pytest.raises(InvalidSchema):
        make_codec(format, '{"type": "record", "pattern": "("', [])


def test_formats_without_a_schema() -> None:
    assert formats.encode_plain("binary", "S2Fma2E=") == b"Kafka"
    assert formats.decode_plain("binary", b"Kafka") == "S2Fma2E="
    assert formats.encode_plain("json", {"a": [1, None]}) == b'{"a":[1,null]}'
    assert formats.encode_plain("json", None) is None
    assert formats.decode_plain("json", b" 5 ") == 5
    for format, value in (("binary", "!"), ("binary", 5), ("string", {})):
        with pytest.raises(Mismatch):
            formats.encode_plain(format, value)
    with pytest.raises(Mismatch):
        formats.decode_plain("json", b"\xff")


def test_the_schema_that_a_record_names() -> None:
    guid = uuid.UUID(int=7)

    def named(value: bytes, *headers: tuple[str, bytes | None]) -> tuple[int | str, bytes]:
        record = SimpleNamespace(key=lambda: b"k", value=lambda: value, headers=lambda: list(headers) or None)
        return formats.schema_of(record, "value")

    assert named(formats.frame(70000, b"x")) == (70000, b"x")
    assert named(b"\x01" + guid.bytes + b"x") == (str(guid), b"x")
    header = ("__value_schema_id", b"\x01" + guid.bytes + b"\0")  # behind it a message's path
    assert named(b"x", ("__key_schema_id", b"\0\0\0\0\1"), header) == (str(guid), b"\0x")
    assert named(b"x", ("__value_schema_id", b"\0\0\0\0\1")) == (1, b"x")
    for value, *headers in ((b"\x01\0\0\0\1",), (b"x" * 30,), (b"x" * 30, ("__value_schema_id", b"\x01\0"))):
        with pytest.raises(Mismatch):
            named(value, *headers)


OBJECTS = st.lists(
    st.dictionaries(
        st.text(max_size=6),
        st.recursive(
            st.text(alphabet='a"\\{}[]', max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=5
        ),
        max_size=3,
    ),
    max_size=5,
)


@settings(max_examples=40)
@given(OBJECTS, st.integers(1, 9), st.sampled_from(["", "\n", " \r\n\t"]))
def test_objects_are_cut_apart_wherever_the_pieces_end(objects: list[Any], step: int, between: str) -> None:
    whole = between.join(["", *map(json.dumps, objects), ""]).encode()
    stream, documents = JsonStream(1000), []
    for begin in range(0, len(whole), step):
        documents += stream.feed(whole[begin : begin + step])
    stream.end()
    assert [json.loads(raw) for raw in documents] == objects


def test_a_stream_that_is_none() -> None:
    with pytest.raises(StreamError):
        JsonStream(100).feed(b" [")
    with pytest.raises(StreamError, match="more than 100 bytes"):
        JsonStream(100).feed(b'{"a": "' + b"x" * 200)
    stream = JsonStream(100)
    assert stream.feed(b"{} {") == [b"{}"]
    with pytest.raises(StreamError):
        stream.end()
