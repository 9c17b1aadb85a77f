"""Flows as a graph."""

from __future__ import annotations

from itertools import pairwise

import pytest

from barnabas.console.drawing import depths, drawing
from barnabas.console.pages.lineage.graph import NODES_MAX, PLACES_MAX, around, graph_of
from barnabas.console.pages.lineage.reading import Flow, is_of, topics


def flow(name: str, reads: str, writes: str = "") -> Flow:
    return Flow("pipeline", name, f"/pipelines/{name}", topics(reads.split()), topics(writes.split()))


CHAIN = [
    flow("p", "a", "b"),
    flow("q", "b", "c"),
    flow("r", "c", "d"),
    flow("other", "x", "y"),
    flow("side", "a", "z"),
]


def test_a_topic_is_shown_with_all_that_leads_to_it_and_all_that_comes_of_it() -> None:
    assert [one.name for one in around("c", CHAIN)] == ["p", "q", "r"]
    assert [one.name for one in around("a", CHAIN)] == ["p", "q", "r", "side"]
    assert around("nothing", CHAIN) == []


def test_each_node_stands_right_of_all_that_it_reads() -> None:
    graph, left_out = graph_of([*CHAIN, flow("last", "a d")])
    depth = {node["title"]: node["depth"] for node in graph["nodes"]}
    assert left_out == 0
    assert (depth["a"], depth["p"], depth["b"], depth["d"], depth["last"]) == (0, 1, 2, 6, 7)


def test_a_circle_has_an_end() -> None:
    found = depths(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "a")])
    assert sorted(found.values()) == [0, 1, 2]
    graph, _ = graph_of([flow("there", "a", "b"), flow("back", "b", "a")])
    assert sorted(node["depth"] for node in graph["nodes"]) == [0, 1, 2, 3]


def test_a_long_chain_needs_no_deep_recursion() -> None:
    names = [str(number) for number in range(5000)]
    assert depths(names[::-1], list(pairwise(names)))["4999"] == 4999


def test_a_large_picture_is_cut_and_says_so() -> None:
    flows = [flow(f"p{number}", f"in{number}", f"out{number}") for number in range(100)]
    graph, left_out = graph_of(flows)
    assert len(graph["nodes"]) <= NODES_MAX
    assert left_out == 100 - len(graph["nodes"]) // 3
    assert len(drawing(graph, {})["boxes"]) == len(graph["nodes"])


@pytest.mark.parametrize(
    ("group", "is_own"),
    [
        ("p", True),
        ("p.out", True),
        ("p.out.dead-letters", True),
        ("barnabas-p.out-5a86-0", True),
        ("pp", False),
        ("shop.p", False),
    ],
)
def test_groups_that_belong_to_what_is_shown_are_not_shown_themselves(group: str, is_own: bool) -> None:
    assert is_of(group, {"p"}) is is_own


def test_a_flow_with_thousands_of_topics_is_one_with_a_few_and_the_number_of_the_others() -> None:
    link = Flow("link", "west", "/mirrors/west", (), topics(f"t{number}" for number in range(5000)))
    graph, left_out = graph_of([link], "t4000")
    titles = [node["title"] for node in graph["nodes"]]
    assert (len(titles), left_out) == (PLACES_MAX + 1, 0)
    assert "t4000" in titles
    assert "4\u202f989 more of west" in titles


def test_titles_fit_their_boxes_in_wide_letters_and_with_hidden_ones() -> None:
    graph, _ = graph_of(
        [flow("流水线" * 10, "a"), flow("x" * 10_000, "a"), flow("\u202e" * 30, "a"), flow("订单", "a")]
    )
    boxes = {box["whole"]: box["title"] for box in drawing(graph, {})["boxes"]}
    assert boxes["流水线" * 10] == ("流水线" * 10)[:11] + "…"
    assert boxes["x" * 10_000] == "x" * 22 + "…"
    assert boxes["\u202e" * 30] == "⟨U+202E⟩⟨U+202E⟩⟨U+202E…"[:22] + "…"
    assert boxes["订单"] == "订单"
