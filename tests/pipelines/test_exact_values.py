"""Whole pipelines over data that is easily changed on its way: what comes out is what went in, or a dead letter."""

from __future__ import annotations

import json

import pytest

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.spec import parse_spec
from tests.pipelines.conftest import pass_once, send
from tests.pipelines.readers import consumed

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
            record.value: record.told("reason") for record in consumed(bootstrap, f"{topic}-dead-letters")
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
    found = {
        name: [r.headers for r in consumed(bootstrap, f"{topic}-{name}")]
        for name in ("plain", "changed", "kept")
    }
    assert found == {
        "plain": [{"trace": b"\xff7", "shop": b"south", "gone": None}],
        "changed": [{"trace": b"\xff7", "shop": b"north-1", "more": b"1"}],
        "kept": [{"trace": b"\xff7"}],
    }
    (dead,) = consumed(bootstrap, f"{topic}-dead-letters")
    assert {name: value for name, value in dead.headers.items() if not name.startswith("barnabas.")} == found[
        "plain"
    ][0]
