"""The interface for connectors, driven by `barnabas.testing.connect`."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pytest

from barnabas.connect import (
    ConnectError,
    ConnectorOption,
    DataError,
    SourceConnector,
    SourceRecord,
    Type,
    schemas,
)
from barnabas.connect.connectors import SinkConnector
from barnabas.connect.errors import OptionError
from barnabas.connect.kinds.file import FileStreamSink, FileStreamSource
from barnabas.connect.options import ConfigDef
from barnabas.connect.plugins import find_plugin
from barnabas.testing.connect import run_sink, run_source


class Numbers(SourceConnector):
    """Three numbers at a time."""

    options = (ConnectorOption("topic"), ConnectorOption("step", Type.INT, 3, lo=1))

    def poll(self, partition, offset):  # type: ignore[no-untyped-def]
        begin = (offset or {}).get("next", 0)
        step = self.config["step"]
        return [
            SourceRecord(self.config["topic"], n, source_offset={"next": n + 1})
            for n in range(begin, begin + step)
        ]


def test_a_source_goes_on_where_it_has_committed() -> None:
    with run_source(Numbers, {"topic": "numbers", "step": "2"}) as source:
        assert [record.value for record in source.poll()] == [0, 1]
        assert [record.value for record in source.poll(commit=False)] == [2, 3]
        source.restart()
        assert [record.value for record in source.poll()] == [2, 3]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({}, 'Missing required configuration "topic" which has no default value.'),
        ({"topic": "t", "step": "x"}, "Invalid value x for configuration step: Not a number of type INT"),
        ({"topic": "t", "step": "0"}, "Invalid value 0 for configuration step: Value must be at least 1"),
    ],
)
def test_wrong_options_are_refused_in_kafkas_words(texts: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        ConfigDef(Numbers.options).parse(texts)
    assert str(raised.value) == message


def test_lines_of_a_file_are_records_once_they_end(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    with run_source(FileStreamSource, {"topic": "lines", "file": str(path), "batch.size": "2"}) as source:
        assert source.poll() == []
        path.write_bytes(b"one\ntwo\r\nthree\nfo")
        assert [record.value for record in source.poll()] == ["one", "two"]
        source.restart()
        with path.open("ab") as file:
            file.write("ür\n".encode())
        assert [record.value for record in source.poll()] == ["three", "foür"]
        assert source.offset({"filename": str(path)}) == {"position": path.stat().st_size}
        assert source.poll() == []


def test_offsets_of_files_are_checked() -> None:
    with pytest.raises(ConnectError, match="non-negative integer"):
        FileStreamSource.check_offsets({"file": "f"}, [({"filename": "f"}, {"position": -1})])


def test_records_are_appended_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with run_sink(FileStreamSink, {"file": str(path)}) as sink:
        sink.put([sink.record("events", "a"), sink.record("events", {"id": 1, "ok": True})])
        assert sink.flush() == {("events", 0): 2}
        assert path.read_text() == "a\n{id=1, ok=true}\n"


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "FileStreamSinkConnector",
        "FileStreamSink",
        "file-sink",
    ],
)
def test_connectors_are_found_by_every_name(name: str) -> None:
    assert issubclass(find_plugin(name).load(), SinkConnector)


def test_an_unknown_connector_is_answered_with_what_is_near() -> None:
    with pytest.raises(OptionError, match="FileStreamSourceConnector"):
        find_plugin("FileStreamSorce")


@pytest.mark.parametrize(
    ("schema", "value", "carried"),
    [
        (schemas.decimal(2), Decimal("-12.50"), b"\xfb\x1e"),
        (schemas.decimal(0), Decimal(128), b"\x00\x80"),
        (schemas.DATE_SCHEMA, dt.date(1970, 1, 11), 10),
        (schemas.TIME_SCHEMA, dt.time(0, 1, 2, 3000), 62_003),
        (schemas.TIMESTAMP_SCHEMA, dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), 1_000),
    ],
)
def test_logical_values_are_carried_by_plain_types(
    schema: schemas.Schema, value: object, carried: object
) -> None:
    assert schemas.to_primitive(schema, value) == carried
    assert schemas.from_primitive(schema, carried) == value


def test_values_are_checked_with_their_place() -> None:
    schema = schemas.struct({"id": schemas.INT32, "tags": schemas.array(schemas.STRING)})
    schemas.check(schema, {"id": 1, "tags": ["a"]})
    with pytest.raises(DataError, match=r"the value\.tags\[1\] is int, but its schema says string"):
        schemas.check(schema, {"id": 1, "tags": ["a", 2]})
    with pytest.raises(DataError, match=r"out of the range of int32"):
        schemas.check(schema, {"id": 1 << 31, "tags": []})
    with pytest.raises(DataError, match="more than 2 digits"):
        schemas.to_primitive(schemas.decimal(2), Decimal("1.234"))
