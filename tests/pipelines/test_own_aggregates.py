"""Aggregates by offset, the largest values, and lists with limits, in small micro-batches, against a plain model."""

from __future__ import annotations

import json
import random

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PIPELINE = """
pipeline: {t}
source: {{topic: {t}, options: {{maxOffsetsPerTrigger: 25}}}}
steps: [parse: {{json: {{k: string, x: int, name: string}}}}]
outputs:
  - topic: {t}-out
    aggregate:
      by: [k]
      compute:
        n: count(*)
        first: earliest(x)
        last: latest(name)
        first_three: earliest(name, 3)
        last_three: latest(x, 3)
        top: top_k(x, 3)
        top_names: top_k_distinct(name, 2)
        some: collect_list(x, 4)
"""


def wanted_of(rows: list[dict]) -> dict:
    numbers = [row["x"] for row in rows if row["x"] is not None]
    names = [row["name"] for row in rows]
    return {
        "n": len(rows),
        "first": numbers[0],
        "last": names[-1],
        "first_three": names[:3],
        "last_three": numbers[-3:],
        "top": sorted(numbers, reverse=True)[:3],
        "top_names": sorted(set(names), reverse=True)[:2],
        "some": numbers[:4],
    }


def test_aggregates_against_a_model(spark, bootstrap, client, new_topic, tmp_path):
    t = new_topic()
    spec = parse_spec(PIPELINE.format(t=t))
    chance = random.Random(1)
    rows: list[dict] = []
    for count in (40, 40):
        fresh = [
            {
                "k": chance.choice("ab"),
                "x": chance.choice((None, *range(20))),
                "name": chance.choice("pqrstu"),
            }
            for _ in range(count)
        ]
        rows += fresh
        send(client, t, [json.dumps(row).encode() for row in fresh])
        run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)
        newest = {
            value["k"]: value
            for record in consumed(bootstrap, f"{t}-out")
            for value in [json.loads(record.value)]
        }
        for key in "ab":
            assert newest[key] == {"k": key, **wanted_of([row for row in rows if row["k"] == key])}


def test_a_wrong_call_is_refused_with_its_line(spark, tmp_path):
    from barnabas.pipelines.compiler.checking import check_plan

    spec = parse_spec(PIPELINE.format(t="t").replace("top_k(x, 3)", "top_k(x)"))
    with pytest.raises(
        PipelineError, match=r"pipeline:15: .*top_k\(x\) has to be written like top_k\(value, 3\)"
    ):
        check_plan(spark, spec)
