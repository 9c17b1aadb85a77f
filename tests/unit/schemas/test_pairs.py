"""Comparisons of schemas that contain themselves: each pair is compared once, and the result is the greatest fixpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.schemas.formats.avro import read_avro
from barnabas.schemas.formats.comparing import problems_reading
from barnabas.schemas.formats.json_schema import read_json_schema
from barnabas.schemas.formats.pairs import OverBudget, Pairs, Steps
from tests.support import heavy_schemas
from tests.support.examples import examples

Graph = list[tuple[bool, list[list[int]]]]
"""For each node, whether it is compatible in itself, and groups of others: one of each group must be compatible."""


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 9))
    groups = st.lists(st.lists(st.integers(0, count - 1), min_size=1, max_size=3), max_size=3)
    return draw(st.lists(st.tuples(st.integers(0, 5).map(bool), groups), min_size=count, max_size=count))


def fixpoint(graph: Graph) -> list[bool]:
    """What is compatible: everything, minus whatever turns out not to be, until nothing changes."""
    good = [True] * len(graph)
    for _ in graph:
        good = [own and all(any(good[n] for n in group) for group in groups) for own, groups in graph]
    return good


class Walk:
    """Compares nodes by `Pairs`, in depth."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.pairs: Pairs[str] = Pairs(Steps(1_000_000))

    def compare(self, node: int) -> list[str]:
        known = self.pairs.begin(node, "")
        if known is not None:
            return known[0]
        own, groups = self.graph[node]
        problems = [] if own else ["bad"]
        for group in groups:
            problems += [] if any(not self.compare(other) for other in group) else ["group"]
        return self.pairs.end(problems)


@settings(max_examples=examples(2000), deadline=None)
@given(graphs())
def test_the_result_is_the_greatest_fixpoint(graph: Graph) -> None:
    expected = fixpoint(graph)
    walk = Walk(graph)
    assert [not walk.compare(node) for node in range(len(graph))] == expected
    for node in reversed(range(len(graph))):
        assert (not Walk(graph).compare(node)) == expected[node]


STRING: Any = "string"
JSON_LEAVES = [({"type": "string"}, {"type": "string"}), ({"type": "integer"}, {"type": "string"})]


@pytest.mark.parametrize("make", [heavy_schemas.doubling_json, heavy_schemas.doubling_not])
@pytest.mark.parametrize("leaves", JSON_LEAVES, ids=["same", "other"])
def test_references_that_double_take_a_step_for_each_level(make: Any, leaves: Any) -> None:
    reader, writer = (read_json_schema(make(40, leaf)) for leaf in leaves)
    steps = Steps(2_000)
    problems = problems_reading(reader, writer, steps)
    assert bool(problems) == (leaves[0] != leaves[1])
    assert len(problems) <= 2_000


@pytest.mark.parametrize("leaves", [("string", "string"), ("int", "string")], ids=["same", "other"])
def test_records_that_double_take_a_step_for_each_level(leaves: Any) -> None:
    reader, writer = (read_avro(heavy_schemas.doubling_avro(60, leaf)) for leaf in leaves)
    problems = problems_reading(reader, writer, Steps(500))
    assert bool(problems) == (leaves[0] != leaves[1])
    assert len(problems) <= 500


@pytest.mark.parametrize("leaves", [("string", "string"), ("int", "string")], ids=["same", "other"])
def test_a_branch_of_a_union_is_compared_with_those_of_its_name(leaves: Any) -> None:
    reader, writer = (read_avro(heavy_schemas.union_avro(1_500, leaf)) for leaf in leaves)
    problems = problems_reading(reader, writer, Steps(10_000))
    assert len(problems) == (1_500 if leaves[0] != leaves[1] else 0)
    assert sum(len(problem.message) for problem in problems) < 1_000_000


def test_a_default_is_compared_with_each_type_once() -> None:
    from barnabas.schemas.errors import InvalidSchema

    with pytest.raises(InvalidSchema, match="is not of type union"):
        read_avro(heavy_schemas.defaults_avro(60, "string"), steps=Steps(2_000))


def test_values_of_enums_are_not_compared_one_by_one() -> None:
    reader, writer = (read_json_schema(json.dumps({"enum": [*range(n, n + 20_000), True]})) for n in (0, 1))
    assert [p.kind for p in problems_reading(reader, writer, Steps(20_000))] == ["ENUM_ARRAY_CHANGED"]
    assert not problems_reading(
        read_json_schema('{"enum": [1, {"a": [true]}]}'), read_json_schema('{"enum": [1.0]}')
    )
    assert problems_reading(reader, read_json_schema('{"enum": [false]}'))  # not the number 0


def test_a_comparison_ends_when_its_steps_are_used_up() -> None:
    reader, writer = (
        read_json_schema(heavy_schemas.alternatives_json(100, {"type": kind}))
        for kind in ("string", "integer")
    )
    with pytest.raises(OverBudget):
        problems_reading(reader, writer, Steps(1_000))
