"""How bytes become records and records become bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.records import formatting
from barnabas.cli.records.record_shape import LineFormat, Record, parse_headers
from barnabas.terminal.errors import CliError, UsageError
from barnabas.terminal.lines import split


class Message:
    """What confluent_kafka.Message answers, for records that no broker is needed for."""

    def __init__(self, key: bytes | None, value: bytes | None, headers: object = None) -> None:
        self._key, self._value, self._headers = key, value, headers

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> object:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return (1, 1234)


MESSAGES = [
    Message(b"k", b"v", [("a", b"1"), ("b", None)]),
    Message(None, b"\xff\x00"),
    Message(b"", None),
]


@pytest.mark.parametrize(
    ("template", "want"),
    [
        (r"%s\n", b"v\n\xff\x00\n-\n"),
        (r"%t %p %o %T|", b"t 3 42 1234|" * 3),
        (r"%k=%K %S;", b"k=1 1;-=-1 2;=0 -1;"),
        (r"%h,", b"a=1,b=-,,,"),
        (r"%R", b"\0\0\0\1\0\0\0\2\xff\xff\xff\xff"),
        (r"100%%\t\x41é", "100%\tAé".encode() * 3),
    ],
)
def test_format(template: str, want: bytes) -> None:
    assert formatting.format_writer(template, b"-")(MESSAGES) == want


@pytest.mark.parametrize("template", ["%", "%y", r"\q", r"\xg0"])
def test_format_refused(template: str) -> None:
    with pytest.raises(UsageError):
        formatting.format_writer(template, b"")


def test_plain_values_and_pairs() -> None:
    assert formatting.value_writer(b"\n", None, b"NULL")(MESSAGES) == b"v\n\xff\x00\nNULL\n"
    assert formatting.value_writer(b"|", b":", b"-")(MESSAGES) == b"k:v|-:\xff\x00|:-|"


def test_json_envelopes_come_back_as_the_same_records() -> None:
    lines = formatting.json_writer()(MESSAGES).splitlines()
    assert json.loads(lines[0]) == {
        "topic": "t", "partition": 3, "offset": 42, "tstype": "create", "ts": 1234,
        "headers": ["a", "1", "b", None], "key": "k", "payload": "v",
    }  # fmt: skip
    shape = LineFormat(None, None, [], None, False, True)
    records = [shape.record(line) for line in lines]
    assert [(r.key, r.value) for r in records] == [(m.key(), m.value()) for m in MESSAGES]
    assert records[0].headers == [("a", b"1"), ("b", None)]
    assert records[0].timestamp_ms == 1234


@pytest.mark.parametrize("line", [b"[1]", b"{", b"x"])
def test_bad_envelope(line: bytes) -> None:
    with pytest.raises(CliError, match="one JSON object per line"):
        LineFormat(None, None, [], None, False, True).record(line)


def test_json_values_may_be_objects() -> None:
    record = LineFormat(None, None, [], None, False, True).record(
        b'{"value": {"a": 1}, "headers": {"h": "x"}}'
    )
    assert record.value == b'{"a": 1}'
    assert record.headers == [("h", b"x")]


@given(
    st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"\r", b"").replace(b"\n", b"")), max_size=20),
    st.sampled_from([b"\n", b"\r\n", b"\n\n"]),
    st.integers(1, 9),
    st.booleans(),
)
def test_split_anywhere(lines: list[bytes], delimiter: bytes, size: int, ends: bool) -> None:
    data = delimiter.join(lines) + (delimiter if ends and lines else b"")

    def parts() -> Iterator[bytes]:
        yield from (data[i : i + size] for i in range(0, len(data), size))

    want = data.split(delimiter)
    if want[-1] == b"":
        want.pop()
    assert [line for batch in split(parts(), delimiter) for line in batch] == want


@pytest.mark.parametrize(
    ("line", "null", "key", "value"),
    [
        (b"k:v:w", False, b"k", b"v:w"),
        (b"novalue", False, None, b"novalue"),
        (b":", False, b"", b""),
        (b":", True, None, None),
        (b"k:", True, b"k", None),
    ],
)
def test_keys(line: bytes, null: bool, key: bytes | None, value: bytes | None) -> None:
    record = LineFormat(b":", None, [], None, null, False).record(line)
    assert record == Record(value, key)


def test_headers() -> None:
    assert parse_headers(["a=1", "b=", "c", "d=x=y"]) == [("a", b"1"), ("b", b""), ("c", None), ("d", b"x=y")]
