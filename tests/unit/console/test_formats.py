"""MessagePack, CBOR and XML, as other programs write them, and bytes that are none of these."""

from __future__ import annotations

import datetime

import cbor2
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.records.decoding import FORMATS, Decoder
from barnabas.console.records.formats import DECODERS, Undecodable, guessed

NONE = Decoder(lambda: None)
ORDER = {"id": 7, "country": "DE", "lines": [{"sku": "a", "count": 2}], "note": None}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_what_libraries_write_is_read_as_it_was(value: object) -> None:
    assert DECODERS["msgpack"](msgpack.packb(value)) == value
    assert DECODERS["cbor"](cbor2.dumps(value)) == value


@given(st.binary(max_size=60), st.sampled_from(FORMATS))
def test_any_bytes_are_shown_in_any_format(data: bytes, how: str) -> None:
    shown = NONE.shown("t", "value", data, how)
    assert shown.size_bytes == len(data)
    assert isinstance(shown.text, str)


def test_maps_are_recognized() -> None:
    assert guessed(msgpack.packb(ORDER)) == ("msgpack", ORDER)
    assert guessed(cbor2.dumps(ORDER)) == ("cbor", ORDER)
    assert guessed(b"\xd9\xd9\xf7" + cbor2.dumps(ORDER))[0] == "cbor"  # type: ignore[index]
    assert guessed(b"\x00\x01\x02") is None
    assert guessed(msgpack.packb(ORDER) + b"x") is None
    assert NONE.shown("t", "value", msgpack.packb(ORDER), "auto").document == ORDER


def test_what_json_does_not_know_has_a_text() -> None:
    moment = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    data = cbor2.dumps({"at": moment, "raw": b"\x00\xff", 3: cbor2.CBORTag(4000, "x")})
    assert DECODERS["cbor"](data) == {
        "at": "2026-01-31T12:00:00+00:00", "raw": "AP8=", "3": {"tag": 4000, "value": "x"},
    }  # fmt: skip
    packed = msgpack.packb({"at": msgpack.Timestamp(0, 0), "own": msgpack.ExtType(5, b"ab")})
    assert DECODERS["msgpack"](packed) == {
        "at": "1970-01-01T00:00:00+00:00", "own": {"type": 5, "data": "YWI="},
    }  # fmt: skip


def test_xml_is_shown_as_it_is_and_filtered_by_element() -> None:
    shown = NONE.shown("t", "value", b'<order id="7"><line>a</line><line>b</line></order>', "xml")
    assert shown.text.startswith("<order")
    assert shown.document == {"order": {"@id": "7", "line": ["a", "b"]}}


@pytest.mark.parametrize(
    ("how", "data"),
    [
        ("xml", b'<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>'),
        ("xml", b"<a>" * 50_000),
        ("xml", b"no xml"),
        ("cbor", b"\x81" * 50_000),
        ("cbor", b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff"),
        ("cbor", b"\x01\x02"),
        ("msgpack", b"\x81" * 50_000),
        ("msgpack", b"\xdf\xff\xff\xff\xff"),
        ("msgpack", b"\x01\x02"),
    ],
)
def test_hostile_and_broken_bytes_are_refused_with_a_reason(how: str, data: bytes) -> None:
    with pytest.raises(Undecodable, match="it is not"):
        DECODERS[how](data)
    shown = NONE.shown("t", "value", data, how)
    assert (shown.kind, shown.error is None) == ("hex", False)
