"""Whole pipelines over data that is easily changed on its way: what comes out is what went in, or a dead letter."""

from __future__ import annotations

import json
import random

import pytest
from pyspark.sql import functions as F

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.kinds.steps.exact_numbers import doubtful, is_kept
from barnabas.pipelines.plan.errors import PipelineError
from tests.pipelines.conftest import pass_once, send
from tests.pipelines.readers import consumed
from tests.pipelines.test_steps import run as steps_done

pytestmark = pytest.mark.spark


@pytest.fixture
def run(spark, bootstrap, client, new_topic):
    """Runs a pipeline of these steps over these values: the JSON values that came out, and dead letters by value."""

    def through(steps: str, *values: bytes, source: str = "", output: str = ""):
        topic = new_topic(1)
        send(client, topic, list(values))
        text = (
            f"pipeline: {topic}\nsource: {{topic: {topic}{source}}}\n"
            f"outputs: [{{topic: {topic}-out{output}}}]\nsteps:\n{steps}\n"
        )
        pass_once(spark, parse_spec(text), bootstrap)
        dead = {
            record.value: record.header("reason") for record in consumed(bootstrap, f"{topic}-dead-letters")
        }
        return [json.loads(record.value) for record in consumed(bootstrap, f"{topic}-out")], dead

    return through


def test_zones_of_times(run):
    """`zone` is for times without one of their own."""
    steps = (
        "  - parse: {csv: {log: string, iso: string, own: string, n: string, day: string}, separator: ';'}\n"
        "  - time: {field: log, format: 'dd/MMM/yyyy:HH:mm:ss Z', zone: Europe/Berlin}\n"
        "  - time: {field: iso, zone: Europe/Berlin}\n"
        "  - time: {field: own, zone: Europe/Berlin}\n"
        "  - time: {field: n, format: [unix, yyyy-MM-dd], zone: Europe/Berlin}\n"
        "  - time: {field: day, format: [unix, yyyy-MM-dd], zone: Europe/Berlin}\n"
    )
    good, dead = run(
        steps, b"10/Oct/2000:13:55:36 -0700;2000-10-10T13:55:36;2000-10-10T13:55:36Z;0;2000-10-10"
    )
    assert dead == {}
    assert good == [
        {
            "log": "2000-10-10T20:55:36.000Z",
            "iso": "2000-10-10T11:55:36.000Z",
            "own": "2000-10-10T13:55:36.000Z",
            "n": "1970-01-01T00:00:00.000Z",
            "day": "2000-10-09T22:00:00.000Z",
        }
    ]


def test_json_of_any_shape_stays_as_it_is(run):
    kept = [
        b'{"n": 123456789012345678901234567890, "d": 0.1234567890123456789, "e": 1.5e3, "s": "1e400 }{ 9e999"}',
        b'{"a": {"b": [1, {"c": "}"}]}, "t": "2024-05-01T12:00:00.123456789012345678Z"}',
    ]
    odd = {
        b'{"a": 1} {"b": 2}': "something follows the JSON object",
        b'{"a": 1},{"b": 2}': "something follows the JSON object",
        b'{"a": 1}}': "something follows the JSON object",
        b'{"a": 1e400}': "the number 1e400 cannot be kept exactly",
        b'{"a": 12345678901234567890123456789012345678901234567890}': "cannot be kept exactly",
        b'{"a": 12345678901234567890.12345678901234567890}': "cannot be kept exactly",
        b'{"a": "\xff"}': "the value is not text in the source's encoding",
    }
    good, dead = run("  - parse: {json: all}", *kept, *odd)
    assert good == [json.loads(value) for value in kept]
    assert set(dead) == set(odd)
    for value, reason in odd.items():
        assert reason in dead[value], value


def test_numbers_that_are_not_read_a_second_time_are_kept(spark):
    """`doubtful` chooses what is read twice: whatever it leaves out must be kept by the type."""
    chance = random.Random(7)
    numbers = ["0", "-0", "1.005", "16777217", "9007199254740993", "1e400", "0.1", "1.10", "99999999.99"]
    for _ in range(3000):
        digits = "".join(chance.choice("0123456789") for _ in range(chance.randrange(1, 20)))
        whole = digits.lstrip("0") or "0"
        fraction = "".join(chance.choice("0123459") for _ in range(chance.choice((0, 0, 1, 2, 3, 9))))
        exponent = chance.choice(("", "", "", "e3", "E-2"))
        numbers.append(chance.choice(("", "-")) + whole + (f".{fraction}" if fraction else "") + exponent)
    rows = spark.createDataFrame(
        [(number, f'{{"a": {number}}}') for number in numbers], "number string, text string"
    )
    for kind in ("float", "double", "decimal(10,2)", "decimal(38,0)", "decimal(20,6)"):
        parsed = F.from_json("text", f"a {kind}")["a"]
        left_out = rows.where(~F.col("text").rlike(doubtful([kind]))).where(parsed.isNotNull())
        lost = left_out.where(~is_kept(F.col("number"), parsed, kind)).collect()
        assert lost == [], kind
        assert left_out.count() > 300


def test_numbers_of_declared_fields_are_exact_wherever_they_stand(run):
    good, dead = run(
        "  - parse: {json: {s: string, t: string, d: double, m: 'decimal(10,2)'}}",
        b'{"s": 1.10, "t": "2026-01-31", "d": 0.5, "m": 1.05}',
        b'{"s": -0, "t": "1.10", "d": 1}',
        b'{"s": 1e3, "t": -0}',
        b'{"s": 12345678.5, "t": "-0"}',
        b'{"m": 1.005}',
        b'{"m": "1.005"}',
        b'{"d": 0.12345678901234567890}',
    )
    assert [(row["s"], row["t"]) for row in good] == [
        ("1.10", "2026-01-31"), ("-0", "1.10"), ("1e3", "-0"), ("12345678.5", "-0")
    ]  # fmt: skip
    assert set(dead) == {b'{"m": 1.005}', b'{"m": "1.005"}', b'{"d": 0.12345678901234567890}'}


def test_declared_json_and_key_values(run):
    good, dead = run(
        "  - parse: {json: {a: double, s: string, line: string}}\n  - parse: {key_values: [msg, u, e], from: line}",
        b'{"a": 1.5, "s": "x", "line": "msg=\\"he said \\\\\\"hi\\\\\\" now\\" u=\\"a \\\\\\\\ b\\" e=\\"\\""}',
        b'{"a": 1e400}',
        b'{"a": 1} {"a": 2}',
        b'{"a": 2, "s": 1e400}',
    )
    assert [row["msg"] for row in good] == ['he said "hi" now']
    assert [row["u"] for row in good] == ["a \\ b"]
    assert [row["e"] for row in good] == [""]
    assert set(dead) == {b'{"a": 1e400}', b'{"a": 1} {"a": 2}', b'{"a": 2, "s": 1e400}'}


def test_quotes_of_csv(run):
    good, dead = run(
        "  - parse: {csv: {a: string, b: int}}", b'"she said ""hi"", twice",7', b"plain,8", b'"two\nlines",9'
    )
    assert dead == {}
    assert good == [
        {"a": 'she said "hi", twice', "b": 7}, {"a": "plain", "b": 8}, {"a": "two\nlines", "b": 9},
    ]  # fmt: skip
    good, _ = run("  - parse: {csv: {a: string}, escape: '\\'}", b'"say \\"hi\\""')
    assert good == [{"a": 'say "hi"'}]


def test_other_encodings(run):
    line = "Grüße;20 €".encode("windows-1252")
    steps = "  - parse: {csv: {a: string, b: string}, separator: ';'}"
    good, dead = run(steps, line, source=", encoding: windows-1252")
    assert (good, dead) == ([{"a": "Grüße", "b": "20 €"}], {})
    good, dead = run(steps, line)
    assert good == []
    assert set(dead) == {line}
    with pytest.raises(PipelineError, match="'nonsense', which is not a known encoding"):
        run(steps, line, source=", encoding: nonsense")
    with pytest.raises(PipelineError, match="which Java does not support"):
        run(steps, line, source=", encoding: rot13")


def test_names_that_come_out_of_data(run, new_topic):
    """Names that differ by case are two fields; those of the record's own columns are refused, or stay data."""
    good, dead = run(
        "  - parse: {json: all}\n  - rename: {_id: id}\n  - set: {twice: 'int(status) * 2'}\n  - convert: {Status: int}",
        b'{"status": 1, "Status": "2", "_id": "x", "_error": 5, "_key": "k"}',
    )
    assert dead == {}
    assert good == [{"id": "x", "status": 1, "twice": 2, "Status": 2, "_error": 5, "_key": "k"}]
    for step in (
        "parse: {regex: '(?<_key>.*)'}", "parse: {regex: '(?P<_error>.*)'}", "parse: {json: {_key: string}}",
        "parse: {csv: {_offset: string}}", "parse: {key_values: [_error]}", "split: {by: ',', into: [_key]}",
        "parse: {grok: '%{WORD:_error}'}",
    ):  # fmt: skip
        with pytest.raises(PipelineError, match=r"^pipeline:\d+: .*underscore"):
            run(f"  - {step}", b"x")
    with pytest.raises(PipelineError, match="'_error' cannot become a field of its own"):
        run("  - parse: {json: all}\n  - keep: [_error]", b"{}")


def test_objects_within_objects(run):
    deep = b'{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{"i":{"j":{"k":1}}}}}}}}}}}'
    good, _ = run("  - parse: {json: all}\n  - flatten: {}", deep)
    assert good == [{"a.b.c.d.e.f.g.h.i.j.k": 1}]
    good, _ = run("  - parse: {json: all}\n  - flatten: {depth: 2}", deep)
    assert list(good[0]) == ["a.b.c"]
    with pytest.raises(PipelineError, match="flatten opens at most 10 levels"):
        run("  - parse: {json: all}\n  - flatten: {depth: 11}", deep)


def test_loops_are_refused():
    for text in (
        "source: {topic: a}\noutputs: [{topic: a}]",
        "source: {topic: a}\noutputs: [{topic: b}]\ndead_letters: a",
        "source: {pattern: 'a.*'}\noutputs: [{topic: abc}]",
        "source: {topic: a}\noutputs: [{topic: b, route: {by: x, topics: {E: a}}}]",
    ):
        with pytest.raises(
            PipelineError, match=r"^pipeline:\d: the pipeline would read topic \w+, which it writes itself"
        ):
            parse_spec(f"pipeline: p\n{text}")


def test_headers_go_with_their_records(spark, bootstrap, new_topic):
    from confluent_kafka import Producer

    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in (b'{"a": "1"}', b"bad"):
        producer.produce(topic, value, headers=[("trace", b"\xff7"), ("shop", b"south"), ("gone", None)])
    producer.flush()
    spec = parse_spec(
        f"""
pipeline: {topic}
source: {{topic: {topic}}}
steps: [parse: {{json: {{a: string}}}}]
outputs:
  - topic: {topic}-plain
  - topic: {topic}-changed
    steps: [headers: {{set: {{shop: "concat('north-', a)"}}, drop: [gone]}}]
    headers: {{more: a}}
  - topic: {topic}-kept
    steps: [headers: {{keep: trace}}]
"""
    )
    pass_once(spark, spec, bootstrap)
    headers_by_topic = {
        name: [r.headers for r in consumed(bootstrap, f"{topic}-{name}")]
        for name in ("plain", "changed", "kept")
    }
    assert headers_by_topic == {
        "plain": [{"trace": b"\xff7", "shop": b"south", "gone": None}],
        "changed": [{"trace": b"\xff7", "shop": b"north-1", "more": b"1"}],
        "kept": [{"trace": b"\xff7"}],
    }
    (dead,) = consumed(bootstrap, f"{topic}-dead-letters")
    assert {
        name: value for name, value in dead.headers.items() if not name.startswith("barnabas.")
    } == headers_by_topic["plain"][0]


OPEN = "parse: {json: all}"
CHANGES: list[tuple[list[str], list[tuple[str, dict[str, object] | str]]]] = [
    # The steps; then values, each with the fields that it becomes, or a part of the reason why it is refused.
    (
        ["parse: {json: {n: string, o: string}}"],
        [
            ('{"n": 0.1234567890123456789}', {"n": "0.1234567890123456789", "o": None}),
            ('{"n": 1.10, "o": "1.10"}', {"n": "1.10", "o": "1.10"}),
            ('{"n": -0, "o": 1E5}', {"n": "-0", "o": "1E5"}),
            ('{"n": "\\": 1.50 \\\\", "o": 2.50}', {"n": '": 1.50 \\', "o": "2.50"}),
            ('{"n": "{\\"a\\": 1.10}", "o": 1.10}', {"n": '{"a": 1.10}', "o": "1.10"}),
            ('{"n": 1.50, "n": 2.50}', "a name appears twice"),
            ('{"n": {"a": 1, "a": 2}}', "a name appears twice"),
            ('{"n": "\\ud83d\\ude00 \\\\ud83d"}', {"n": "\U0001f600 \\ud83d", "o": None}),
            ('{"n": "\\ud83d"}', "half of a surrogate pair"),
            ('{"n": "\\ude00\\ud83d"}', "half of a surrogate pair"),
        ],
    ),
    (
        ['parse: {json: {d: "decimal(10,2)", f: float, e: double, i: int}}'],
        [
            (
                '{"d": 1.5, "f": 0.1, "e": 0.30000000000000004, "i": 3}',
                {"d": 1.5, "f": 0.1, "e": 0.30000000000000004, "i": 3},
            ),
            ('{"d": 1.005}', "d is 1.005, which decimal(10,2) cannot hold exactly"),
            ('{"f": 16777216, "d": 1.500}', {"d": 1.5, "f": 16777216.0, "e": None, "i": None}),
            ('{"f": 16777217}', "f is 16777217, which float cannot hold exactly"),
            ('{"f": 1e40}', "f is 1e40"),
            ('{"e": 9007199254740993}', "e is 9007199254740993"),
            ('{"e": 0.1234567890123456789}', "e is 0.1234567890123456789"),
            ('{"i": 3.7}', "the declared types"),
            ('{"i": true}', "the declared types"),
        ],
    ),
    (
        [OPEN, 'convert: {i: int, l: long, d: "decimal(10,2)", f: float, e: double}'],
        [
            (
                '{"i": 3.0, "l": 9007199254740993, "d": "1.50", "f": 0.1, "e": 0.1}',
                {"i": 3, "l": 9007199254740993, "d": 1.5, "f": 0.1, "e": 0.1},
            ),
            ('{"i": 3.7}', "i is 3.7, not int"),
            ('{"i": true}', "i is true, not int"),
            ('{"l": 1e3}', {"l": 1000, "i": None, "d": None, "f": None, "e": None}),
            ('{"l": false}', "l is false, not bigint"),
            ('{"d": 1.005}', "d is 1.005, not decimal(10,2)"),
            ('{"d": "999.999"}', "d is 999.999, not decimal(10,2)"),
            ('{"d": true}', "d is true, not decimal(10,2)"),
            ('{"f": 16777217}', "f is 16777217, not float"),
            ('{"e": 9007199254740993}', "e is 9007199254740993, not double"),
            ('{"e": "1e400"}', "e is 1e400, not double"),
            ('{"e": "1e-400"}', "e is 1e-400, not double"),
            ('{"e": true}', "e is true, not double"),
        ],
    ),
    (
        ['parse: {json: {e: double, b: boolean, d: "decimal(4,1)"}}', "convert: {e: int, d: long}", "drop: b"],
        [
            ('{"e": 3.0, "d": 7.0}', {"e": 3, "d": 7}),
            ('{"e": 3.5}', "e is 3.5, not int"),
            ('{"e": 1e30}', "e is 1.0E30, not int"),
            ('{"d": 7.5}', "d is 7.5, not bigint"),
        ],
    ),
    (["parse: {json: {b: boolean}}", "convert: {b: int}"], [('{"b": true}', "b is true, not int")]),
    (
        [OPEN],
        [
            ('{"a": 1, "b": {"a": 2}}', {"a": 1, "b": {"a": 2}}),
            ('{"a": 1, "a": 2}', "a name appears twice"),
            ('{"a": {"b": 1, "b": 2}}', "a name appears twice"),
            ('{"a": "\\udc00"}', "half of a surrogate pair"),
        ],
    ),
    (
        ["parse: {json: {a: string}}", "url_decode: a"],
        [
            ('{"a": "%C3%A9+%EF%BF%BD"}', {"a": "\u00e9 \ufffd"}),
            ('{"a": "%ff"}', "a is %ff, whose bytes are not UTF-8"),
        ],
    ),
    (
        ["split: {by: ',', into: [a, b]}"],
        [("1,2", {"a": "1", "b": "2"}), ("1,2, ,", {"a": "1", "b": "2"}), ("1,2,3", "3 pieces, not 2, in: 1,2,3")],
    ),
    (["split: {by: ',', into: [a, b], surplus: drop}"], [("1,2,3", {"a": "1", "b": "2"}), ("1", "1 pieces, not 2")]),
    (
        ["parse: {key_values: all}"],
        [
            ('a=1  b="x y"', {"a": "1", "b": "x y"}),
            ("a=1 lost b=2", "text that is not in a pair: lost"),
            ("head a=1", "text that is not in a pair: head"),
            ('a="x"y', "text that is not in a pair: y"),
        ],
    ),
    (["parse: {key_values: [a], surplus: drop}"], [("a=1 lost", {"a": "1"})]),
    (
        ['parse: {csv: {a: string, b: string, d: "decimal(4,1)"}}'],
        [
            ('"",,1.5', {"a": "", "b": None, "d": 1.5}),
            ("x,y,1.55", "d is 1.55, which decimal(4,1) cannot hold exactly"),
            ("\x01null\x01,y,1", "the control character U+0001"),
        ],
    ),
    (["parse: {csv: {a: string, b: string}, empty: 'null'}"], [('"",x', {"a": None, "b": "x"})]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "cases"), CHANGES, ids=lambda part: part[0] if isinstance(part[0], str) else ""
)
def test_every_value_is_exact_or_refused(spark, steps, cases):
    outcomes = steps_done(spark, "\n".join(f"- {step}" for step in steps), *(value for value, _ in cases))
    for (value, expected), is_now in zip(cases, outcomes, strict=True):
        if isinstance(expected, str):
            assert isinstance(is_now, tuple), (value, is_now)
            assert expected in is_now[1], value
        else:
            assert isinstance(is_now, dict), (value, is_now)
            assert {name: is_now.get(name) for name in expected} == expected, value
