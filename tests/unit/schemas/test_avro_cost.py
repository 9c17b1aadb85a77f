"""Which Avro schemas take long to encode by, whatever the value is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.schemas.codecs.avro_cost import may_take_long
from tests.support import heavy_schemas

LIST: Any = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
EVENTS: Any = [{"type": "record", "name": name, "fields": [{"name": "f", "type": "int"}]} for name in "AB"]


@pytest.mark.parametrize("text", [heavy_schemas.defaults_avro(40, "int")])
def test_these_may(text: str) -> None:
    assert may_take_long(json.loads(text))


@pytest.mark.parametrize("tree", ["int", LIST, EVENTS, {"type": "array", "items": ["null", "string"]}])
def test_these_do_not(tree: Any) -> None:
    assert not may_take_long(tree)
