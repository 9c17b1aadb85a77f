"""Several outputs into topics out of one query: the source is read once, and each output has what it had alone."""

from __future__ import annotations

import json

import pytest

from barnabas.pipelines.compiler.queries import rows_per_batch
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

pytestmark = pytest.mark.spark

TEXT = """
pipeline: {topic}
source: {{topic: {topic}}}
steps:
  - parse: {{json: {{id: int, level: string, at: string, tags: "array<string>"}}}}
outputs:
  - {{topic: {topic}-all, key: id}}
  - topic: {topic}-errors
    steps: [filter: level = 'ERROR', set: {{level: lower(level)}}, drop: [tags, at]]
    headers: {{level: level}}
  - {{topic: {topic}-days, key: cast(at AS date), value: level, headers: {{level: level}}}}
  - topic: {topic}-tags
    steps: [explode: {{field: tags, to: tag}}, keep: [tag]]
"""
ROWS = [
    {"id": 1, "level": "INFO", "at": "2024-05-01", "tags": ["a", "b"]},
    {"id": 2, "level": "ERROR", "at": "yesterday", "tags": []},
    {"id": 3, "level": None, "at": "2024-05-03", "tags": ["c"]},
]


def test_outputs_of_one_query(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1, retention_ms="-1")
    send(client, topic, [*[json.dumps(row).encode() for row in ROWS], b"bad"])
    spec = parse_spec(TEXT.format(topic=topic))
    report = run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
    assert [(query.name, query.rows, query.failed) for query in report.queries] == [
        ("topics", 4, 2),
        (f"{topic}-errors", 1, 0),
        (f"{topic}-tags", 4, 0),
    ]

    def values(name):
        return [(record.key, json.loads(record.value)) for record in consumed(bootstrap, f"{topic}-{name}")]

    assert values("all") == [(str(row["id"]).encode(), row) for row in ROWS]
    assert values("errors") == [(None, {"id": 2, "level": "error"})]
    assert [record.headers for record in consumed(bootstrap, f"{topic}-errors")] == [{"level": b"error"}]
    days = [(record.key, record.value, record.headers) for record in consumed(bootstrap, f"{topic}-days")]
    assert days == [
        (b"2024-05-01", b"INFO", {"level": b"INFO"}),
        (b"2024-05-03", None, {"level": None}),
    ]
    assert [row["tag"] for _, row in values("tags")] == ["a", "b", None, "c"]
    dead = consumed(bootstrap, f"{topic}-dead-letters")
    assert sorted(record.header("reason") for record in dead) == [
        "cannot compute cast(at AS date) with at = yesterday",
        "not a JSON object: bad",
    ]
    assert client.committed(f"{topic}.topics") == {(topic, 0): 4}


def test_an_output_that_comes_later_begins_at_the_beginning(spark, bootstrap, client, new_topic, tmp_path):
    topic = new_topic(1, retention_ms="-1")
    text = f"pipeline: {topic}\nsource: {{topic: {topic}}}\noutputs:\n  - topic: {topic}-a\n  - topic: {topic}-b\n"

    def run(text):
        return run_pipeline(parse_spec(text), once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)

    def values(name):
        return [record.value for record in consumed(bootstrap, f"{topic}-{name}")]

    send(client, topic, [b"1"])
    run(text.replace(f"  - topic: {topic}-b\n", ""))
    assert [query.name for query in run(text).queries] == [f"{topic}-a", f"{topic}-b"]
    assert (values("a"), values("b")) == ([b"1"], [b"1"])
    both = text.replace(f"pipeline: {topic}\n", f"pipeline: {topic}-2\n")
    assert [query.name for query in run(both).queries] == ["topics"]
    send(client, topic, [b"2"])
    later = run(f"{both}  - topic: {topic}-c\n")
    assert [query.name for query in later.queries] == ["topics", f"{topic}-c"]
    assert values("a") == [b"1", b"1", b"2"]
    assert values("c") == [b"1", b"2"]


def test_rows_in_memory_are_fewer_where_records_are_large(spark, new_topic, bootstrap):
    def rows(topic):
        return rows_per_batch(
            parse_spec(f"pipeline: p\nsource: {{topic: {topic}}}\noutputs: [{{topic: o}}]"), bootstrap
        )

    assert rows(new_topic(1)) == 511
    assert rows(new_topic(1, max_message_bytes="10000000")) == 64
