"""Pipeline files: what is accepted, and that each slip is told with its line and what is allowed."""

from __future__ import annotations

import pytest

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.spec import parse_spec

GOOD = """\
pipeline: p
source: {topic: a, options: {maxOffsetsPerTrigger: 5, failOnDataLoss: false}}
steps:
  - parse: {json: {a: int, b: string}}
  - drop: b
outputs:
  - topic: out
    key: a
    config: {retention.ms: 1000}
  - name: counts
    topic: counts
    aggregate: {by: [a], compute: {n: count(*)}}
"""


def test_a_good_file():
    spec = parse_spec(GOOD)
    assert spec.source.topics == ("a",)
    assert spec.source.options == {"maxOffsetsPerTrigger": "5", "failOnDataLoss": "false"}
    assert [(step.kind, step.label, step.where) for step in spec.steps] == [
        ("parse", "1 parse", "pipeline:4"),
        ("drop", "2 drop", "pipeline:5"),
    ]
    assert spec.dead_letters == "p-dead-letters"
    assert [(o.name, o.topic) for o in spec.outputs] == [("out", "out"), ("counts", "counts")]
    first, second = spec.queries()
    assert (first.sends_common, second.sends_common) == (True, False)
    assert spec.group(second) == "p.counts"


def test_bad_records_have_a_way_out_of_pipelines_that_only_count():
    spec = parse_spec(
        "pipeline: p\nsource: {topic: a}\noutputs:\n  - topic: c\n    aggregate: {compute: {n: count(*)}}\n"
    )
    assert [(q.name, q.sends_common, q.only_dead) for q in spec.queries()] == [
        ("c", False, False),
        ("dead-letters", True, True),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- parse:", "- prase:", "f:4: there is no step 'prase'; did you mean 'parse'? allowed: "),
        ("topic: a,", "topik: a,", "f:2: source has no entry 'topik'; did you mean 'topic'? allowed: "),
        ("pipeline: p", "pipeline: ''", "f:1: pipeline is ''; a name is letters"),
        ("pipeline: p\n", "", "f:1: the pipeline needs an entry 'pipeline'"),
        ("topic: out", "topic: 'a b'", "f:7: outputs[1].topic is 'a b', which is no legal topic name"),
        ("name: counts", "name: out", "f:10: two outputs are called 'out'"),
        ("  - drop: b", "  - drop:", "f:5: drop needs the names of fields"),
        ("{json: {a: int, b: string}}", "{}", "f:4: parse needs one of pattern, regex"),
        ("{json: {a: int, b: string}}", "{regex: 'a(b)'}", "f:4: regex has no named group"),
        ("{json: {a: int, b: string}}", "{pattern: comon-log}", "did you mean 'common-log'?"),
        (
            "aggregate: {by: [a],",
            "aggregate: {late: soon,",
            "f:12: outputs[2].aggregate.late is 'soon', not a duration like",
        ),
        ("    key: a\n", "    key: a\n    key: b\n", "f:9: outputs[1].key stands there twice"),
        ("  - drop: b", "  - drop: [b", "f:"),
        ("outputs:", "outputs: 5\nx:", "f:"),
        ("  - drop: b", "  - {drop: b, keep: a}", "f:5: steps[2] has 2 names; each step is one name"),
    ],
)
def test_slips_are_told_with_their_line(old, new, message):
    assert old in GOOD
    with pytest.raises(PipelineError) as caught:
        parse_spec(GOOD.replace(old, new, 1), "f")
    text = str(caught.value)
    assert "\n" not in text
    assert message in text or text.startswith(message)
