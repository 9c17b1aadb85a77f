"""Aggregate expressions of tables are divided into calls and the rest."""

from __future__ import annotations

import pytest

from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.aggregates import divided
from barnabas.pipelines.plan.schema import RowKind


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [
        ("count(*)", [("count", "true")], "`_result0`"),
        ("SUM(a) / count( * )", [("sum", "a"), ("count", "true")], "`_result0` / `_result1`"),
        ("round(avg(x * (1 + 2)), 2)", [("avg", "x * (1 + 2)")], "round(`_result0`, 2)"),
        ("count(distinct name)", [("distinct", "name")], "`_result0`"),
        ("concat('sum(a)', max(`b)`))", [("max", "`b)`")], "concat('sum(a)', `_result0`)"),
    ],
)
def test_calls_and_rest(text, calls, rest):
    parts = divided(text)
    assert [(call.function, call.value) for call in parts.calls] == calls
    assert parts.rest == rest


def test_conditions_and_orders():
    (call,) = divided("max_by(name, at) filter (where b > 'x(')").calls
    assert (call.function, call.value, call.order, call.only) == ("max", "name", "at", "b > 'x('")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a + 1", "it calls no aggregate function"),
        ("stddev(a)", "stddev cannot be computed of rows that change"),
        ("sum(count(a))", "count is inside sum"),
        ("sum(distinct a)", "sum cannot be distinct here"),
        ("sum(a) over (partition by b)", "a window function"),
        ("sum(a, b)", "sum needs 1 argument"),
        ("max_by(a)", "max_by needs 2 arguments"),
        ("sum(a", "a bracket is not closed"),
    ],
)
def test_what_cannot_be_computed(text, reason):
    with pytest.raises(ValueError, match=reason):
        divided(text)


def test_an_aggregate_is_a_table_unless_its_windows_end():
    spec = parse_spec(
        """
pipeline: p
sources:
  a: {topic: a, steps: [parse: {json: {id: int, at: timestamp}}], time: {of: at, late: 1 minute}}
  t: {table: t, steps: [parse: {json: {id: int, at: timestamp}}]}
relations:
  of_stream: {from: a, aggregate: {by: [id], compute: {n: count(*)}}}
  hours: {from: a, aggregate: {window: {every: 1 hour}, by: [id], compute: {n: count(*)}}}
  hours_now: {from: a, aggregate: {window: {every: 1 hour}, by: [id], compute: {n: count(*)}, emit: changes}}
  of_table: {from: t, aggregate: {window: {of: at, every: 1 hour}, by: [id], compute: {n: count(*)}}}
  again: {from: of_table, aggregate: {by: [n], compute: {ids: collect_list(id)}}}
outputs:
  - {from: of_stream, topic: o1}
  - {from: hours, topic: o2}
  - {from: hours_now, topic: o3}
  - {from: again, topic: o4}
  - {from: again, topic: o5, aggregate: {compute: {n: count(*)}}}
""",
        "p.yaml",
    )
    kinds = {name: spec.plan[name].rows for name in ("of_stream", "hours", "hours_now", "of_table", "again")}
    assert kinds == {**dict.fromkeys(kinds, RowKind.TABLE), "hours": RowKind.STREAM}
    assert spec.plan["again"].key is not None
    assert spec.plan["again"].key.fields == ("n",)
    output = spec.plan.output("o5")
    assert output is not None
    # Its aggregate is a relation of its own, so that its rows are changes of a table.
    assert (output.relation, output.aggregate) == ("o5.aggregate", None)
    assert spec.plan.is_table("o5.aggregate")
