"""A pipeline in Python is the same as one in a file."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from barnabas.pipelines import Pipeline
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.plan.errors import PipelineError

FILE = """
pipeline: access
source: {topics: [a, b], start: latest}
dead_letters: dead
steps:
  - parse: {json: {status: int, from: string}}
  - split: {from: from, by: ",", into: [x, _]}
  - keep: [status, x]
  - drop: x
outputs:
  - topic: out
    key: status
    route: {by: status, topics: {"404": missing}}
"""


def test_the_same_pipeline():
    built = (
        Pipeline("access")
        .source("a", "b", start="latest")
        .dead_letters("dead")
        .parse(json={"status": "int", "from": "string"})
        .split(from_="from", by=",", into=["x", "_"])
        .keep("status", "x")
        .drop("x")
        .to_topic("out", key="status", route={"by": "status", "topics": {404: "missing"}})
        .spec()
    )
    filed = parse_spec(FILE)
    assert [(s.kind, s.label) for s in built.steps] == [(s.kind, s.label) for s in filed.steps]
    assert [s.options for s in built.steps] == [s.options for s in filed.steps]
    assert replace(built, steps=(), where="") == replace(filed, steps=(), where="")
    assert built.outputs[0].topics() == ("out", "missing")


def test_slips():
    start = Pipeline("p").source("a")
    with pytest.raises(AttributeError, match="no step 'prase'; did you mean 'parse'"):
        start.prase()
    with pytest.raises(PipelineError, match=r"Pipeline\('p'\): parse needs one of"):
        start.parse().to_topic("x").spec()
    with pytest.raises(PipelineError, match="comes after an output"):
        start.to_topic("x").drop("a")
    with pytest.raises(PipelineError, match="outputs is empty"):
        start.spec()


def test_python_reaches_every_output_of_files():
    given = {
        "files": {"path": "/tmp/x", "format": "csv", "header": False},
        "database": {"url": "sqlite://", "table": "t", "key": ["id"]},
        "elasticsearch": {"url": "http://h:9200", "index": "i", "id": "a"},
        "clickhouse": {"url": "http://h:8123", "table": "t"},
        "console": {"rows": 3},
    }
    assert set(given) == set(TARGETS)
    for kind, options in given.items():
        beside = {"name": "n", "trigger": "5 seconds", "steps": [{"drop": "a"}]}
        built = Pipeline("p", group="team.p").source("a")
        made = getattr(built, f"to_{kind}")(**options, **beside).spec()
        document = {
            "pipeline": "p", "group": "team.p", "source": {"topics": ["a"]}, "outputs": [{kind: options, **beside}]
        }  # fmt: skip
        filed = parse_spec(json.dumps(document))
        assert made.outputs[0].target == filed.outputs[0].target
        assert (made.outputs[0].name, made.outputs[0].trigger) == ("n", "5 seconds")
        assert made.group(made.queries()[0]) == filed.group(filed.queries()[0])
        assert [s.label for s in made.outputs[0].steps] == ["1 drop"]
