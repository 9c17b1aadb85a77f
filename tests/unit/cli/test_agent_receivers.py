"""What the agent receives: syslog, the journal, containers, OpenTelemetry, Beats; and the spool in which it waits."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.process import free_port

from barnabas.agent.assembly import Assembler, Recipe
from barnabas.agent.config import read_config
from barnabas.agent.containers import named
from barnabas.agent.events import EventFormat
from barnabas.agent.files import Followed
from barnabas.agent.receivers.journal import Cutter
from barnabas.agent.receivers.lumberjack import Lumberjack
from barnabas.agent.receivers.otlp_events import requested
from barnabas.agent.receivers.syslog import cut, parse
from barnabas.agent.spool import Spool, SpoolFull
from barnabas.agent.state import Entry
from barnabas.terminal.errors import UsageError

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def test_syslog_of_rfc_5424() -> None:
    """The examples of the RFC."""
    event = parse(
        b'<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 [exampleSDID@32473 iut="3" '
        b'eventSource="App\\"lication" eventID="1011"][examplePriority@32473 class="high"] \xef\xbb\xbfAn event',
        "10.0.0.1",
    )
    assert (event["message"], event["@timestamp"]) == ("An event", "2003-10-11T22:14:15.003Z")
    assert event["host"] == {"name": "mymachine.example.com"}
    assert event["process"] == {"name": "evntslog"}
    assert event["log"]["syslog"]["msgid"] == "ID47"
    assert event["log"]["syslog"]["facility"] == {"code": 20, "name": "local4"}
    assert event["log"]["level"] == "notice"
    data = event["log"]["syslog"]["structured_data"]
    assert data["exampleSDID@32473"] == {"iut": "3", "eventSource": 'App"lication', "eventID": "1011"}
    assert data["examplePriority@32473"] == {"class": "high"}
    assert parse(b"<34>1 - - su - - - hi", "p")["message"] == "hi"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed",
            ("'su root' failed", "2025-10-11T22:14:15.000Z", "mymachine", {"name": "su"}),
        ),
        (
            b"<13>Jan  2 11:59:00 h app[12]: x\n",
            ("x", "2026-01-02T11:59:00.000Z", "h", {"name": "app", "pid": 12}),
        ),
        (
            b"<13>2026-01-02T13:00:00+02:00 h app: x",
            ("x", "2026-01-02T11:00:00.000Z", "h", {"name": "app"}),
        ),
    ],
)
def test_syslog_of_rfc_3164(data: bytes, expected: tuple[Any, ...]) -> None:
    event = parse(data, "p", NOW)
    assert (event["message"], event["@timestamp"], event["host"]["name"], event["process"]) == expected


@pytest.mark.parametrize("data", [b"no syslog", b"<999>x", b"<13>", b"\xff\xfe", b"<13>1 x", b""])
def test_what_is_no_syslog_is_kept(data: bytes) -> None:
    event = parse(data, "p")
    assert event["message"] in data.decode("utf-8", "replace")
    assert event["log"]["source"] == {"address": "p"}


def test_messages_of_a_stream() -> None:
    assert cut(b"<1>a\n<2>b\n<3>c") == ([b"<1>a", b"<2>b"], b"<3>c")
    assert cut(b"7 <1>a\nbc8 <2>") == ([b"<1>a\nbc"], b"8 <2>")
    assert cut(b"5 <1>ab6 <2>abc") == ([b"<1>ab", b"<2>abc"], b"")


def test_entries_of_the_journal_in_any_pieces() -> None:
    message = "two\nlines ü".encode()
    stream = (
        b"__CURSOR=c1\n__REALTIME_TIMESTAMP=1700000000000000\n_PID=7\nPRIORITY=3\nMESSAGE=one=1\nCODE_LINE=9\n\n"
        b"__CURSOR=c2\nMESSAGE\n"
        + struct.pack("<Q", len(message))
        + message
        + b"\n_SYSTEMD_UNIT=a.service\n\n"
    )
    for size in (1, 7, len(stream)):
        cutter = Cutter()
        events = [
            event for at in range(0, len(stream), size) for event in cutter.feed(stream[at : at + size])
        ]
        assert [event["message"] for event in events] == ["one=1", "two\nlines ü"]
        assert events[0]["@timestamp"] == "2023-11-14T22:13:20.000Z"
        assert events[0]["journald"] == {"cursor": "c1", "custom": {"code_line": "9"}}
        assert (events[0]["process"], events[0]["log"]["level"]) == ({"pid": 7}, "error")
        assert events[1]["systemd"] == {"unit": "a.service"}


def container_records(path: Path, text: bytes) -> list[dict[str, Any]]:
    path.write_bytes(text)
    descriptor = os.open(path, os.O_RDONLY)
    status = os.fstat(descriptor)
    followed = Followed.at_entry(str(path), descriptor, Entry(str(path), status.st_dev, status.st_ino))
    assembler = Assembler(Recipe(EventFormat(True), container=True), followed)
    piece = followed.read()
    assert piece is not None
    complete, rest = assembler.feed(piece), assembler.flush()
    lines = (complete.lines if complete else []) + (rest.lines if rest else [])
    return [json.loads(line) for line in lines]


def test_lines_of_containers(tmp_path: Path) -> None:
    text = (
        b"2026-01-01T10:00:00.123456789Z stdout P long \n2026-01-01T10:00:00.2Z stdout F line\n"
        b"2026-01-01T10:00:01Z stderr F \nnot of an engine\n"
        b'{"log":"docker\\n","stream":"stderr","time":"2026-01-01T10:00:02.5Z"}\n{"log":"part"}\n'
    )
    events = container_records(tmp_path / "c.log", text)
    assert [event["message"] for event in events] == ["long line", "", "not of an engine", "docker", "part"]
    assert [event.get("stream") for event in events] == ["stdout", "stderr", None, "stderr", "stdout"]
    assert events[0]["@timestamp"] == "2026-01-01T10:00:00.123Z"
    assert [event["log"]["offset"] for event in events[:2]] == [0, 83]
    names = named("/var/log/containers/web-1_prod_nginx-" + "a" * 64 + ".log")
    assert names["kubernetes"]["pod"]["name"] == "web-1"


def test_logs_of_opentelemetry() -> None:
    body = {
        "resourceLogs": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]},
                "scopeLogs": [
                    {
                        "logRecords": [
                            {
                                "timeUnixNano": "1700000000000000000",
                                "severityText": "ERROR",
                                "body": {"stringValue": "no"},
                                "attributes": [{"key": "n", "value": {"intValue": "3"}}],
                            }
                        ]
                    }
                ],
            }
        ]
    }
    pytest.importorskip("opentelemetry.proto")
    (event,) = requested(json.dumps(body).encode(), "application/json", "")
    assert (event["message"], event["@timestamp"]) == ("no", "2023-11-14T22:13:20.000Z")
    assert (event["service"], event["attributes"]) == ({"name": "shop"}, {"n": 3})
    for wrong, encoding in ((b"\xff\xff", ""), (b"x", "gzip")):
        with pytest.raises(ValueError, match="not"):
            requested(wrong, "application/x-protobuf", encoding)


def spool(folder: Path, segment_bytes: int = 1 << 20, limit_bytes: int = 1 << 20) -> Spool:
    filled = Spool(folder / "spool", limit_bytes, segment_bytes)
    filled.open()
    return filled


def fill(target: Spool) -> None:
    for i in range(100):
        target.write([{"message": f"event {i}"}])


def test_the_spool_goes_on_after_a_kill(tmp_path: Path) -> None:
    first = spool(tmp_path, segment_bytes=100)
    for i in range(10):
        first.write([{"message": f"event {i}", "n": i}])
    (last := first.segments()[-1]).write_bytes(last.read_bytes() + b'{"message":"half')
    again = spool(tmp_path, segment_bytes=100)
    assert again.last_event() == {"message": "event 9", "n": 9}
    again.write([{"message": "event 10"}])
    lines = [line for path in again.segments() for line in path.read_text().splitlines()]
    assert [json.loads(line)["message"] for line in lines] == [f"event {i}" for i in range(11)]


def test_shipped_segments_are_removed_and_a_full_spool_refuses(tmp_path: Path) -> None:
    filled = spool(tmp_path, segment_bytes=100, limit_bytes=250)
    with pytest.raises(SpoolFull):
        fill(filled)
    segments = filled.segments()
    entries = []
    for path in segments:
        status = path.stat()
        entries.append(Entry(str(path), status.st_dev, status.st_ino, position=status.st_size))
    entries[1].position -= 1
    filled.remove_shipped(entries)
    assert filled.segments() == segments[1:]
    filled.write([{"message": "there is room again"}])


def frame(number: int, event: dict[str, Any]) -> bytes:
    data = json.dumps(event).encode()
    return b"2J" + struct.pack(">II", number, len(data)) + data


def test_beats_senders_hear_what_is_on_the_disk(tmp_path: Path) -> None:
    """Frames as go-lumber writes them: plain and compressed; a peer that speaks something else harms nobody."""
    kept, port = spool(tmp_path), free_port()
    receiver = Lumberjack(kept, "test", listen=f"127.0.0.1:{port}")
    receiver.start()
    try:
        with connected(port) as stranger, connected(port) as sender:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.recv(10) == b""
            sender.sendall(
                b"2W" + struct.pack(">I", 2) + frame(1, {"message": "a"}) + frame(2, {"message": "b"})
            )
            assert received(sender, 6) == b"2A" + struct.pack(">I", 2)
            packed = zlib.compress(frame(1, {"message": "c"}) + frame(2, {"message": "d"}))
            sender.sendall(b"2W" + struct.pack(">I", 2) + b"2C" + struct.pack(">I", len(packed)) + packed)
            assert received(sender, 6) == b"2A" + struct.pack(">I", 2)
    finally:
        receiver.stop()
    lines = kept.segments()[0].read_text().splitlines()
    assert [json.loads(line)["message"] for line in lines] == ["a", "b", "c", "d"]


def connected(port: int) -> socket.socket:
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def received(sender: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += sender.recv(size - len(data))
    return data


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("syslog: {}", "needs udp: HOST:PORT, tcp: HOST:PORT, or both"),
        ("syslog: {udp: here}", "not HOST:PORT"),
        ("lumberjack: {}", "needs an entry 'listen'"),
        ("otlp: {}", "needs listen: HOST:PORT for HTTP, grpc: HOST:PORT, or both"),
        ("otlp: {listen: 'a:1'}, multiline: {indented: true}", "multiline belongs to files"),
        ("files: x, spool_mb: 3", "spool_mb belongs to what is received"),
        ("files: x, stdin: true", "only one of them is allowed"),
    ],
)
def test_mistakes_in_what_is_received(tmp_path: Path, entry: str, what: str) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(f"inputs:\n- {{topic: a, {entry}}}\n")
    with pytest.raises(UsageError, match=rf"agent\.yaml:2: .*{what}"):
        read_config(path)
