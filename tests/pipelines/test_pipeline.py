"""Whole pipelines from a file: the access log, dead letters, a second run, and what is refused before a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from barnabas.pipelines.fronts.yaml.spec import load_spec, parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import records_of, send

EXAMPLE = Path(__file__).parents[2] / "examples" / "access_log"


def access_log(new_topic):
    """The example's pipeline over topics of this test."""
    source = new_topic(2)
    text = (EXAMPLE / "pipeline.yaml").read_text()
    names = {"access-json": f"{source}-json", "status-per-hour": f"{source}-hours"}
    text = text.replace("topic: access-log\n", f"topic: {source}\n").replace(
        "dead_letters: access-log-dead-letters", f"dead_letters: {source}-dead"
    )
    for old, new in names.items():
        text = text.replace(f"topic: {old}", f"topic: {new}")
    return source, parse_spec(text.replace("pipeline: access-log", f"pipeline: {source}"), "pipeline.yaml")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_access_log(spark, bootstrap, client, new_topic, tmp_path):
    source, spec = access_log(new_topic)
    lines = (EXAMPLE / "access.log").read_bytes().splitlines()[8850:8950]
    odd = b'10.0.0.9 - - [17/May/2015:10:05:03 +0200] "GET /a HTTP/1.1" 404 - "-" "a \\"quoted\\" agent"'
    send(client, source, [*lines, odd], 0)
    send(client, source, [b"", b"broken \xff line"], 1)

    def run():
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)

    report = run()
    assert [(q.name, q.rows, q.failed) for q in report.queries] == [
        ("access-json", 103, 3),
        ("status-per-hour", 100, 0),
    ]
    values = [json.loads(row["value"]) for row in records_of(client, f"{source}-json")]
    assert len(values) == 100
    assert {
        "remote_addr": "10.0.0.9", "time": "2015-05-17T08:05:03.000Z", "method": "GET", "path": "/a",
        "protocol": "HTTP/1.1", "status": 404, "body_bytes_sent": None, "referer": None,
        "user_agent": 'a "quoted" agent',
    } in values  # fmt: skip
    dead = records_of(client, f"{source}-dead")
    facts = {row["value"]: {h["key"]: h["value"].decode() for h in row["headers"]} for row in dead}
    truncated = lines[8898 - 8850]
    assert set(facts) == {b"", b"broken \xff line", truncated}
    assert facts[b"broken \xff line"] == {
        "barnabas.pipeline": source,
        "barnabas.step": "1 parse",
        "barnabas.reason": "the value is not text in the source's encoding (UTF-8 unless source.encoding names another): "
        "0x62726F6B656E20FF206C696E65",
        "barnabas.topic": source,
        "barnabas.partition": "1",
        "barnabas.offset": "1",
    }
    assert facts[truncated]["barnabas.offset"] == str(8898 - 8850)
    hours = {row["key"]: json.loads(row["value"]) for row in records_of(client, f"{source}-hours")}
    assert sum(value["requests"] for value in hours.values()) == 100
    assert hours[b"2015-05-17T08:00:00Z 404"] == {
        "hour": "2015-05-17T08:00:00.000Z", "status": 404, "requests": 1,
    }  # fmt: skip
    assert client.topic_configs(f"{source}-hours")["cleanup.policy"] == "compact"
    assert client.committed(f"{source}.access-json") == {(source, 0): 101, (source, 1): 2}

    send(client, source, [lines[0], b"broken again"], 1)
    assert [(q.rows, q.failed) for q in run().queries] == [(2, 1), (1, 0)]
    assert len(records_of(client, f"{source}-json")) == 101
    newest = {row["key"]: json.loads(row["value"]) for row in records_of(client, f"{source}-hours")}
    assert sum(value["requests"] for value in newest.values()) == 101
    assert records_of(client, f"{source}-dead")[-1]["value"] == b"broken again"


@pytest.mark.spark
def test_refusals_before_anything_runs(spark, bootstrap, client, new_topic, tmp_path):
    source, spec = access_log(new_topic)
    with pytest.raises(PipelineError, match=r"no broker answers at 127\.0\.0\.1:1: .*start a broker"):
        run_pipeline(spec, once=True, bootstrap="127.0.0.1:1", checkpoint_dir=tmp_path)
    missing = parse_spec("pipeline: x\nsource: {topic: no-such-topic}\noutputs: [{topic: y}]", "x.yaml")
    with pytest.raises(PipelineError, match=r"topic no-such-topic does not exist: create it with"):
        run_pipeline(missing, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    for steps, message in (
        ("{parse: {regex: '(?<a>['}}", r"x\.yaml:5: step 1 parse: the regular expression is wrong: Unclosed"),
        (
            "{convert: {nothing: int}}",
            r"x\.yaml:5: step 1 convert: there is no field 'nothing' at this point",
        ),
        ("{set: {a: 'nope + 1'}}", r"x\.yaml:5: step 1 set: 'nope \+ 1': .*nope"),
        ("{set: {a: '1 +'}}", r"x\.yaml:5: step 1 set: '1 \+': .*"),
    ):
        text = f"pipeline: x\nsource: {{topic: {source}}}\noutputs: [{{topic: {source}-y}}]\nsteps:\n  - {steps}\n"
        with pytest.raises(PipelineError, match=message) as caught:
            run_pipeline(parse_spec(text, "x.yaml"), once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
        assert "\n" not in str(caught.value)


def test_the_example_is_a_good_pipeline():
    spec = load_spec(EXAMPLE / "pipeline.yaml")
    assert spec.name == "access-log"
    assert [query.name for query in spec.queries()] == ["access-json", "status-per-hour"]


@pytest.mark.soak
@pytest.mark.spark
def test_duplicates_across_runs_and_open_fields(spark, bootstrap, client, new_topic, tmp_path):
    source = new_topic(1)
    spec = parse_spec(
        f"""
pipeline: {source}
source: {{topic: {source}}}
steps:
  - parse: {{json: all}}
  - deduplicate: {{by: [id], within: 1 hour}}
outputs:
  - topic: {source}-out
    key: id
  - topic: {source}-sums
    aggregate: {{by: [kind], compute: {{n: count(*), total: sum(amount::double)}}}}
""",
        "x.yaml",
    )

    def run(*values):
        send(client, source, [json.dumps(v).encode() if isinstance(v, dict) else v for v in values])
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)

    first = {"id": 1, "kind": "a", "amount": 2.5, "more": [1, {"x": None}]}
    run(first, first, b"bad")
    run(first, {"id": 2, "kind": "a", "amount": 1}, b"bad")
    out = records_of(client, f"{source}-out")
    assert [(row["key"], json.loads(row["value"])) for row in out] == [
        (b"1", first),
        (b"2", {"id": 2, "kind": "a", "amount": 1}),
    ]
    assert [row["value"] for row in records_of(client, f"{source}-dead-letters")] == [b"bad", b"bad"]
    newest = {row["key"]: json.loads(row["value"]) for row in records_of(client, f"{source}-sums")}
    assert newest == {b'{"kind":"a"}': {"kind": "a", "n": 2, "total": 3.5}}
