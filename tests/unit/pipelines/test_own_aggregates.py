"""Aggregates with names of their own become expressions of Spark's; everything else stays as it was written."""

from __future__ import annotations

import pytest

from barnabas.pipelines.plan.own_aggregates import BadCall, expanded

PLACE = "struct(_offset, _partition, _topic)"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("latest(x)", f"max_by(x, {PLACE}) FILTER (WHERE (x) IS NOT NULL)"),
        ("Earliest( a.b , 2 )", f"min_by(a.b, {PLACE}, 2) FILTER (WHERE (a.b) IS NOT NULL)"),
        ("latest(x, 2)[0]", f"reverse(max_by(x, {PLACE}, 2) FILTER (WHERE (x) IS NOT NULL))[0]"),
        ("top_k(x, 3)", "max_by(x, x, 3) FILTER (WHERE (x) IS NOT NULL)"),
        ("size(top_k_distinct(x, 3)) + 1", "size(slice(sort_array(collect_set(x), false), 1, 3)) + 1"),
        (
            "collect_list(f(x, ','), 5)",
            f"min_by(f(x, ','), {PLACE}, 5) FILTER (WHERE (f(x, ',')) IS NOT NULL)",
        ),
    ],
)
def test_calls_become_sparks(text, wanted):
    assert expanded(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "count(*)", "collect_list(x)", "sum( a,  b )", "'latest(x)'", "`latest`(x)", "latest", "s.latest(x)", "\"top_k(x)\"",
        "max(x) FILTER (WHERE y IN (1, 2))", "count(", "concat('it''s (', x)",
    ],
)  # fmt: skip
def test_everything_else_stays(text):
    assert expanded(text) == text


@pytest.mark.parametrize("text", ["latest()", "latest(x, y)", "top_k(x)", "top_k(x, 0)", "earliest(x, 2, 3)"])
def test_wrong_calls_are_refused(text):
    with pytest.raises(BadCall, match=r"latest\(value|top_k\(value, 3\)|earliest\(value"):
        expanded(text)
