"""What steps do to records, shown; and dead letters put through again."""

from __future__ import annotations

import json

import pytest

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.preview import preview, render
from barnabas.pipelines.replay import replay
from barnabas.pipelines.run import run_pipeline
from barnabas.pipelines.spec import parse_spec
from tests.pipelines.conftest import records_of, send

pytestmark = pytest.mark.spark

TEXT = """
pipeline: {source}
source: {{topic: {source}}}
steps:
  - parse: {{json: all}}
  - convert: {{n: int}}
  - filter: n > 0
  - drop: x
outputs:
  - topic: {source}-out
    steps: [upper: name]
"""


@pytest.fixture
def made(new_topic):
    source = new_topic(2)
    return source, parse_spec(TEXT.format(source=source), "p.yaml")


def test_preview_shows_each_step(spark, bootstrap, client, made):
    source, spec = made
    send(
        client, source, [b'{"n": "1", "x": 0}', b'{"n": 0}', b'{"n": "y"}', b"\xff", b'{"n": 2, "name": "a"}']
    )
    found = preview(spark, spec, bootstrap, count=10)
    told = [[(s.step, s.rows, s.reason) for s in record.steps] for record in found]
    assert told[0] == [
        ("1 parse", [{"n": "1", "x": 0}], None),
        ("2 convert", [{"n": 1, "x": 0}], None),
        ("3 filter", [{"n": 1, "x": 0}], None),
        ("4 drop", [{"n": 1}], None),
        ("1 upper", [{"n": 1, "name": None}], None),
    ]
    assert told[1][-1] == ("3 filter", [], None)
    assert told[2][-1] == ("2 convert", [], "n is y, not int")
    assert told[3] == [("1 parse", [], "not a JSON object: \ufffd")]
    assert told[4][-1][1] == [{"n": 2, "name": "A"}]
    text = render(found)
    assert "  2 convert\n    cannot be handled: n is y, not int\n    -> dead letters" in text
    assert '    + name = "A"' in text
    assert "    - x" in text
    assert [r.offset for r in preview(spark, spec, bootstrap, count=2)] == [3, 4]
    assert [r.offset for r in preview(spark, spec, bootstrap, count=2, oldest=True)] == [0, 1]
    with pytest.raises(PipelineError, match="there is no output 'x'"):
        preview(spark, spec, bootstrap, output="x")


def test_replay_puts_repaired_records_through(spark, bootstrap, client, made, tmp_path):
    source, spec = made
    dead = f"{source}-dead-letters"

    def run():
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)

    send(client, source, [b'{"n": 1}', b'{"n": "2x"}', b"lost", b'{"n": "3x"}'], 1, key=b"k")
    assert run().failed == 3
    trial = replay(spark, spec, bootstrap, dry_run=True)
    assert (trial.found, trial.replayed, trial.still_bad) == (
        3, 0, {"n is 2x, not int": 1, "n is 3x, not int": 1, "not a JSON object: lost": 1},
    )  # fmt: skip
    report = replay(
        spark,
        spec,
        bootstrap,
        where="value LIKE '%2x%' OR value = 'lost'",
        repair="replace(value, '2x', '2')",
    )
    assert (report.found, report.replayed, report.left) == (3, 1, 1)
    assert report.still_bad == {"not a JSON object: lost": 1}
    back = records_of(client, source)[-1]
    assert (back["key"], back["value"]) == (b"k", b'{"n": "2"}')
    assert [(h["key"], h["value"]) for h in back["headers"]] == [("barnabas.replayed", b"1")]
    moved = records_of(client, dead)[3:]
    told = {
        r["value"]: {h["key"].removeprefix("barnabas."): h["value"].decode() for h in r["headers"]}
        for r in moved
    }
    assert told == {
        b"lost": {
            "pipeline": source, "step": "1 parse", "reason": "not a JSON object: lost", "topic": source,
            "partition": "1", "offset": "2", "attempts": "1",
        },
        b'{"n": "3x"}': {
            "pipeline": source, "step": "2 convert", "reason": "n is 3x, not int", "topic": source,
            "partition": "1", "offset": "3", "attempts": "0",
        },
    }  # fmt: skip
    assert run().failed == 0
    assert [json.loads(r["value"])["n"] for r in records_of(client, f"{source}-out")] == [1, 2]
    again = replay(spark, spec, bootstrap, where="attempts = 0", repair="'{\"n\": 3}'")
    assert (again.found, again.replayed) == (2, 1)
    with pytest.raises(PipelineError, match="'nope = 1'"):
        replay(spark, spec, bootstrap, where="nope = 1")
