"""Which JSON Schemas take long to validate by, whatever the value is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.schemas.codecs.json_cost import may_take_long
from tests.support import heavy_schemas

REFERS: Any = {"properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}}}


@pytest.mark.parametrize(
    "text",
    [
        heavy_schemas.doubling_not(60, {"type": "integer"}),
        heavy_schemas.doubling_json(60, {"type": "integer"}),
        json.dumps({"properties": {"next": {"$ref": "#"}}}),
        json.dumps({"anyOf": [{"type": "string"}] * 5_001}),
        json.dumps({"$ref": "other.json"}),
        json.dumps({"properties": {"a": {"$dynamicRef": "#a"}}}),
    ],
)
def test_these_may(text: str) -> None:
    assert may_take_long(json.loads(text), {})


@pytest.mark.parametrize(
    ("tree", "documents"),
    [
        (True, {}),
        ({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1_000)}}, {}),
        ({**REFERS, "$defs": {"x": {"type": "integer"}}}, {}),
        ({"$ref": "other.json"}, {"other.json": {"type": "integer"}}),
        ({"default": {"$ref": "#"}, "enum": [{"$ref": "#"}]}, {}),
    ],
)
def test_these_do_not(tree: Any, documents: dict[str, Any]) -> None:
    assert not may_take_long(tree, documents)
