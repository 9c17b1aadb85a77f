"""Lines that are made into records where they are read: which queries, and that it is what the patterns say."""

from __future__ import annotations

import json
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from barnabas.pipelines.compiler.queries import (
    ROWS_OPTION,
    begun,
    records_per_second,
    session_program,
    way_of,
)
from barnabas.pipelines.direct.machine import Machine, Shape, Template, reader_of
from barnabas.pipelines.direct.operations import Op
from barnabas.pipelines.direct.parcels import BYTES_MAX, HELD_BYTES, SINK_SCHEMA, packer, unpacked
from barnabas.pipelines.direct.planning import direct_program
from barnabas.pipelines.direct.program import PARCEL, PARCEL_ROWS, Program
from barnabas.pipelines.direct.values import SlotType
from barnabas.pipelines.formats.columns import ARROW_TYPES, BASE_COLUMNS, arrow_schema
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.patterns import NAMED_PATTERNS
from barnabas.pipelines.spark.session.start import FILE_MANAGER, FILE_MANAGER_OPTION

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


def batch_of(
    lines: list[bytes | None], first: int = 0, headers: list | None = None, key: bytes = b"k"
) -> pa.RecordBatch:
    schema, n = arrow_schema((*BASE_COLUMNS, "headers")), len(lines)
    columns = {
        "key": [b"%s%d" % (key, i) for i in range(n)],
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
    """As Spark would hand them on: rows that it made, among parcels. Lines that end in é are for the output."""
    n = packed.num_rows
    values = packed.column("value").to_pylist()
    columns = {
        "topic": pa.array(["out" if value and value.endswith("é".encode()) else topic for value in values]),
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
    assert (set(records), left) == ({0, 6}, {1, 2, 3, 4, 5})
    assert records[0][0]["headers"] == header[0]
    program = program_of(outputs="{topic: out, key: path, headers: {a: path}}")
    assert program is not None
    records, left = made(program, lines, headers=header)
    assert (set(records), left) == ({6}, {0, 1, 2, 3, 4, 5})


def test_parcels_are_small_and_hold_all() -> None:
    program = program_of()
    assert program is not None
    batch = batch_of([LINE, b"bad"] * 2000)
    parcels = list(packer(program.text()).packed(batch, "t", 3))
    assert len(parcels) > 3
    assert sum(sum(filter(None, piece.column(PARCEL_ROWS).to_pylist())) for piece in parcels) == 2000


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


def left_by(pieces: list[pa.RecordBatch]) -> dict[str, list[int]]:
    """Offsets of what is for each topic."""
    offsets: dict[str, list[int]] = {}
    for piece in unpacked(map(sink_rows, pieces)):
        for topic, origin in zip(piece.column("topic"), piece.column("origin"), strict=True):
            offsets.setdefault(topic.as_py(), []).append(origin["offset"].as_py())
    return offsets


def test_dead_letters_keep_their_order_where_they_are_mixed_with_other_records() -> None:
    program = program_of()
    assert program is not None
    pack, mixed = packer(program.text()), LINE + "é".encode()
    slices = [
        [b"bad", mixed],
        [LINE, b"bad", LINE],
        [LINE, mixed, b"bad", LINE],
        [b"bad", mixed, b"bad"],
        [b"bad"],
        [LINE, b"bad", mixed],
    ]
    pieces, first, expected = [], 0, {"out": [], "dead": []}
    for lines in slices:
        for number, line in enumerate(lines, first):
            expected["dead" if line == b"bad" else "out"].append(number)
        pieces += pack.packed(batch_of(lines, first), "t", 3)
        first += len(lines)
    assert left_by(pieces) == expected


def test_records_of_a_route_keep_their_order_where_a_parcel_has_none_of_their_topic() -> None:
    steps = "\n  - parse: {json: {to: string}}\n"
    program = program_of(steps, "{topic: out, route: {by: to, topics: {a: topic-a}}}")
    assert program is not None
    pack = packer(program.text())

    def handed():
        # A record for topic-a that Spark made stands behind a parcel without any for it.
        for first, lines in ((0, [b'{"to":"b"}', b"{}x"]), (2, [b'{"to":"a"}', b"{}x"])):
            for piece in pack.packed(batch_of(lines, first), "t", 3):
                yield sink_rows(piece, "topic-a")

    offsets: dict[str, list[int]] = {}
    for piece in unpacked(handed()):
        for row in piece.to_pylist():
            offsets.setdefault(row["topic"], []).append(row["origin"]["offset"])
    assert offsets == {"out": [0], "topic-a": [1, 2, 3]}


@pytest.mark.parametrize("joined", [True, False])
def test_large_rows_behind_a_parcel_do_not_wait_for_all_of_it(joined: bool) -> None:
    program = program_of()
    assert program is not None
    large = LINE + b"x" * 100_000 + "é".encode()
    lines = [line for _ in range(120) for line in (LINE, large, b"bad")]
    batch = batch_of(lines)
    # As if they had been in one parcel.
    parcel, *rest = [
        piece
        for chosen in (np.arange(0, 360, 3), np.setdiff1d(np.arange(360), np.arange(0, 360, 3)))
        for piece in packer(program.text()).packed(batch.take(pa.array(chosen)), "t", 3)
    ]
    taken = 0

    def handed():
        nonlocal taken
        pieces = [parcel, *rest]
        for piece in [pa.concat_batches(pieces)] if joined else pieces:
            taken += 1
            yield sink_rows(piece)

    written = []
    for piece in unpacked(handed()):
        written.append((piece.nbytes, taken, piece.column("topic").to_pylist(), piece.column("origin")))
    assert max(size for size, *_ in written) < 2 * HELD_BYTES
    assert joined or written[0][1] < 1 + len(rest)
    for topic, count in (("out", 240), ("dead", 120)):
        offsets = [
            origin["offset"].as_py()
            for *_, topics, origins in written
            for name, origin in zip(topics, origins, strict=True)
            if name == topic
        ]
        assert len(offsets) == count
        assert offsets == sorted(offsets)


def parcel_sizes(packed: list[pa.RecordBatch]) -> list[int]:
    """Bytes of keys and values in each parcel."""
    sizes = []
    for piece in packed:
        for parcel in piece.column(PARCEL).drop_null():
            with pa.ipc.open_stream(parcel.as_buffer()) as stream:
                lines = stream.read_next_batch()
            sizes.append(sum(lines.column(n).nbytes for n in ("key", "value") if n in lines.schema.names))
    return sizes


def test_parcels_are_bounded_whatever_is_large_in_them() -> None:
    keeps, drops = program_of(outputs="{topic: out}"), program_of()
    assert keeps is not None
    assert drops is not None
    keyed = batch_of([LINE] * 50, key=b"k" * 200_000)
    sizes = parcel_sizes(list(packer(keeps.text()).packed(keyed, "t", 3)))
    assert len(sizes) == 25
    assert max(sizes) < BYTES_MAX + 10_000
    (size,) = parcel_sizes(list(packer(drops.text()).packed(keyed, "t", 3)))
    assert size < 50_000
    long = LINE.replace(b"/a", b"/" + b"a" * 400_000)
    uneven = batch_of([LINE] * 3000 + [long] * 8)
    sizes = parcel_sizes(list(packer(drops.text()).packed(uneven, "t", 3)))
    assert max(sizes) < BYTES_MAX + 10_000
    assert len(sizes) <= 3 + 8
    larger = LINE.replace(b"/a", b"/" + b"a" * 2 * BYTES_MAX)
    assert len(parcel_sizes(list(packer(drops.text()).packed(batch_of([larger] * 3), "t", 3)))) == 3


TEXT = int(SlotType.TEXT)


def machine(
    kinds=(TEXT,), steps=(), templates=(), reader=None, constants=None, parts=(), base: int = 0
) -> Machine:
    return Machine(reader, base, list(kinds), constants or {}, list(parts), list(steps), list(templates))


def test_a_machine_takes_no_slots_that_are_not_there() -> None:
    machine(templates=[(0, Template(Shape.FIELD, [0], []))])
    for wrong in (1, 100_000, -5):
        with pytest.raises(ValueError, match="there is no slot"):
            machine(templates=[(0, Template(Shape.FIELD, [wrong], []))])
        with pytest.raises(ValueError, match="there is no slot"):
            machine(steps=[(int(Op.TRIM), 0, (wrong,), TEXT)])
        with pytest.raises(ValueError, match="there is no slot"):
            machine(steps=[(int(Op.TRIM), wrong, (0,), TEXT)])
        with pytest.raises(ValueError, match="there is no slot"):
            machine(parts=[(wrong, 0)])
    with pytest.raises(ValueError, match="there is no slot"):
        machine(reader=reader_of({"lines": True}), kinds=[TEXT] * 10)
    for kinds in ([6], [-1]):
        with pytest.raises(ValueError, match="kind"):
            machine(kinds)
    with pytest.raises(ValueError, match="arguments"):
        machine(steps=[(int(Op.LESS), 0, (0,), TEXT)])
    with pytest.raises(ValueError, match="step"):
        machine(steps=[(99, 0, (0,), TEXT)])
    with pytest.raises(ValueError, match="column"):
        machine(templates=[(-1, Template(Shape.FIELD, [0], []))])
    with pytest.raises(TypeError):
        machine(templates=[(0, None)])
    for shape, places, texts in ((0, [0], [b""]), (1, [0], []), (0, [], []), (0, [0, 0], []), (-1, [0], [])):
        with pytest.raises(ValueError, match="template"):
            Template(shape, places, texts)


def test_a_machine_reads_no_offsets_that_are_not_there() -> None:
    reader = reader_of({"lines": True})
    work = machine([TEXT] * 11, [(int(Op.READ), 0, (), 0)], [(0, Template(Shape.FIELD, [0], []))], reader)
    offsets, data = np.array([0, len(LINE)], np.int32), np.frombuffer(LINE, np.uint8)
    wanted = np.ones(4, np.uint8)
    parts = {0: None, 1: (offsets, data, None)}
    assert bytes(work.run(1, parts, 0, [], wanted)[0]) == b"\x01"
    for rows, first in ((1, -1), (-1, 0), (2, 0), (1, 1), (0, 2), (1, 2**63 - 1)):
        with pytest.raises(ValueError, match="offsets are missing"):
            work.run(rows, parts, first, [], wanted)
    wrong = {0: None, 1: (np.array([0, len(LINE) + 1], np.int32), data, None)}
    with pytest.raises(ValueError, match="an offset is wrong"):
        work.run(1, wrong, 0, [], wanted)


class Settings:
    def __init__(self, **changed: str) -> None:
        self.all = {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.caseSensitive": "true",
            "spark.sql.ansi.enabled": "True",
            "spark.sql.legacy.timeParserPolicy": "CORRECTED",
            **{f"spark.sql.{name.replace('_', '.')}": value for name, value in changed.items()},
        }

    def get(self, name: str, *otherwise: str | None) -> str | None:
        return self.all.get(name, *otherwise) if otherwise else self.all[name]

    def unset(self, name: str) -> None:
        self.all.pop(name, None)

    def set(self, name: str, value: str) -> None:
        self.all[name] = value


@pytest.mark.parametrize(
    "changed",
    [
        {"session_timeZone": "Europe/Berlin"},
        {"caseSensitive": "false"},
        {"ansi_enabled": "false"},
        {"legacy_timeParserPolicy": "LEGACY"},
    ],
)
def test_a_session_with_other_settings_leaves_lines_to_spark(changed: dict[str, str]) -> None:
    spec = spec_of()
    query = spec.queries()[0]
    assert session_program(SimpleNamespace(conf=Settings()), spec, query) is not None
    assert session_program(SimpleNamespace(conf=Settings(**changed)), spec, query) is None


def test_each_query_starts_with_its_own_bound() -> None:
    spark = SimpleNamespace(conf=Settings())

    def query(rows: int) -> tuple[str | None, str | None]:
        def start() -> tuple[str | None, str | None]:
            time.sleep(0.002)  # others that do not wait come in between
            return spark.conf.get(ROWS_OPTION), spark.conf.get(FILE_MANAGER_OPTION, None)

        return begun(spark, SimpleNamespace(start=start), rows, local=rows % 3 == 0)

    with ThreadPoolExecutor(4) as threads:
        settings = list(threads.map(query, range(20)))
    assert settings == [(str(rows), None if rows % 3 else FILE_MANAGER) for rows in range(20)]


def test_a_file_manager_of_the_users_own_stays() -> None:
    spark = SimpleNamespace(conf=Settings(streaming_checkpointFileManagerClass="own"))
    for local in (True, False):
        start = SimpleNamespace(start=lambda: spark.conf.get(FILE_MANAGER_OPTION))
        assert begun(spark, start, None, local=local) == "own"


def test_the_rate_counts_lines_and_not_parcels() -> None:
    progress = {
        "numInputRows": 3,
        "processedRowsPerSecond": 6.0,
        "observedMetrics": {"barnabas": {"rows": 3000, "failed": 1}},
        "durationMs": {"triggerExecution": 500},
    }
    assert records_per_second(progress) == 6000.0
    assert records_per_second({**progress, "observedMetrics": {}}) == 0.0
    assert records_per_second({"numInputRows": 0, "durationMs": {}}) == 0.0


@pytest.mark.parametrize(
    "changed",
    [
        {"steps": f"{STEPS}  - keep: [path, method, path]\n"},
        {"outputs": "{topic: out, name: a, key: path}\n  - {topic: out, name: b, key: method}"},
        {"outputs": "{topic: out, value: \"concat_ws(' '" + ", status" * 1100 + ')"}'},
        {"outputs": "{topic: out, key: \"'${spark.app.name}'\"}"},
        {"steps": f"{STEPS}  - filter: status > 200.5\n"},
        {"steps": "\n  - parse: {pattern: syslog}\n"},
        {"steps": STEPS.replace(LAYOUT, "dd/MMM/yyyy HH:mm:ss Z")},
        {"steps": STEPS.replace("int,", "float,")},
        {"steps": f"{STEPS}  - rename: {{path: a.b}}\n"},
        {"steps": f"{STEPS}  - rename: {{path: 'null'}}\n", "outputs": "{topic: out, key: 'null'}"},
        {"outputs": "{topic: out, key: time}"},
        {"outputs": "{topic: out, key: reverse(path)}"},
        {"outputs": "{topic: out, key: nothing}"},
        {"outputs": "{topic: out, value: \"concat_ws(' ', path, time)\"}"},
        {"outputs": "{topic: out, headers: {a: path + status}}"},
        {"outputs": "{topic: out, timestamp: time}"},
        {"outputs": "{topic: out, route: {by: path}}\n  - {topic: out2}"},
        {"outputs": "console: {}"},
        {"more": "spark: {spark.sql.session.timeZone: Europe/Berlin}"},
    ],
)
def test_queries_that_spark_does(changed: dict[str, str]) -> None:
    assert program_of(**changed) is None


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"steps": "\n  - parse: {json: all}\n"},
            "step 1 parse is not one of the steps that are made without Spark's expressions",
        ),
        (
            {"steps": f"{STEPS}  - filter: status > 200.5\n"},
            "step 5 filter: `status > 200.5`: 200.5 is a decimal, and what it goes with is no double",
        ),
        (
            {"steps": STEPS.replace(LAYOUT, "yyyy")},
            f"step 3 time: it has another format than ISO 8601 and {LAYOUT}",
        ),
        (
            {"steps": "\n  - parse: {json: {a: 'array<int>'}}\n"},
            "step 1 parse: a is declared as array<int>, not as one of string, int, integer, bigint, long, double, "
            "boolean, timestamp",
        ),
        (
            {"outputs": "{name: a, topic: out, key: reverse(path)}"},
            "output a: `reverse(path)`: reverse is not one of the functions that are understood without Spark",
        ),
        (
            {"outputs": "{name: a, topic: out, key: \"path rlike 'a'\"}"},
            "output a: `path rlike 'a'` is not an expression that is understood without Spark",
        ),
        ({"outputs": "{name: c, console: {}}"}, "output c is not a topic"),
        ({"more": "spark: {spark.sql.ansi.enabled: false}"}, "spark.sql.ansi.enabled is set"),
    ],
)
def test_the_reason_is_told(changed: dict[str, str], why: str) -> None:
    spec = spec_of(**changed)
    assert way_of(SimpleNamespace(conf=Settings()), spec, spec.queries()[0]) == f"Spark's expressions: {why}"


def test_the_way_is_told() -> None:
    spec = spec_of()
    query = spec.queries()[0]
    assert way_of(SimpleNamespace(conf=Settings()), spec, query).startswith("direct: ")
    way = way_of(SimpleNamespace(conf=Settings(session_timeZone="Asia/Tokyo")), spec, query)
    assert way == "Spark's expressions: spark.sql.session.timeZone is Asia/Tokyo, not UTC"


def test_other_sources() -> None:
    for source in ("{topic: t, encoding: latin1}", "{topic: t, tombstones: deletes}"):
        spec = parse_spec(f"pipeline: p\nsource: {source}\nsteps:{STEPS}\noutputs: [{{topic: out}}]\n")
        assert direct_program(spec, spec.queries()[0]) is None


def test_a_program_is_an_option() -> None:
    program = program_of(outputs="{topic: out, key: path, headers: {a: path, b: \"'x'\"}}")
    assert program is not None
    assert Program.read(program.text()) == program
