"""A pipeline in Python is the same as one in a file."""

from __future__ import annotations

import json

import pytest

from barnabas.pipelines import Pipeline
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.kinds.targets import TARGETS
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.relations import SOURCE

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
    assert [step.label for step in built.plan[SOURCE].operators] == ["1 parse", "2 split", "3 keep", "4 drop"]
    assert built == filed
    assert [operator.id for operator in built.plan[SOURCE].operators] == [
        operator.id for operator in filed.plan[SOURCE].operators
    ]
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
    outputs = {
        "files": {"path": "/tmp/x", "format": "csv", "header": False},
        "database": {"url": "sqlite://", "table": "t", "key": ["id"]},
        "elasticsearch": {"url": "http://h:9200", "index": "i", "id": "a"},
        "clickhouse": {"url": "http://h:8123", "table": "t"},
        "connector": {"connector.class": "FileStreamSink", "file": "/tmp/x"},
        "console": {"rows": 3},
        "view": {"key": ["a"], "keep": "7 days"},
    }
    assert set(outputs) == set(TARGETS)
    for kind, options in outputs.items():
        beside = {"name": "n", "trigger": "5 seconds", "steps": [{"drop": "a"}]}
        built = Pipeline("p", group="team.p").source("a")
        spec = getattr(built, f"to_{kind}")(**options, **beside).spec()
        document = {
            "pipeline": "p", "group": "team.p", "source": {"topics": ["a"]}, "outputs": [{kind: options, **beside}]
        }  # fmt: skip
        filed = parse_spec(json.dumps(document))
        assert spec.outputs[0].target == filed.outputs[0].target
        assert (spec.outputs[0].name, spec.outputs[0].trigger) == ("n", "5 seconds")
        assert spec.group(spec.queries()[0]) == filed.group(filed.queries()[0])
        assert [s.label for s in spec.outputs[0].operators] == ["1 drop"]
