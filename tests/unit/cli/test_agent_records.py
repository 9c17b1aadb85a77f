"""What the agent makes of lines: records of several lines, chosen, decoded, shaped; and its configuration."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.agent.assembly import Assembler, Recipe
from barnabas.agent.config import read_config, schema
from barnabas.agent.events import EventFormat, TimeRule
from barnabas.agent.files import Followed, Piece
from barnabas.agent.multiline import PRESETS, Multiline
from barnabas.agent.state import DIGEST_BYTES, Entry, State, bytes_before, digest
from barnabas.agent.watcher import Looks, Watcher
from barnabas.records.record_block import RecordBlock, Stamp
from barnabas.terminal.errors import UsageError

JAVA = """\
2026-01-01 12:00:00 ERROR Could not serve
java.lang.IllegalStateException: closed
\tat com.example.Pool.take(Pool.java:12)
\tat com.example.Main.main(Main.java:3)
Caused by: java.io.IOException: Broken pipe
\t... 2 more
2026-01-01 12:00:01 INFO next
Exception in thread "main" java.lang.RuntimeException: alone
\tat com.example.Main.main(Main.java:4)
2026-01-01 12:00:02 INFO end
"""
PYTHON = """\
ERROR:root:failed
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
ZeroDivisionError: division by zero

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
KeyError: 'x'
INFO:root:next
INFO:root:end
"""
GO = """\
2026/01/01 12:00:00 starting
panic: runtime error: index out of range [3] with length 3

goroutine 1 [running]:
main.(*Server).run(0x1)
\t/src/main.go:8 +0x1d
main.main()
\t/src/main.go:4 +0x1b
exit status 2
2026/01/01 12:00:01 next
"""


def opened(path: Path, newline: bytes = b"\n") -> Followed:
    descriptor = os.open(path, os.O_RDONLY)
    status = os.fstat(descriptor)
    entry = Entry(str(path), status.st_dev, status.st_ino)
    return Followed.at_entry(str(path), descriptor, entry, newline)


def all_records(path: Path, recipe: Recipe, newline: bytes = b"\n") -> list[bytes]:
    followed = opened(path, newline)
    assembler = Assembler(recipe, followed)
    records = []
    while (piece := followed.read()) is not None:
        complete = assembler.feed(piece)
        records += complete.lines if complete else []
    complete = assembler.flush()
    return records + (complete.lines if complete else [])


@pytest.mark.parametrize(
    ("preset", "text", "heads"),
    [
        ("java", JAVA, ["2026-01-01 12:00:00", "2026-01-01 12:00:01", "Exception in", "2026-01-01 12:00:02"]),
        ("python", PYTHON, ["ERROR:root:failed", "INFO:root:next", "INFO:root:end"]),
        ("go", GO, ["2026/01/01 12:00:00", "panic: ", "2026/01/01 12:00:01"]),
    ],
)
def test_stack_traces_are_one_record(tmp_path: Path, preset: str, text: str, heads: list[str]) -> None:
    assert preset in PRESETS
    log = tmp_path / "a.log"
    log.write_text(text)
    records = all_records(log, Recipe(multiline=Multiline(preset)))
    assert b"\n".join(records) + b"\n" == text.encode()
    assert len(records) == len(heads)
    assert all(record.startswith(head.encode()) for record, head in zip(records, heads, strict=True))


def test_an_incomplete_record_is_not_acknowledged(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n" + b"x" * 1500 + b"\n two\nthree\n four\n")
    followed = opened(log)
    assembler = Assembler(Recipe(multiline=Multiline()), followed)
    piece = followed.read()
    assert piece is not None
    complete = assembler.feed(piece)
    assert complete is not None
    assert [line[:3] for line in complete.lines] == [b"one", b"xxx"]
    assert (complete.positions, complete.ends, complete.end) == ([0, 4], [4, 1510], 1510)
    assert complete.tail == bytes_before(followed.descriptor, 1510)
    assert len(complete.tail) == DIGEST_BYTES
    followed.outstanding += 1
    followed.acknowledged(complete)
    assert followed.entry.tail_digest == digest(complete.tail)
    with log.open("ab") as out:
        out.write(b" five\n")
    piece = followed.read()
    assert piece is not None
    assert assembler.feed(piece) is None
    assert not assembler.is_due(assembler.pending.since if assembler.pending else 0)
    assert assembler.is_due(1e12)
    rest = assembler.flush()
    assert rest is not None
    assert rest.lines == [b"three\n four\n five"]
    assert rest.end == log.stat().st_size


def test_records_of_an_earlier_run_keep_their_ends(tmp_path: Path) -> None:
    """That run had waited no longer, and sent `a` with only one of its lines."""
    log = tmp_path / "a.log"
    log.write_bytes(b"a\n 1\n 2\nb\n")
    followed = opened(log)
    assembler = Assembler(Recipe(multiline=Multiline()), followed, boundaries={0, 5})
    piece = followed.read()
    assert piece is not None
    complete = assembler.feed(piece)
    assert complete is not None
    assert complete.lines == [b"a\n 1", b" 2"]
    assert complete.positions == [0, 5]


def test_records_are_chosen_and_what_is_left_out_is_passed(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"ERROR a\nINFO b\nERROR c\nERROR noise\nINFO d\n")
    recipe = Recipe(include=(re.compile(b"^ERROR"),), exclude=(re.compile(b"noise"),))
    followed = opened(log)
    piece = followed.read()
    assert piece is not None
    complete = Assembler(recipe, followed).feed(piece)
    assert complete is not None
    assert complete.lines == [b"ERROR a", b"ERROR c"]
    assert complete.end == log.stat().st_size


@pytest.mark.parametrize(
    ("encoding", "newline"), [("latin-1", b"\n"), ("utf-16-le", b"\n\0"), ("utf-16-be", b"\0\n")]
)
def test_encodings(tmp_path: Path, encoding: str, newline: bytes) -> None:
    log = tmp_path / "a.log"
    # In UTF-16, U+0A00 U+0041 and the like contain the two bytes of a newline at an odd position.
    texts = ["grün", "ÿ", "", *(["\u0a0a\u000d\u0100\u0a00A\u410a"] if "16" in encoding else [])]
    log.write_bytes(("".join(f"{text}\n" for text in texts)).encode(encoding))
    assert all_records(log, Recipe(encoding=encoding), newline) == [text.encode() for text in texts]


def test_what_cannot_be_decoded_is_refused_if_there_are_dead_letters(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"good\n\xff\xfe\n")
    followed = opened(log)
    piece = followed.read()
    assert piece is not None
    complete = Assembler(Recipe(encoding="utf-8", refuses=True), followed).feed(piece)
    assert complete is not None
    assert complete.lines == [b"good"]
    assert [(refusal.position, refusal.data) for refusal in complete.refused] == [(5, b"\xff\xfe")]


def test_json_has_filebeats_shape_and_ecs_names() -> None:
    shape = EventFormat(True, {"env": "prod"}, ("web",), host="h1")
    event = json.loads(shape.values('/var/log/"a".log', 0.5)('say "hi" \x01 grün'.encode() + b"\xff\r", 7, 1))
    assert event["@timestamp"] == "1970-01-01T00:00:00.500Z"
    assert event["message"] == 'say "hi" \x01 grün\ufffd'
    assert event["log"] == {"file": {"path": '/var/log/"a".log'}, "offset": 7}
    assert event["host"] == {"name": "h1"}
    assert (event["fields"], event["tags"]) == ({"env": "prod"}, ["web"])
    assert json.loads(shape.values("a", 0)(b"a\n b", 0, 2))["log"]["flags"] == ["multiline"]


def test_the_time_in_a_line(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(
        b'1.2.3.4 - - [20/May/2015:09:05:01 +0200] "GET /"\nno time\n[99/May/2015:09:05:01 +0200]\n'
    )
    rule = TimeRule(re.compile(rb"\[([^]]+)\]"), "%d/%b/%Y:%H:%M:%S %z")
    first, *others = [json.loads(line) for line in all_records(log, Recipe(EventFormat(True), time=rule))]
    assert first["@timestamp"] == "2015-05-20T07:05:01.000Z"
    assert first["log"] == {"file": {"path": str(log)}, "offset": 0}
    assert all(event["@timestamp"] > "2026" for event in others)
    assert TimeRule(re.compile(rb"^\S+")).find(b"2026-01-01T00:00:00+01:00 x") == "2025-12-31T23:00:00.000Z"


def test_keys_of_parts() -> None:
    shape = EventFormat(
        fields={"team": "x"}, key="{fields.team}/{file}/{1}", key_pattern=re.compile(rb"user=(\w+)"), host="h"
    )
    key_of = shape.keys("/var/log/a.log")
    assert key_of is not None
    assert key_of(b"user=anna did") == b"x/a.log/anna"
    assert key_of(b"nobody") is None


CONFIG = """\
fields: {env: prod}
inputs:
  - topic: app
    files: [logs/*.log, other.log]
    multiline: {preset: java, timeout: 2 seconds}
    start_at: end
    ignore_older: 1 day
    limits: {lines_per_second: 10}
  - {name: two, topic: app, files: x, output: json, encoding: utf-16, key: host}
"""


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    return path


def test_a_configuration(tmp_path: Path) -> None:
    one, two = read_config(config(tmp_path, CONFIG)).inputs
    assert (one.name, one.files, two.name) == ("app", ("logs/*.log", "other.log"), "two")
    assert one.recipe.multiline == Multiline("java", timeout_s=2)
    assert (one.looks.at_end, one.looks.older_s, one.pace) == (True, 86_400, (0, 10))
    assert one.headers == (("env", b"prod"),)
    assert (two.looks.newline, two.recipe.shape.is_json, two.key) == (b"\n\0", True, "host")
    # What has not changed is equal: a reload leaves it alone.
    assert read_config(config(tmp_path, CONFIG)).inputs == (one, two)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("inputs: []", 1, "inputs is empty"),
        ("inputs:\n- topic: a", 2, "needs one of files"),
        ("inputs:\n- topic: a\n  files: x\n  multiline:\n    starts: '('", 5, "not a regular expression"),
        ("inputs:\n- {topic: a, files: x}\n- {topic: a, files: y}", 3, "two inputs called 'a'"),
        ("inputs:\n- topic: a\n  files: x\n  key: '{nix}'", 4, "{nix} is unknown"),
        ("inputs:\n- topic: a\n  files: x\n  encoding: klingon", 4, "'klingon' is unknown"),
        ("inputs:\n- topic: a\n  files: x\n  fields: {end: 1}", 2, "cannot be called 'end'"),
        ("inputs:\n- topic: a\n  files: x\n  multline: {}", 4, "did you mean 'multiline'"),
        ("inputs:\n- topic: a\n  files: x\n  key_pattern: x", 4, "key_pattern needs a key"),
    ],
)
def test_mistakes_are_reported_with_their_line(tmp_path: Path, text: str, where: int, what: str) -> None:
    with pytest.raises(UsageError, match=rf"agent\.yaml:{where}: .*{re.escape(what)}"):
        read_config(config(tmp_path, text))


def test_editors_get_a_schema() -> None:
    import yaml

    validator = jsonschema_rs.Draft202012Validator(schema())
    assert validator.is_valid(yaml.safe_load(CONFIG))
    assert not validator.is_valid({"inputs": [{"topic": "a"}]})


def watched(tmp_path: Path, looks: Looks, pattern: str = "*") -> Watcher:
    folder = tmp_path / "logs"
    state = State(tmp_path / "state.json", -1)
    return Watcher([str(folder / pattern)], state, looks=looks)


def pieces(watcher: Watcher) -> list[Piece]:
    watcher.scan()
    read_pieces = [followed.read() for followed in watcher.open_files.values()]
    return [piece for piece in read_pieces if piece is not None]


def test_files_may_begin_at_their_end(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "a.log"
    log.write_bytes(b"old\nhal")
    watcher = watched(tmp_path, Looks(at_end=True))
    assert [piece.lines for piece in pieces(watcher)] == [[]]
    with log.open("ab") as out:
        out.write(b"f\nnew\n")
    (tmp_path / "logs" / "later.log").write_bytes(b"all of it\n")
    assert [piece.lines for piece in pieces(watcher)] == [[b"half", b"new"], [b"all of it"]]


def test_old_files_and_excluded_ones_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name in ("old.log", "new.log", "new.tmp"):
        (tmp_path / "logs" / name).write_bytes(b"x\n")
    os.utime(tmp_path / "logs" / "old.log", (0, 0))
    watcher = watched(tmp_path, Looks(exclude=(re.compile(r"\.tmp$"),), older_s=60))
    watcher.scan()
    assert [Path(followed.path).name for followed in watcher.open_files.values()] == ["new.log"]


def test_a_compressed_file_is_read_once(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "logs").mkdir()
    archive = tmp_path / "logs" / "a.log.1.gz"
    archive.write_bytes(gzip.compress(b"".join(b"line %d\n" % i for i in range(50))))
    watcher = watched(tmp_path, Looks(unpacks=True))
    (piece,) = pieces(watcher)
    assert len(piece.lines) == 50
    (key,) = watcher.unpacked()
    watcher.open_files[key].outstanding += 1
    watcher.open_files[key].acknowledged(piece)
    watcher.leave_unpacked(key)
    assert pieces(watcher) == []
    archive.rename(tmp_path / "logs" / "a.log.2.gz")
    again = watched(tmp_path, Looks(unpacks=True))
    again.state.entries = watcher.state.entries
    assert pieces(again) == []


def test_a_file_that_was_shipped_before_it_was_compressed_is_not_shipped_again(tmp_path: Path) -> None:
    import bz2

    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "a.log"
    log.write_bytes(b"".join(b"line %d\n" % i for i in range(50)))
    watcher = watched(tmp_path, Looks(unpacks=True))
    (piece,) = pieces(watcher)
    (followed,) = watcher.open_files.values()
    followed.outstanding += 1
    followed.acknowledged(piece)
    (tmp_path / "logs" / "a.log.bz2").write_bytes(bz2.compress(log.read_bytes() + b"rest\n"))
    log.unlink()
    again = watched(tmp_path, Looks(unpacks=True))
    again.state.entries = watcher.state.entries
    assert [piece.lines for piece in pieces(again)] == [[b"rest"]]


LINE = st.text('aé中\U0001f600"\\/ \t\r\b\f\x00\x01\x1f\x7f', max_size=30).map(str.encode)


@given(st.lists(LINE, min_size=1, max_size=20), st.integers(0, 1 << 40))
@settings(max_examples=60, deadline=None)
def test_events_of_a_block_are_those_of_its_lines(lines: list[bytes], start: int) -> None:
    framed = EventFormat(is_json=True, fields={"a": 'b"'}, host="h").framed("/var/log/ü.log", 1.5)
    block, at = RecordBlock(), 0
    data = b"".join(line + b"\n" for line in lines)
    upto, count = block.add_lines(data, at, start, Stamp(None, b"", b"", 0), 1000, 1 << 20, framed.frame)
    assert (upto, count) == (len(data), len(lines))
    expected, plain, position = [], RecordBlock(), start
    for line in lines:
        value = framed.one(line, position, 1)
        expected.append(json.loads(value)["message"])
        plain.add_stamped(value, None, Stamp(None, b"", b"", 0), position, -1, 1000, 1 << 20)
        position += len(line) + 1
    assert block.encoded() == plain.encoded()
    assert expected == [line.removesuffix(b"\r").decode() for line in lines]
