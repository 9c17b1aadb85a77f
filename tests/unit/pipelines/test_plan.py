"""Relations of a pipeline file: how they hang together, and what is refused with its line."""

from __future__ import annotations

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.plan.operators import Deduplicate, Filter, ParseJson
from barnabas.pipelines.plan.relations import Join, Scan, Union

TIMED = "steps: [parse: {json: {id: int, at: timestamp}}], time: {of: at, late: 1 minute}"
SOURCES = f"""pipeline: p
sources:
  a: {{topic: a, {TIMED}}}
  b: {{topics: [b, c], {TIMED}}}
  t: {{table: customers, steps: [parse: {{json: {{id: int}}}}]}}
"""


def plan_of(text):
    return parse_spec(SOURCES + text, "p.yaml")


def test_relations_stand_after_those_they_read():
    spec = plan_of(
        "relations:\n"
        "  last: {from: both, steps: [filter: id > 0, deduplicate: {by: [id], within: 1 hour}]}\n"
        "  both: {union: [a, pairs]}\n"
        "  pairs: {join: {left: b, right: t, by: id}}\n"
        "outputs: [{topic: o}, {topic: q, from: both}, {topic: r, from: both}]\n"
    )
    plan = spec.plan
    assert list(plan.relations) == ["a", "b", "t", "pairs", "both", "last"]
    kinds = [type(relation.origin) for relation in plan.relations.values()]
    assert kinds[:5] == [Scan, Scan, Scan, Join, Union]
    assert [type(o) for o in plan["last"].operators] == [Filter, Deduplicate]
    assert type(plan["a"].operators[0]) is ParseJson
    assert plan.carried("last") == {"last", "both", "a", "pairs"}
    assert plan["pairs"].origin == Join("b", "t", {"id": "id"})
    queries = [(q.name, sorted(q.sends), [o.name for o in q.outputs]) for q in spec.queries()]
    assert queries == [
        ("o", ["a", "both", "last", "pairs"], ["o"]),
        ("topics", [], ["q", "r"]),
        ("t.dead-letters", ["t"], ["dead-letters"]),
        ("b.dead-letters", ["b"], ["dead-letters"]),
    ]
    assert [step.label for step in plan["last"].operators] == ["last: 1 filter", "last: 2 deduplicate"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("relations:\n  u: {union: [a, x]}", r"p\.yaml:7: there is no relation 'x'"),
        (
            "relations:\n  u: {from: v}\n  v: {from: u}",
            r"p\.yaml:7: relations read each other in a circle: u -> v -> u",
        ),
        (
            "relations:\n  j: {join: {left: a, right: b, by: id}}",
            r"p\.yaml:7: j: a join of two streams needs within",
        ),
        (
            "relations:\n  j: {join: {left: a, right: n, by: id, within: 1 hour}}\n  n: {from: b2}\n",
            r"there is no relation 'b2'",
        ),
        (
            "relations:\n  j: {join: {left: t, right: a, by: id}}",
            r"p\.yaml:7: j: t is a table: name the stream as left",
        ),
        (
            "relations:\n  j: {join: {left: a, right: t, by: id, within: 1 hour}}",
            r"within is for two streams",
        ),
        (
            "relations:\n  j: {join: {left: a, right: t, by: id, kind: full}}",
            r"a join with a table is inner or left",
        ),
        ("relations:\n  u: {union: [a, t]}", r"t is a table, and a union is made of streams"),
        (
            "relations:\n  g: {from: a, aggregate: {compute: {n: count(*)}, emit: final}}",
            r"p\.yaml:7: g: emit: final needs a window",
        ),
        (
            "relations:\n  g: {from: t, aggregate: {compute: {n: count(*)}, emit: final}}",
            r"a table changes for ever: its aggregate needs emit: changes",
        ),
        (
            "relations:\n  g: {from: t, aggregate: {by: [id], compute: {n: stddev(id)}}}",
            r"p\.yaml:7: g: n: 'stddev\(id\)': stddev cannot be computed of rows that change; allowed: count, sum",
        ),
        (
            "relations:\n  g: {from: t, aggregate: {window: {every: 1 hour}, compute: {n: count(*)}}}",
            r"g: the window needs `of`",
        ),
        (
            "relations:\n  g: {from: a, aggregate: {window: {every: 1 hour}, late: 1 hour, compute: {n: count(*)}, "
            "emit: changes}}",
            r"late needs emit: final",
        ),
        ("relations:\n  a: {from: b}", r"p\.yaml:7: there is also a source 'a'"),
        ("relations:\n  u: {union: [a]}", r"needs two relations or more"),
        (
            "relations:\n  u: {from: a, join: {left: a, right: b, by: id}}",
            r"p\.yaml:7: .*only one of them is allowed",
        ),
        ("steps: [drop: x]", r"p\.yaml:6: steps cannot be combined with sources"),
        (
            "relations:\n  u: {union: [a, b]}\n  v: {union: [a, b]}",
            r"needs from, the relation whose rows it writes",
        ),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(PipelineError, match=message):
        plan_of(f"{text}\noutputs:\n  - topic: o\n")


def test_outputs_that_are_refused():
    join = "relations:\n  j: {join: {left: a, right: b, by: id, within: 1 hour, prefix: b_}}\noutputs:\n"
    for output, message in (
        ("{topic: o, from: k}", r"p\.yaml:9: there is no relation 'k'"),
        (
            "{topic: o, from: t, aggregate: {compute: {n: id}}}",
            r"p\.yaml:9: o\.aggregate: n: 'id': it calls no aggregate function",
        ),
        ("{topic: o, from: a}", r"p\.yaml:5: nothing reads t: name it"),
        (
            "{topic: o, from: j, aggregate: {compute: {n: count(*)}}}",
            r"p\.yaml:9: j joins streams .* emit: final",
        ),
    ):
        with pytest.raises(PipelineError, match=message):
            plan_of(f"{join}  - {output}\n")
    alone = "pipeline: p\nsource: {topic: a}\noutputs:\n  - topic: o\n    aggregate: {compute: {n: count(*)}, window: "
    with pytest.raises(PipelineError, match=r"pipeline:5: the window needs `of`"):
        parse_spec(alone + "{every: 1 hour}}")
    with pytest.raises(PipelineError, match=r"pipeline:5: emit: final needs late"):
        parse_spec(alone + "{of: at, every: 1 hour}, emit: final}")
    more = "relations:\n  k: {join: {left: j, right: t, by: id}}\n"
    with pytest.raises(PipelineError, match=r"read topic b, which it writes itself"):
        plan_of(join.replace("relations:\n", more) + "  - {topic: b, from: k}")


def test_steps_that_cannot_fail_need_no_query_for_dead_letters():
    text = "relations:\n  j: {join: {left: a, right: b, by: id, within: 1 hour, prefix: b_}, steps: [drop: b_id]}\n"
    hours = "  h: {from: j, aggregate: {window: {every: 1 hour}, compute: {n: count(*)}}}\n"
    spec = plan_of(
        text.replace("  j:", "  k: {join: {left: j, right: t, by: id}}\n  j:")
        + hours
        + "outputs: [{topic: o, from: h}, {topic: q, from: k}]\n"
    )
    names = [query.name for query in spec.queries()]
    assert names == ["o", "q", "t.dead-letters", "b.dead-letters", "a.dead-letters"]
    assert spec.sources == (
        spec.plan["a"].origin.source,
        spec.plan["b"].origin.source,
        spec.plan["t"].origin.source,
    )
    assert [source.topics for source in spec.topics_read] == [("a",), ("b", "c"), ("customers",)]


TOTALS = "  totals: {from: a, aggregate: {by: [id], compute: {n: count(*)}}, changelog: totals}\n"


def test_all_others_read_a_table_from_its_changelog():
    spec = plan_of(
        f"relations:\n{TOTALS}"
        "  more: {from: totals, steps: [filter: n > 1]}\n"
        "outputs: [{topic: o, from: more}, {topic: p, from: b}, {topic: q, from: t}]\n"
    )
    seen = {query.name: list(spec.plan_of(query).read_by(query.relation)) for query in spec.queries()}
    assert (seen["o"], seen["totals.changelog"]) == (["totals"], ["a"])
    [own] = [output for output in spec.outputs if output.keeps]
    assert (own.topic, own.config["cleanup.policy"]) == ("totals", "compact")


@pytest.mark.parametrize(
    ("relations", "reason"),
    [
        ("  x: {from: t, changelog: c}\n", "p.yaml:7: x: a changelog is for an aggregate that is a table"),
        (
            "  x: {from: a, steps: [deduplicate: {by: [id], within: 1 hour}], "
            "aggregate: {by: [id], compute: {n: count(*)}}, changelog: c}\n",
            "x keeps state for step x: 1 deduplicate",
        ),
        (
            "  y: {from: a, aggregate: {by: [id], compute: {n: count(*)}}}\n"
            "  x: {from: y, aggregate: {by: [n], compute: {m: count(*)}}, changelog: c}\n",
            "y, which it is made of, is an aggregate that cannot be rebuilt: give it a changelog, too",
        ),
    ],
)
def test_a_changelog_from_which_nothing_could_be_rebuilt_is_refused(relations, reason):
    with pytest.raises(PipelineError) as caught:
        plan_of(f"relations:\n{relations}outputs: [{{topic: o, from: x}}, {{topic: q, from: b}}]\n")
    assert reason in str(caught.value)
