"""What steps do to records, shown; and dead letters put through again."""

from __future__ import annotations

import json
import sqlite3

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.preview import preview, render
from barnabas.pipelines.serving.replay import replay
from barnabas.pipelines.serving.run import run_pipeline
from tests.pipelines.conftest import records_of, send
from tests.pipelines.readers import consumed

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
    previews = preview(spark, spec, bootstrap, count=10)
    steps = [[(s.step, s.rows, s.reason) for s in record.steps] for record in previews]
    assert steps[0] == [
        ("1 parse", [{"n": "1", "x": 0}], None),
        ("2 convert", [{"n": 1, "x": 0}], None),
        ("3 filter", [{"n": 1, "x": 0}], None),
        ("4 drop", [{"n": 1}], None),
        ("1 upper", [{"n": 1, "name": None}], None),
    ]
    assert steps[1][-1] == ("3 filter", [], None)
    assert steps[2][-1] == ("2 convert", [], "n is y, not int")
    ((step, rows, reason),) = steps[3]
    assert (step, rows) == ("1 parse", [])
    assert reason.startswith("the value is not text in the source's encoding")
    assert reason.endswith(": 0xFF")
    (left,) = previews[0].leaves
    assert (left.topic, left.key, json.loads(left.value)) == (f"{source}-out", None, {"n": 1, "name": None})
    (letter,) = previews[2].leaves
    assert (letter.topic, letter.headers["barnabas.step"]) == (f"{source}-dead-letters", "2 convert")
    assert previews[1].leaves == []
    assert steps[4][-1][1] == [{"n": 2, "name": "A"}]
    text = render(previews)
    assert "  2 convert\n    cannot be handled: n is y, not int\n    -> dead letters" in text
    assert '    + name = "A"' in text
    assert "    - x" in text
    bare = parse_spec(f"pipeline: {source}\nsource: {{topic: {source}}}\noutputs: [console: {{}}]", "p.yaml")
    assert [r.offset for r in preview(spark, bare, bootstrap, count=2)] == [3, 4]
    assert [r.offset for r in preview(spark, bare, bootstrap, count=2, oldest=True)] == [0, 1]
    with pytest.raises(PipelineError, match="there is no output 'x'"):
        preview(spark, spec, bootstrap, output="x")


def told_of(record):
    return {
        h["key"].removeprefix("barnabas."): h["value"].decode()
        for h in record["headers"]
        if h["key"].startswith("barnabas.")
    }


def test_replay_puts_repaired_records_through(spark, bootstrap, client, made, tmp_path):
    source, spec = made
    dead = f"{source}-dead-letters"

    def run():
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path)

    sent = [b'{"n": 1}', b'{"n": "2x"}', b"lost", b'{"n": "3x"}']
    send(client, source, sent, 1, key=b"k")
    assert run().failed == 3
    trial = replay(spark, spec, bootstrap, dry_run=True)
    assert (trial.found, trial.chosen, trial.replayed, trial.still_bad) == (
        3, 3, 0, {"n is 2x, not int": 1, "n is 3x, not int": 1, "not a JSON object: lost": 1},
    )  # fmt: skip
    assert len(records_of(client, dead)) == 3
    report = replay(
        spark,
        spec,
        bootstrap,
        where="value LIKE '%2x%' OR value = 'lost'",
        repair="replace(value, '2x', '2')",
    )
    assert (report.found, report.chosen, report.replayed, report.left) == (3, 2, 1, 1)
    assert report.still_bad == {"not a JSON object: lost": 1}
    assert report.outputs == {f"{source}-out": 2}
    # Not through the source again; what failed again is at the end, and says so; the third letter stays where it is.
    assert len(records_of(client, source)) == len(sent)
    back = consumed(bootstrap, f"{source}-out")[-1]
    assert (back.key, json.loads(back.value), back.headers) == (
        b"k", {"n": 2, "name": None}, {"barnabas.replayed": b"1"},
    )  # fmt: skip
    moved = records_of(client, dead)[3:]
    assert [(r["key"], r["value"], told_of(r)) for r in moved] == [
        (b"k", b"lost", {
            "replayed": "1", "pipeline": source, "step": "1 parse", "reason": "not a JSON object: lost",
            "topic": source, "partition": "1", "offset": "2",
        })
    ]  # fmt: skip
    again = replay(spark, spec, bootstrap, where="attempts = 0", repair="'{\"n\": 3}'")
    assert (again.found, again.chosen, again.replayed) == (2, 1, 1)
    third = replay(spark, spec, bootstrap)
    assert (third.found, third.replayed, third.still_bad) == (1, 0, {"not a JSON object: lost": 1})
    assert told_of(records_of(client, dead)[-1])["replayed"] == "2"
    assert [json.loads(r.value)["n"] for r in consumed(bootstrap, f"{source}-out")] == [1, 2, 3]
    with pytest.raises(PipelineError, match=r"'nope = 1'.*there is no field 'nope'"):
        replay(spark, spec, bootstrap, where="nope = 1")
    with pytest.raises(PipelineError, match="not true or false"):
        replay(spark, spec, bootstrap, where="attempts + 1")
    broken = replay(
        spark,
        spec,
        bootstrap,
        where="value = 'lost'",
        repair="cast(value AS int)",
        from_beginning=True,
        dry_run=True,
    )
    assert (broken.found, broken.still_bad) == (5, {"cannot compute cast(value AS int) with value = lost": 3})


@pytest.mark.soak
def test_a_letter_goes_to_the_output_that_failed_alone(spark, bootstrap, client, new_topic, tmp_path):
    source, out = new_topic(1), f"replay-{new_topic(1)}"
    database = tmp_path / "out.db"
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER CHECK (n < 100))")
    connection.commit()
    spec = parse_spec(
        f"""
pipeline: {out}
source: {{topic: {source}}}
steps: [parse: {{json: {{id: int, n: string}}}}]
outputs:
  - topic: {out}-plain
  - {{topic: {out}-keyed, key: "cast(n AS int)", value: "string(id)"}}
  - {{name: rows, steps: [convert: {{n: int}}], database: {{url: "sqlite:///{database}", table: t, key: id}}}}
  - name: sums
    topic: {out}-sums
    steps: [convert: {{n: int}}]
    aggregate: {{compute: {{total: sum(n)}}}}
    key: "'all'"
    value: "string(total)"
"""
    )

    def run():
        return run_pipeline(spec, once=True, bootstrap=bootstrap, checkpoint_dir=tmp_path / "checkpoints")

    send(client, source, [b'{"id": 1, "n": "1"}', b'{"id": 2, "n": "2x"}', b'{"id": 3, "n": "300"}', b"{"])
    run()
    letters = {(r.header("output") if "barnabas.output" in r.headers else None, r.value) for r in consumed(
        bootstrap, f"{out}-dead-letters")}  # fmt: skip
    assert letters == {
        (f"{out}-keyed", b'{"id": 2, "n": "2x"}'), ("rows", b'{"id": 2, "n": "2x"}'),
        ("sums", b'{"id": 2, "n": "2x"}'), ("rows", b'{"id": 3, "n": "300"}'), (None, b"{"),
    }  # fmt: skip

    first = replay(spark, spec, bootstrap, where="value LIKE '%2x%'", repair="replace(value, '2x', '2')")
    assert (first.found, first.chosen, first.replayed, first.still_bad) == (5, 3, 3, {})
    assert first.outputs == {f"{out}-keyed": 1, "rows": 1}
    assert first.waiting == {"sums": 1}
    # The target refuses it again: counted, whoever found it out.
    second = replay(spark, spec, bootstrap, where="output = 'rows'", repair="replace(value, '300', '400')")
    assert (second.found, second.chosen, second.replayed, sum(second.still_bad.values())) == (2, 1, 0, 1)
    third = replay(spark, spec, bootstrap, where="output = 'rows'", repair="replace(value, '400', '4')")
    assert (third.found, third.replayed) == (2, 1)
    everywhere = replay(spark, spec, bootstrap, repair='\'{"id": 5, "n": "5"}\'')
    assert (everywhere.found, everywhere.replayed, everywhere.waiting) == (1, 1, {"sums": 1})
    run()
    assert sorted(json.loads(r.value)["id"] for r in consumed(bootstrap, f"{out}-plain")) == [1, 2, 3, 5]
    keyed = sorted((r.key, r.value) for r in consumed(bootstrap, f"{out}-keyed"))
    assert keyed == [(b"1", b"1"), (b"2", b"2"), (b"300", b"3"), (b"5", b"5")]
    assert connection.execute("SELECT id, n FROM t ORDER BY id").fetchall() == [
        (1, 1),
        (2, 2),
        (3, 4),
        (5, 5),
    ]
    assert consumed(bootstrap, f"{out}-sums")[-1].value == b"308"
    assert replay(spark, spec, bootstrap).found == 0
    connection.close()
