"""Pipeline files: what is accepted, and that each slip is told with its line and what is allowed."""

from __future__ import annotations

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.relations import SOURCE
from barnabas.pipelines.serving.preparing import new_topics

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
    assert [(step.kind, step.label, step.where) for step in spec.plan[SOURCE].operators] == [
        ("parse", "1 parse", "pipeline:4"),
        ("drop", "2 drop", "pipeline:5"),
    ]
    assert spec.dead_letters == "p-dead-letters"
    assert [(o.name, o.topic) for o in spec.outputs] == [("out", "out"), ("counts", "counts")]
    first, second = spec.queries()
    assert (bool(first.sends), bool(second.sends)) == (True, False)
    assert spec.group(second) == "p.counts"


def test_bad_records_have_a_way_out_of_pipelines_that_only_count():
    spec = parse_spec(
        "pipeline: p\nsource: {topic: a}\noutputs:\n  - topic: c\n    aggregate: {compute: {n: count(*)}}\n"
    )
    assert [(q.name, bool(q.sends), q.only_dead) for q in spec.queries()] == [
        ("c", False, False),
        ("dead-letters", True, True),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- parse:", "- prase:", "f:4: there is no step 'prase'; did you mean 'parse'? allowed: "),
        ("topic: a,", "topik: a,", "f:2: source has no entry 'topik'; did you mean 'topic'? allowed: "),
        (
            "topic: out\n",
            "delta: {path: x}\n",
            "outputs[1] has no entry 'delta'; that is a format of files: write files: {path",
        ),
        ("topic: out\n", "CSV: x\n", "write files: {path: ..., format: csv}"),
        ("pipeline: p", "pipeline: ''", "f:1: pipeline is ''; a name has up to 100 letters"),
        ("pipeline: p\n", "", "f:1: the pipeline needs an entry 'pipeline'"),
        ("topic: out", "topic: 'a b'", "f:7: outputs[1].topic is 'a b', which is not a legal topic name"),
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
        ("    key: a\n", "    key: a\n    key: b\n", "f:9: outputs[1].key appears twice"),
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


def test_what_the_environment_and_files_say(monkeypatch, tmp_path):
    monkeypatch.setenv("TOPIC", "orders")
    monkeypatch.setenv("COUNT", "3")
    (tmp_path / "secret").write_text("0815 & more\n")
    spec = parse_spec(
        "pipeline: p\nsource: {topic: '${env:TOPIC}-in', "
        f"options: {{kafka.sasl.password: '${{file:{tmp_path}/secret}}'}}}}\n"
        "outputs: [{topic: out, partitions: '${env:COUNT}', value: \"'$${env:TOPIC}'\"}]"
    )
    assert spec.source.topics == ("orders-in",)
    assert spec.source.options == {"kafka.sasl.password": "0815 & more"}
    assert (spec.outputs[0].partitions, spec.outputs[0].value.text) == (3, "'${env:TOPIC}'")
    with pytest.raises(
        PipelineError, match=r"^f:2: source.topic: the environment variable NO_SUCH is not set$"
    ):
        parse_spec("pipeline: p\nsource: {topic: '${env:NO_SUCH}'}\noutputs: [{topic: o}]", "f")
    with pytest.raises(PipelineError, match=r"^f:2: source.topic: /no/such cannot be read"):
        parse_spec("pipeline: p\nsource: {topic: '${file:/no/such}'}\noutputs: [{topic: o}]", "f")


@pytest.mark.parametrize("name", ["no", "Yes", "off", "007", "1_000", "1.10", "1e3", "0x1F", "2024-01-01"])
def test_names_are_what_was_written_whatever_yaml_reads_them_as(name):
    spec = parse_spec(
        f"pipeline: {name}\nsource: {{topic: {name}}}\nsteps: [parse: {{json: {{a: int}}}}, drop: {name}]\n"
        f"outputs: [{{topic: {name}-out, config: {{retention.ms: {name}, flag: TRUE}}}}]"
    )
    assert (spec.name, spec.source.topics, spec.plan[SOURCE].operators[1].names) == (name, (name,), (name,))
    assert spec.outputs[0].config == {"retention.ms": name, "flag": "true"}


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("split: {by: ',', into: [a], surplus: keep}", "surplus is 'keep'"),
        ("parse: {key_values: all, surplus: yes}", "surplus is 'yes'"),
        ("parse: {csv: {a: string}, empty: none}", "empty is 'none'"),
        ("parse: {json: all, surplus: drop}", "surplus does not go with json"),
        ("parse: {json: all, empty: text}", "empty does not go with json"),
    ],
)
def test_options_that_allow_a_change_are_checked(step, message):
    with pytest.raises(PipelineError, match=message):
        parse_spec(f"pipeline: p\nsource: {{topic: a}}\nsteps: [{step}]\noutputs: [{{topic: b}}]")


@pytest.mark.parametrize(
    ("start", "word", "options"),
    [
        ("latest", "latest", {}),
        ("{group: g}", "earliest", {"startingGroup": "g"}),
        ("{group: g, otherwise: latest}", "latest", {"startingGroup": "g"}),
        (
            "{at: 2026-01-31T12:00:00+01:00}",
            "latest",
            {"startingTimestamp": "1769857200000", "startingOffsetsByTimestampStrategy": "latest"},
        ),
        ("{at: 5}", "latest", {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}),
    ],
)
def test_where_a_pipeline_begins(start, word, options):
    source = parse_spec(f"pipeline: p\nsource: {{topic: a, start: {start}}}\noutputs: [{{topic: o}}]").source
    assert (source.start, dict(source.options)) == (word, options)


def test_groups_dead_letters_and_one_place_per_output():
    spec = parse_spec(
        "pipeline: p\ngroup: team.p\nsource: {topic: a}\ndead_letters: {topic: d, partitions: 2, "
        "config: {retention.ms: 1000}}\noutputs: [{topic: o}, {console: {}}]"
    )
    assert [spec.group(query) for query in spec.queries()] == ["team.p.o", "team.p.console"]
    assert next((t.name, t.configs) for t in new_topics(spec)) == ("d", {"retention.ms": "1000"})
    free = parse_spec("pipeline: p\nsource: {topic: a}\noutputs: [{topic: o}]")
    assert next((t.name, t.configs) for t in new_topics(free)) == ("p-dead-letters", {"retention.ms": "-1"})
    assert (spec.dead_letters, spec.dead_topic.partitions, spec.dead_topic.config) == (
        "d",
        2,
        {"retention.ms": "1000"},
    )
    for text, message in (
        (
            "{topic: o, console: {}}",
            "outputs[1] has topic and console: an output has one destination, so make 2 outputs",
        ),
        ("{topic: __consumer_offsets}", "which belongs to the brokers"),
    ):
        with pytest.raises(PipelineError) as caught:
            parse_spec(f"pipeline: p\nsource: {{topic: a}}\noutputs: [{text}]", "f")
        assert str(caught.value).startswith("f:3: ")
        assert message in str(caught.value)


def test_outputs_that_share_a_query():
    text = (
        "pipeline: p\nsource: {topic: a}\noutputs:\n  - topic: b\n  - {topic: c, key: x}\n"
        "  - {topic: d, steps: [explode: {field: x}]}\n  - {topic: e, trigger: 1 minute}\n  - console: {}\n"
    )
    spec = parse_spec(text)
    assert [(q.name, [o.name for o in q.outputs], bool(q.sends)) for q in spec.queries()] == [
        ("topics", ["b", "c"], True), ("d", ["d"], False), ("e", ["e"], False), ("console", ["console"], False),
    ]  # fmt: skip
    assert [query.name for query in spec.queries(["c"])] == ["b", "c", "d", "e", "console"]
    other = parse_spec(text.replace("topic: b", "topic: topics"))
    assert other.queries()[0].name == "topics-together"
