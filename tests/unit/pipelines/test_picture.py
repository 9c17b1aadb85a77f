"""The picture of a plan, and the check of a file that shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.console.drawing import WIDTH, drawing
from barnabas.console.pages.pipelines.previewing import shown
from barnabas.pipelines.fronts.yaml.spec import parse_spec
from barnabas.pipelines.plan.picture import Picture, picture
from barnabas.pipelines.serving.checking import check, drawn
from barnabas.pipelines.serving.manager import Manager

JOINED = """\
pipeline: joined
sources:
  orders: {topic: orders, steps: [parse: {json: {id: int, who: string}}]}
  people: {table: people, steps: [parse: {json: {who: string, city: string}}]}
relations:
  named:
    join: {left: orders, right: people, by: who}
outputs:
  - {name: all, from: named, topic: named-orders, key: who}
  - name: counts
    from: named
    aggregate: {by: [city], compute: {n: count(*)}}
    topic: per-city
    key: city
"""


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    return Manager(tmp_path, {"bootstrap.servers": "localhost:1"})


def of(text: str) -> Picture:
    return picture(parse_spec(text, "pipeline").plan)


def test_rows_go_from_sources_through_relations_to_outputs() -> None:
    drawn_plan = of(JOINED)
    assert drawn_plan.arrows == (
        ("source orders", "orders"),
        ("source people", "people"),
        ("orders", "named"),
        ("people", "named"),
        ("named", "output all"),
        ("named", "output counts"),
    )
    assert [(node.id, node.kind, node.depth) for node in drawn_plan.nodes] == [
        ("source orders", "source", 0),
        ("orders", "rows", 1),
        ("source people", "source", 0),
        ("people", "table", 1),
        ("named", "rows", 2),
        ("output all", "output", 3),
        ("output counts", "output", 3),
    ]


def test_steps_have_the_lines_where_they_stand() -> None:
    by_id = {node.id: node for node in of(JOINED).nodes}
    assert [(step.text, step.line) for step in by_id["orders"].steps] == [("1 parse", 3)]
    assert [(step.text, step.line) for step in by_id["output counts"].steps] == [
        ("aggregate n by city", 12),
        ("key: city", None),
    ]
    assert by_id["named"].steps[0].text == "inner join of orders and people by who"


def test_a_pipeline_without_names_has_one_node_of_steps() -> None:
    drawn_plan = of(
        "pipeline: p\nsource: {topic: a}\nsteps: [parse: {json: {n: int}}]\noutputs: [{topic: b}]\n"
    )
    assert [(node.title, node.kind) for node in drawn_plan.nodes] == [
        ("a", "source"),
        ("steps", "rows"),
        ("topic b", "output"),
    ]


def test_a_check_names_the_line_of_a_mistake(manager: Manager) -> None:
    assert check(manager, JOINED)["mistakes"] == []
    assert check(manager, JOINED)["picture"]["name"] == "joined"
    checked = check(manager, JOINED.replace("by: who", "buy: who"))
    (mistake,) = checked["mistakes"]
    assert mistake["line"] == 7
    assert "buy" in mistake["message"]
    assert "pipeline:7" not in mistake["message"]
    assert checked["picture"] is None
    assert check(manager, "")["mistakes"] == [{"line": None, "message": "pipeline: the file is empty"}]
    assert not manager.names()


def test_a_check_remarks_what_grows_for_ever(manager: Manager) -> None:
    assert any("for ever" in remark for remark in check(manager, JOINED)["remarks"])


def test_boxes_of_a_drawing_do_not_overlap() -> None:
    drawn_picture = drawing(drawn(parse_spec(JOINED, "pipeline")), {"output all": "3/s"})
    boxes = drawn_picture["boxes"]
    assert len(boxes) == 7
    for number, one in enumerate(boxes):
        assert one["x"] + WIDTH <= drawn_picture["width"]
        assert one["y"] + one["height"] <= drawn_picture["height"]
        for other in boxes[number + 1 :]:
            if one["x"] == other["x"]:
                assert one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
    assert [box["note"] for box in boxes if box["note"]] == ["3/s"]


def test_a_preview_shows_what_each_step_changes() -> None:
    record = {"topic": "a", "partition": 0, "offset": 7, "key": None, "value": "x", "leaves": []}
    steps = [
        {"step": "1 parse", "rows": [{"a": 1, "b": "x"}], "reason": None},
        {"step": "2 drop", "rows": [{"a": 1}], "reason": None},
        {"step": "3 filter", "rows": [], "reason": None},
    ]
    (record_shown,) = shown([{**record, "steps": steps}])
    assert record_shown["place"] == "a/0/7"
    assert [step["lines"] for step in record_shown["steps"]] == [
        [("+", "a = 1"), ("+", 'b = "x"')],
        [("-", "b")],
        [],
    ]
    assert [step["left_out"] for step in record_shown["steps"]] == [False, False, True]
