"""Lines that are made into records where they are read: which queries, and that it is what the patterns say."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from barnabas.pipelines.columns import ARROW_TYPES, BASE_COLUMNS, arrow_schema
from barnabas.pipelines.direct.parcels import PARCEL, PARCEL_ROWS, SINK_SCHEMA, packer, unpacked
from barnabas.pipelines.direct.planning import direct_program
from barnabas.pipelines.direct.program import Program
from barnabas.pipelines.spec import parse_spec
from barnabas.pipelines.steps.regex import NAMED_PATTERNS

LINE = (
    b'83.149.9.216 - frank [17/May/2015:23:05:03 -0230] "GET /a?b=%20c HTTP/1.1" 200 203023 '
    b'"http://x.org/\\"a\\"" "Mozilla/5.0 (X11; \\\\x)"'
)
LAYOUT = "dd/MMM/yyyy:HH:mm:ss Z"
STEPS = f"""
  - parse: {{pattern: combined-log}}
  - convert: {{status: int, body_bytes_sent: long}}
  - time: {{field: time, format: "{LAYOUT}"}}
  - drop: [ident]
"""


def spec_of(steps: str = STEPS, outputs: str = "{topic: out, key: remote_addr}", more: str = ""):
    return parse_spec(f"pipeline: p\nsource: {{topic: t}}\n{more}\nsteps:{steps}\noutputs:\n  - {outputs}\n")


def program_of(*arguments: str, **named: str) -> Program | None:
    spec = spec_of(*arguments, **named)
    return direct_program(spec, spec.queries()[0])


def batch_of(lines: list[bytes | None], first: int = 0, headers: list | None = None) -> pa.RecordBatch:
    schema, n = arrow_schema((*BASE_COLUMNS, "headers")), len(lines)
    columns = {
        "key": [f"k{i}".encode() for i in range(n)],
        "value": lines,
        "topic": ["t"] * n,
        "partition": [3] * n,
        "offset": range(first, first + n),
        "timestamp": [1_700_000_000_000_000 + i for i in range(n)],
        "timestampType": [0] * n,
        "headers": headers or [None] * n,
    }
    arrays = [pa.array(columns[name], ARROW_TYPES[name]) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def made(program: Program, lines: list[bytes | None], **named) -> tuple[dict[int, list[dict]], set[int]]:
    """The records made of each line, by its offset, and the offsets of the lines that are left to Spark."""
    records: dict[int, list[dict]] = {}
    left: set[int] = set()
    for packed in packer(program.text()).packed(batch_of(lines, **named), "t", 3):
        parcels = packed.column(PARCEL)
        for row in range(packed.num_rows):
            if not parcels[row].is_valid:
                left.add(packed.column("offset")[row].as_py())
        for piece in unpacked([sink_rows(packed.filter(parcels.is_valid()))]):
            for row in piece.to_pylist():
                records.setdefault(row["origin"]["offset"], []).append(row)
    return records, left


def sink_rows(packed: pa.RecordBatch, topic: str = "dead") -> pa.RecordBatch:
    """As Spark would hand them on: rows that it made, among parcels."""
    n = packed.num_rows
    columns = {
        "topic": pa.array([topic] * n),
        "key": packed.column("key"),
        "value": packed.column("value"),
        "headers": pa.nulls(n, ARROW_TYPES["headers"]),
        "timestamp": packed.column("timestamp"),
        "origin": pa.StructArray.from_arrays(
            [packed.column(name) for name in ("topic", "partition", "offset")] + [pa.array(["out"] * n)],
            fields=list(SINK_SCHEMA.field("origin").type),
        ),
        PARCEL: packed.column(PARCEL),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def test_the_record_of_a_line() -> None:
    value = "\"concat_ws(' ', method, referer, status)\""
    outputs = (
        f"{{topic: out, key: remote_addr, value: {value}, headers: {{a: status, b: ident, c: \"'x'\"}}}}"
    )
    program = program_of(STEPS.replace("  - drop: [ident]\n", ""), outputs)
    assert program is not None
    (record,) = made(program, [LINE])[0][0]
    assert record["value"] == b'GET http://x.org/\\"a\\" 200'
    assert record["key"] == b"83.149.9.216"
    assert [(header["key"], header["value"]) for header in record["headers"]] == [
        ("a", b"200"),
        ("b", b"-"),
        ("c", b"x"),
    ]
    assert record["origin"] == {"topic": "t", "partition": 3, "offset": 0, "output": "out"}
    assert record["timestamp"] == datetime.fromtimestamp(1_700_000_000, UTC)


def test_all_fields_as_json() -> None:
    program = program_of(f"{STEPS}  - rename: {{path: where}}\n", "{topic: out}")
    assert program is not None
    records, _ = made(
        program, [LINE, LINE.replace(b" 203023", b" -").replace(b'"Mozilla/5.0 (X11; \\\\x)"', b'"-"')]
    )
    (first,), (second,) = records[0], records[1]
    assert json.loads(first["value"]) == {
        "remote_addr": "83.149.9.216",
        "remote_user": "frank",
        "time": "2015-05-18T01:35:03.000Z",
        "method": "GET",
        "where": "/a?b=%20c",
        "protocol": "HTTP/1.1",
        "status": 200,
        "body_bytes_sent": 203023,
        "referer": 'http://x.org/\\"a\\"',
        "user_agent": "Mozilla/5.0 (X11; \\\\x)",
    }
    assert {name: json.loads(second["value"])[name] for name in ("body_bytes_sent", "user_agent")} == {
        "body_bytes_sent": None,
        "user_agent": None,
    }
    assert (first["key"], first["headers"]) == (b"k0", None)


def test_text_with_a_backslash_is_unescaped_by_spark() -> None:
    program = program_of(f"{STEPS}  - unescape: [referer]\n")
    assert program is not None
    records, left = made(program, [LINE, LINE.replace(b'\\"a\\"', b"a")])
    assert (set(records), left) == ({1}, {0})


@pytest.mark.parametrize("name", ["combined-log", "common-log"])
def test_what_is_certain_is_what_the_pattern_says(name: str) -> None:
    steps = f"\n  - parse: {{pattern: {name}}}\n  - convert: {{body_bytes_sent: int}}\n"
    steps += f'  - time: {{field: time, format: "{LAYOUT}", to: at}}\n'
    program = program_of(steps, "{topic: out}")
    assert program is not None
    # Python's groups cannot be possessive before 3.11, and Java's \\d and \\s are ASCII.
    pattern = re.compile(re.sub(r"\(\?<(\w)", r"(?P<\1", NAMED_PATTERNS[name]), re.ASCII)
    chance = random.Random(11)
    base = LINE if name == "combined-log" else LINE[: LINE.index(b' "http')]
    lines = [mutated(base, chance) for _ in range(3000)]
    records, left = made(program, lines)
    assert len(records) > 300
    assert len(left) > 300
    assert left.isdisjoint(records)
    assert left | set(records) == set(range(len(lines)))
    for offset, (record,) in records.items():
        line = lines[offset].decode()
        match = pattern.match(line)
        assert match is not None, line
        fields = {group: text or None for group, text in match.groupdict().items()}
        time = datetime.strptime(fields["time"] or "", "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC)
        number = fields["body_bytes_sent"]
        expected = fields | {
            "body_bytes_sent": None if number is None else int(number),
            "at": f"{time:%Y-%m-%dT%H:%M:%S}.000Z",
        }
        assert json.loads(record["value"]) == expected, line


def mutated(line: bytes, chance: random.Random) -> bytes:
    """A few bytes of it others, gone or more, or a time of another day."""
    if chance.random() < 0.3:
        day, year, hour = (
            chance.randint(1, 31),
            chance.choice([1899, 1900, 2000, 2023, 2024]),
            chance.randint(0, 24),
        )
        time = f"{day:02d}/{chance.choice(['Jan', 'Feb', 'Dec', 'jan'])}/{year}:{hour:02d}:59:59"
        zone = chance.choice(["+0000", "-0000", "+1745", "-1200", "+1800"])
        line = re.sub(rb"\[[^\]]*\]", f"[{time} {zone}]".encode(), line)
    text = bytearray(line)
    for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
        at = chance.randrange(len(text))
        byte = chance.choice(b'  "\\-[]0179aZ/.:+\t\r\n\x01\x7f\x85\xc3\xa9')
        action = chance.random()
        if action < 0.4:
            text[at] = byte
        elif action < 0.7:
            text.insert(at, byte)
        else:
            del text[at]
    return bytes(text)


def test_rows_that_are_left_to_spark() -> None:
    program = program_of()
    assert program is not None
    lines = [LINE, None, b"", b"nothing", LINE.replace(b"200", b"2000"), LINE + "é".encode(), LINE]
    header = [[{"key": "a", "value": b"1"}], *[None] * 6]
    records, left = made(program, lines, headers=header)
    assert (set(records), left) == ({6}, {0, 1, 2, 3, 4, 5})


def test_parcels_are_small_and_hold_all() -> None:
    program = program_of()
    assert program is not None
    batch = batch_of([LINE, b"bad"] * 2000)
    found = list(packer(program.text()).packed(batch, "t", 3))
    assert len(found) > 3
    assert sum(sum(filter(None, piece.column(PARCEL_ROWS).to_pylist())) for piece in found) == 2000


def test_records_of_one_topic_keep_the_order_of_their_lines() -> None:
    program = program_of()
    assert program is not None
    pieces = [
        *packer(program.text()).packed(batch_of([LINE, LINE, b"1", LINE, b"2"]), "t", 3),
        *packer(program.text()).packed(batch_of([b"3", LINE, b"4"], first=5), "t", 3),
    ]

    def offsets(topic: str) -> list[tuple[str, int]]:
        rows = unpacked([sink_rows(piece, topic) for piece in pieces])
        return [(row["topic"], row["origin"]["offset"]) for piece in rows for row in piece.to_pylist()]

    assert offsets("out") == [("out", offset) for offset in range(8)]
    assert sorted(offsets("dead")) == [
        *[("dead", offset) for offset in (2, 4, 5, 7)],
        *[("out", offset) for offset in (0, 1, 3, 6)],
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"steps": f"{STEPS}  - filter: status > 200\n"},
        {"steps": "\n  - parse: {pattern: syslog}\n"},
        {"steps": STEPS.replace(LAYOUT, "dd/MMM/yyyy HH:mm:ss Z")},
        {"steps": STEPS.replace("int,", "double,")},
        {"steps": f"{STEPS}  - rename: {{path: a.b}}\n"},
        {"steps": f"{STEPS}  - rename: {{path: 'null'}}\n", "outputs": "{topic: out, key: 'null'}"},
        {"outputs": "{topic: out, key: time}"},
        {"outputs": "{topic: out, key: upper(path)}"},
        {"outputs": "{topic: out, key: nothing}"},
        {"outputs": "{topic: out, value: \"concat_ws(' ', path, time)\"}"},
        {"outputs": "{topic: out, headers: {a: 1 + status}}"},
        {"outputs": "{topic: out, timestamp: time}"},
        {"outputs": "{topic: out, route: {by: path}}"},
        {"outputs": "{topic: out, steps: [drop: [path]]}"},
        {"outputs": "console: {}"},
        {"more": "spark: {spark.sql.session.timeZone: Europe/Berlin}"},
    ],
)
def test_queries_that_spark_does(changed: dict[str, str]) -> None:
    assert program_of(**changed) is None


def test_other_sources() -> None:
    for source in ("{topic: t, encoding: latin1}", "{topic: t, tombstones: deletes}"):
        spec = parse_spec(f"pipeline: p\nsource: {source}\nsteps:{STEPS}\noutputs: [{{topic: out}}]\n")
        assert direct_program(spec, spec.queries()[0]) is None


def test_a_program_is_an_option() -> None:
    program = program_of(outputs="{topic: out, key: path, headers: {a: path, b: \"'x'\"}}")
    assert program is not None
    assert Program.read(program.text()) == program
