"""Every step on rows that Spark holds, and the four worked cases; no broker needed."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from barnabas.pipelines.compiler.outputs import query_rows
from barnabas.pipelines.compiler.relations import opened, run_steps
from barnabas.pipelines.fronts.yaml.spec import load_spec, parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.relations import SOURCE
from barnabas.pipelines.spark.outgoing import json_value

pytestmark = pytest.mark.spark

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
CASES = Path(__file__).parents[2] / "examples" / "worked_cases"
TIME = dt.datetime(2024, 5, 1, 12, 0, 0)


def rows(spark, values):
    data = [
        (b"k", v.encode() if isinstance(v, str) else v, "in", 2, i, TIME, [("h", b"x")])
        for i, v in enumerate(values)
    ]
    return spark.createDataFrame(data, SCHEMA)


def spec_of(steps: str, output: str = "{topic: out}"):
    indented = "\n".join("  " + line for line in steps.strip("\n").splitlines())
    return parse_spec(
        f"pipeline: p\nsource: {{topic: in}}\noutputs: [{output}]\nsteps:\n{indented}", "p.yaml"
    )


def run(spark, steps: str, *values):
    """Per value: its fields as JSON gives them, or (step, reason)."""
    frame = run_steps(opened(rows(spark, values)), spec_of(steps).plan[SOURCE].operators)
    done = (
        frame.data.select("_offset", "_error", json_value(frame).alias("json")).orderBy("_offset").collect()
    )
    return [(row._error.step, row._error.reason) if row._error else json.loads(row.json) for row in done]


def one(spark, steps: str, value):
    (outcome,) = run(spark, steps, value)
    return outcome


# --- the four worked cases ------------------------------------------------------------------------


def test_combined_web_log_by_separators(spark):
    line = (
        '66.249.65.159 - - [06/Nov/2014:19:10:38 +0600] "GET /news/53f8d72920ba2744fe873ebc.html HTTP/1.1" '
        '404 177 "-" "Mozilla/5.0 (iPhone; CPU iPhone OS 6_0 like Mac OS X)"'
    )
    steps = """
- split: {by: '"', into: [head, request, numbers, _, _, http_user_agent]}
- split: {from: head, by: [" - - [", "]"], into: [remote_addr, dateTime]}
- split: {from: numbers, by: " ", into: [status, body_bytes_sent]}
- convert: {status: int, body_bytes_sent: long}
- keep: [request, http_user_agent, remote_addr, dateTime, status, body_bytes_sent]
"""
    good, bad = run(spark, steps, line, "no quotes here")
    assert good == {
        "request": "GET /news/53f8d72920ba2744fe873ebc.html HTTP/1.1",
        "http_user_agent": "Mozilla/5.0 (iPhone; CPU iPhone OS 6_0 like Mac OS X)",
        "remote_addr": "66.249.65.159",
        "dateTime": "06/Nov/2014:19:10:38 +0600",
        "status": 404,
        "body_bytes_sent": 177,
    }
    assert bad == ("1 split", "1 pieces, not 6, in: no quotes here")


def test_nested_container_log_to_one_level(spark):
    record = {
        "@timestamp": 1648803500.63659,
        "log": "15:00:00.000 INFO started",
        "kubernetes": {
            "pod_name": "es-n29jr",
            "labels": {"k8s-app": "es", "hash": "687"},
            "annotations": {"networks.cloud/status": '[{"name": "bridge"}]'},
            "ports": [80, 443],
        },
    }
    flat = one(spark, "- parse: {json: all}\n- flatten: {}", json.dumps(record))
    assert flat == {
        "@timestamp": 1648803500.63659,
        "log": "15:00:00.000 INFO started",
        "kubernetes.pod_name": "es-n29jr",
        "kubernetes.labels.k8s-app": "es",
        "kubernetes.labels.hash": "687",
        "kubernetes.annotations.networks.cloud/status": '[{"name": "bridge"}]',
        "kubernetes.ports": [80, 443],
    }
    chosen = """
- parse: {json: all}
- flatten: {fields: [kubernetes], depth: 1}
- rename: {kubernetes.pod_name: pod_name}
- keep: ["@timestamp", log, pod_name]
"""
    assert one(spark, chosen, json.dumps(record)) == {
        "@timestamp": 1648803500.63659, "log": "15:00:00.000 INFO started", "pod_name": "es-n29jr",
    }  # fmt: skip
    declared = """
- parse: {json: {log: string, kubernetes: "struct<pod_name:string,labels:map<string,string>>"}}
- flatten: {}
"""
    assert one(spark, declared, json.dumps(record)) == {
        "log": "15:00:00.000 INFO started",
        "kubernetes.pod_name": "es-n29jr",
        "kubernetes.labels": {"k8s-app": "es", "hash": "687"},
    }
    dotted = "- extract: {fields: {status: \"$.kubernetes.annotations.['networks.cloud/status']\"}}"
    assert one(spark, dotted, json.dumps(record)) == {"status": '[{"name": "bridge"}]'}


def test_raw_json_inside_a_string(spark):
    inner = {"categories": ["dev"], "id": "elgv2", "value": 'says "hi"'}
    steps = "- parse: {json: all}\n- parse: {from: key, json: all}"
    assert one(spark, steps, json.dumps({"key": "  " + json.dumps(inner, indent=4)})) == inner
    prefixed = "- parse: {json: all}\n- parse: {from: key, json: all, prefix: 'key.'}\n- drop: [key.value]"
    assert one(spark, prefixed, json.dumps({"key": json.dumps(inner)})) == {
        "key.categories": ["dev"], "key.id": "elgv2",
    }  # fmt: skip


@pytest.mark.parametrize("form", ["all", "{a: int}"])
def test_a_json_array_is_refused_with_a_clear_reason(spark, form):
    outcomes = run(
        spark, f"- parse: {{json: {form}}}", '["a","b"]', '[{"a":1}]', "not json", '{"a": 1', '{"a": 1}'
    )
    array = ("1 parse", "the JSON is an array, not an object: its values have no names")
    assert outcomes == [
        array,
        array,
        ("1 parse", "not a JSON object: not json"),
        ("1 parse", 'not valid JSON: {"a": 1'),
        {"a": 1},
    ]


@pytest.mark.parametrize("name", ["web_log", "container_log", "raw_json", "json_array"])
def test_the_examples_of_the_worked_cases(spark, name):
    spec = load_spec(CASES / f"{name}.yaml")
    values = (CASES / f"{name}.txt").read_text().splitlines()
    frame = run_steps(opened(rows(spark, values)), spec.plan[SOURCE].operators)
    columns = ["_offset", "_error", json_value(frame).alias("json")]
    done = frame.data.select(*columns).orderBy("_offset").collect()
    shown = [f"{r._error.step}: {r._error.reason}" if r._error else r.json for r in done]
    assert shown == (CASES / f"{name}.out").read_text().splitlines()


# --- parsing --------------------------------------------------------------------------------------


def test_parse_formats(spark):
    assert one(spark, "- parse: {regex: '^(?<first_name>\\w+)@(?P<host>\\S+)$'}", "ann@b.c") == {
        "first_name": "ann", "host": "b.c",
    }  # fmt: skip
    grok = "- parse: {grok: '%{IP:client} %{WORD:method} %{URIPATHPARAM:path} %{NUMBER:took}'}"
    assert one(spark, grok, "10.0.0.1 GET /a/b?c=1 0.25") == {
        "client": "10.0.0.1", "method": "GET", "path": "/a/b?c=1", "took": "0.25",
    }  # fmt: skip
    assert run(spark, "- parse: {csv: {a: int, b: string}, separator: ';'}", '1;"x;y"', "z;y", "1") == [
        {"a": 1, "b": "x;y"},
        ("1 parse", "not 2 values of the declared types: z;y"),
        ("1 parse", "not 2 values of the declared types: 1"),
    ]
    pairs = "- parse: {key_values: all}"
    assert run(spark, pairs, 'level=info msg="two words" n=1 n=2', "nothing") == [
        {"level": "info", "msg": "two words", "n": "2"},
        ("1 parse", "no key=value in: nothing"),
    ]
    assert one(spark, "- parse: {key_values: [a, c], pairs: '&', equals: ':'}", "a:1&b:2") == {
        "a": "1",
        "c": None,
    }
    assert one(spark, "- parse: {json: {a: int}}", '{"a": "x"}')[1].startswith("the JSON does not have")


def test_a_null_value_is_told(spark):
    for how in ("regex: '(?<a>.)'", "json: all", "json: {a: int}", "csv: {a: int}", "key_values: all"):
        assert "is null" in one(spark, f"- parse: {{{how}}}", None)[1]
    assert "is null" in one(spark, "- split: {by: ',', into: [a]}", None)[1]


# --- fields ---------------------------------------------------------------------------------------


def test_types_and_times(spark):
    steps = """
- parse: {json: all}
- convert: {n: int, f: double, b: boolean}
- time: {field: t, format: ["dd/MM/yyyy HH:mm", unix], zone: Europe/Berlin, to: at}
- format_time: {field: at, format: "yyyy-MM-dd HH:mm", zone: Asia/Tokyo, to: tokyo}
- drop: t
"""
    good, bad, late = run(
        spark,
        steps,
        '{"n": " 5 ", "f": "1.5", "b": "true", "t": "01/07/2024 12:30"}',
        '{"n": "x5", "f": 1, "b": true, "t": "1"}',
        '{"n": 1, "f": 2.5, "b": false, "t": "tomorrow"}',
    )
    assert good == {
        "n": 5,
        "f": 1.5,
        "b": True,
        "at": "2024-07-01T10:30:00.000Z",
        "tokyo": "2024-07-01 19:30",
    }
    assert bad == ("2 convert", "n is x5, not int")
    assert late == ("3 time", "t is tomorrow, not a time like dd/MM/yyyy HH:mm or unix")


def test_fields_come_and_go(spark):
    steps = """
- parse: {json: {a: int, b: string}}
- set: {c: a * 2, d: "concat(b, c)"}
- constant: {source: shop, level: 3}
- metadata: {topic: topic, part: partition, off: offset, at: timestamp, k: key, h: headers}
- rename: {b: text}
- drop: [a]
"""
    assert one(spark, steps, '{"a": 4, "b": "x"}') == {
        "text": "x", "c": 8, "d": "x8", "source": "shop", "level": 3, "topic": "in", "part": 2, "off": 0,
        "at": "2024-05-01T12:00:00.000Z", "k": "k", "h": {"h": "x"},
    }  # fmt: skip


def test_of_headers_with_one_name_the_last_counts(spark):
    """A second one would otherwise end the query: Spark makes no map of a name that is there twice."""
    headers = [
        [("a", b"1"), ("b", b"2"), ("a", b"3")],
        [("a", b"1"), ("a", None)],
        [("a", b"\xff"), ("a", b"1")],
        [],
        None,
    ]
    data = [(None, b"", "in", 2, offset, TIME, each) for offset, each in enumerate(headers)]
    frame = run_steps(
        opened(spark.createDataFrame(data, SCHEMA)),
        spec_of("- metadata: {h: headers}").plan[SOURCE].operators,
    )
    rows_collected = frame.data.select("_offset", "_error.reason", "h").orderBy("_offset").collect()
    assert [row.h for row in rows_collected] == [{"a": "3", "b": "2"}, {"a": None}, None, {}, None]
    assert [row.reason for row in rows_collected] == [
        None,
        None,
        "the value of a header is not UTF-8",
        None,
        None,
    ]


def test_filter_keeps_what_failed(spark):
    steps = "- parse: {json: all}\n- convert: {a: int}\n- filter: a > 1"
    assert run(spark, steps, '{"a": 1}', "broken", '{"a": 2}') == [
        ("1 parse", "not a JSON object: broken"),
        {"a": 2},
    ]


def test_open_fields_in_expressions(spark):
    steps = "- parse: {json: all}\n- set: {total: 'price::double * n::int'}\n- filter: total > 1"
    assert one(spark, steps, '{"price": 1.5, "n": 2, "x": null}') == {
        "price": 1.5, "n": 2, "total": 3.0, "x": None,
    }  # fmt: skip


def test_text_steps(spark):
    steps = r"""
- parse: {json: all}
- trim: [a]
- upper: [a]
- lower: [b]
- url_decode: [c]
- unescape: [d]
- replace: {field: e, find: "/old/", with: "/new/"}
- replace: {field: f, regex: "[0-9]+", with: "#"}
- substring: {field: g, start: -3, length: 2, to: g2}
- mask: {fields: [h, i], right: 4}
- hash: {fields: [j], salt: s}
"""
    record = {
        "a": " x ", "b": "ÄB", "c": "a%20b+c", "d": 'a \\"q\\" \\\\', "e": "/old/x", "f": "a12b3", "g": "abcdef",
        "h": "4111111111111111", "i": "123", "j": "me",
    }  # fmt: skip
    row = one(spark, steps, json.dumps(record))
    assert row | {"j": None} == {
        "a": "X", "b": "äb", "c": "a b c", "d": 'a "q" \\', "e": "/new/x", "f": "a#b#", "g": "abcdef", "g2": "de",
        "h": "************1111", "i": "***", "j": None,
    }  # fmt: skip
    assert row["j"] == __import__("hashlib").sha256(b"sme").hexdigest()
    assert run(spark, "- parse: {json: all}\n- url_decode: [c]", '{"c": "%zz"}') == [
        ("2 url_decode", "c is %zz, not URL-encoded")
    ]


# --- nested values --------------------------------------------------------------------------------


def test_extract_with_required(spark):
    steps = "- extract: {required: true, fields: {id: $.user.id, tag: \"$['a.b'][0]\"}}"
    assert run(spark, steps, '{"user": {"id": 7}, "a.b": ["t"]}', '{"user": {}}', "nope") == [
        {"id": "7", "tag": "t"},
        ("1 extract", "there is nothing at $.user.id"),
        ("1 extract", "not JSON: nope"),
    ]


def test_unflatten_and_back(spark):
    steps = """
- parse: {json: {user.id: int, user.name.first: string, n: int}}
- unflatten: {}
"""
    text = '{"user.id": 1, "user.name.first": "ann", "n": 2}'
    assert one(spark, steps, text) == {"user": {"id": 1, "name": {"first": "ann"}}, "n": 2}
    assert one(spark, steps + "- flatten: {}", text) == json.loads(text)


def test_flat_names_that_clash(spark):
    assert one(spark, "- parse: {json: all}\n- flatten: {}", '{"a": {"b": 1}, "a.b": 2}') == (
        "2 flatten",
        "two fields have the same name once they are flat",
    )


def test_explode(spark):
    steps = "- parse: {json: all}\n- explode: {field: items, to: item, index: n}\n- flatten: {fields: [item]}"
    text = '{"id": 1, "items": [{"a": 1}, {"a": 2}]}'
    assert run(spark, steps, text) == [
        {"id": 1, "item.a": 1, "n": 0},
        {"id": 1, "item.a": 2, "n": 1},
    ]
    assert one(spark, "- parse: {json: all}\n- explode: {field: items}", '{"items": 5}') == (
        "2 explode", "items is 5, not an array",
    )  # fmt: skip
    assert one(spark, "- parse: {json: all}\n- explode: {field: items}", '{"items": []}') == {"items": None}
    declared = "- parse: {json: {xs: 'array<int>'}}\n- explode: {field: xs, to: x}"
    assert run(spark, declared, '{"xs": [1, 2]}') == [{"x": 1}, {"x": 2}]


def test_deduplicate_in_a_batch(spark):
    steps = "- parse: {json: all}\n- deduplicate: {by: [id], within: 1 hour}"
    outcomes = run(spark, steps, '{"id": 1}', '{"id": 1}', "bad", "bad", '{"id": 2}')
    assert len([f for f in outcomes if isinstance(f, dict)]) == 2
    assert len([f for f in outcomes if isinstance(f, tuple)]) == 2


def test_rows_without_an_id_are_no_duplicates_of_each_other(spark):
    """Missing, null, and null in an open object: three of four rows had vanished."""
    lines = ('{"id": null, "n": 1}', '{"n": 2}', '{"n": 3}', '{"id": 1, "n": 4}', '{"id": 1, "n": 5}')
    for fields in ("all", "{id: int, n: int}"):
        kept = f"- parse: {{json: {fields}}}\n- deduplicate: {{by: [id], within: 1 hour}}\n- keep: [n]"
        assert [row["n"] for row in run(spark, kept, *lines)][:3] == [1, 2, 3]
        assert len(run(spark, kept, *lines)) == 4
        failing = kept.replace("1 hour", "1 hour, without: fail")
        outcomes = run(spark, failing, *lines)
        assert [f[0] for f in outcomes if isinstance(f, tuple)] == ["2 deduplicate"] * 3
        assert len([f for f in outcomes if isinstance(f, dict)]) == 1


def test_times_keep_their_microseconds(spark):
    """In JSON, at every depth, and in what duplicates are known by."""
    times = [f"2024-05-01T12:00:00.{fraction}Z" for fraction in ("123", "123001", "123002", "000001")]
    lines = [json.dumps({"id": time, "in": {"list": [time], "by": {"k": time}}}) for time in times]
    steps = (
        "- parse: {json: {id: timestamp, in: 'struct<list:array<timestamp>,by:map<string,timestamp>>'}}\n"
        "- deduplicate: {by: [id], within: 1 hour}"
    )
    (query,) = (spec := spec_of(steps, "{topic: out, key: id}")).queries()
    collected = query_rows(spec, query, lambda *_: rows(spark, lines)).collect()
    written = sorted((json.loads(row.value) for row in collected), key=lambda value: times.index(value["id"]))
    assert written == [{"id": time, "in": {"list": [time], "by": {"k": time}}} for time in times]


# --- what is written ------------------------------------------------------------------------------


def test_outputs(spark):
    spec = spec_of(
        "- parse: {json: all}",
        "{topic: out, key: id, value: 'struct(id, name)', headers: {from: \"concat('p', _partition)\"}}",
    )
    (query,) = spec.queries()
    good, bad = sorted(
        query_rows(spec, query, rows(spark, ['{"id": 5, "name": "x"}', "bad"])).collect(),
        key=lambda r: r.topic,
    )
    assert (good.topic, bytes(good.key), json.loads(good.value)) == ("out", b"5", {"id": 5, "name": "x"})
    assert [(h.key, bytes(h.value)) for h in good.headers] == [("h", b"x"), ("from", b"p2")]
    assert (bad.topic, bytes(bad.key), bytes(bad.value)) == ("p-dead-letters", b"k", b"bad")
    assert [(h.key, bytes(h.value)) for h in bad.headers][:3] == [
        ("h", b"x"), ("barnabas.pipeline", b"p"), ("barnabas.step", b"1 parse"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("- parse: {json: {a: intt}}", "the type of a is 'intt'"),
        ("- parse: {json: {a: int}}\n- drop: b", "there is no field 'b' at this point"),
        ("- parse: {json: {a: int}}\n- set: {b: c}", "'c': there is no field 'c'"),
        ("- parse: {json: {a: int}}\n- filter: a", "'a' is int, not true or false"),
        ("- parse: {json: {a: int}}\n- flatten: {fields: [a]}", "a is int, not an object"),
        ("- parse: {json: {a: int}}\n- explode: {field: a}", "a is int, not an array"),
        ("- parse: {json: {a: string}}\n- time: {field: a, zone: Mars}", "there is no time zone 'Mars'"),
        ("- parse: {json: all}\n- unflatten: {}", "the fields are not declared at this point"),
        ("- parse: {json: {a: int, a.b: int}}\n- unflatten: {}", "would be a value and an object at once"),
    ],
)
def test_slips_that_spark_finds(spark, steps, message):
    with pytest.raises(PipelineError, match=message) as caught:
        run_steps(opened(rows(spark, ["{}"])), spec_of(steps).plan[SOURCE].operators)
    assert str(caught.value).startswith("p.yaml:")
    assert "\n" not in str(caught.value)


def test_routes(spark):
    spec = spec_of(
        "- parse: {json: all}",
        "{topic: others, route: {by: level, topics: {ERROR: errors, WARN: warnings}}}",
    )
    (query,) = spec.queries()
    values = ['{"level": "ERROR"}', '{"level": "WARN"}', '{"level": "x"}', "{}", "bad"]
    topics = {
        bytes(r.value).decode(): r.topic for r in query_rows(spec, query, rows(spark, values)).collect()
    }
    assert topics == {
        '{"level":"ERROR"}': "errors", '{"level":"WARN"}': "warnings", '{"level":"x"}': "others",
        "{}": "others", "bad": "p-dead-letters",
    }  # fmt: skip
    free = spec_of(
        "- parse: {json: {level: string}}", "{topic: others, route: {by: \"concat('logs-', level)\"}}"
    )
    (query,) = free.queries()
    assert {r.topic for r in query_rows(free, query, rows(spark, values[:1])).collect()} == {"logs-ERROR"}


def test_what_an_expression_cannot_do_goes_to_the_dead_letters(spark):
    """Nothing that is there becomes null or wrong on the way; null of null is a value."""
    cases = {
        "cast(f0 AS int)": "x",
        "cast(f1 AS int) + cast(f1 AS int)": "x",
        "1 / cast(f2 AS int)": "0",
        "cast(f3 AS int) * 2000000000": "2",
        "to_date(f4)": "2024-02-30",
        "split(f5, '-')[3]": "1-2",
        "if(f6 = '1', raise_error('no'), f6)": "1",
        "parse_json(f7)::int": "{}",
    }
    fields = ", ".join(f"f{i}: string" for i in range(len(cases)))
    steps = f"- parse: {{json: {{{fields}}}}}\n"
    steps += "".join(f'- set: {{c{i}: "{sql}"}}\n' for i, sql in enumerate(cases))
    values = [json.dumps({f"f{i}": value}) for i, value in enumerate(cases.values())]
    *bad, null = run(spark, steps, *values, "{}")
    for i, (sql, value) in enumerate(cases.items()):
        assert bad[i] == (f"{i + 2} set", f"cannot compute {sql} with f{i} = {value}")
    assert set(null.values()) == {None}
    kept, refused = run(spark, "- parse: {json: all}\n- filter: a::int > 1", '{"a": 2}', '{"a": "x"}')
    assert (kept, refused) == ({"a": 2}, ("2 filter", "cannot compute a::int > 1 with a = x"))
    fine = '- parse: {json: {a: int}}\n- set: {b: "try_divide(1, a)"}'
    assert one(spark, fine, '{"a": 0}') == {"a": 0, "b": None}


def test_an_output_s_own_expressions_that_fail(spark):
    spec = spec_of(
        "- parse: {json: {a: string}}",
        "{topic: out, key: cast(a AS int), headers: {h: 10 / (cast(a AS int) - 1)}}",
    )
    (query,) = spec.queries()
    collected = query_rows(spec, query, rows(spark, ['{"a": "5"}', '{"a": "x"}', '{"a": "1"}'])).collect()
    assert [(row.topic, bytes(row.key), bytes(row.value)) for row in collected] == [
        ("out", b"5", b'{"a":"5"}'), ("p-dead-letters", b"k", b'{"a": "x"}'), ("p-dead-letters", b"k", b'{"a": "1"}'),
    ]  # fmt: skip
    headers = [{h.key: bytes(h.value).decode() for h in row.headers} for row in collected[1:]]
    assert [t["barnabas.step"] for t in headers] == ["out: key", "out: headers.h"]
    assert headers[0]["barnabas.reason"] == "cannot compute cast(a AS int) with a = x"
