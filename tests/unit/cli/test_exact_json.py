"""Numbers with a point are printed with the digits that they came with."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from barnabas.cli.pipelines.pipelines import lines_behind
from barnabas.terminal.output import exact_json


@pytest.mark.parametrize("indent", [None, 2])
def test_decimals_keep_their_digits(indent):
    text = '{"a": [1.10, 12345678901234567890.123456789, -0.0, {"b": 1E+400}], "c": "1.10", "d": null}'
    printed = exact_json(json.loads(text, parse_float=Decimal), indent)
    assert json.loads(printed, parse_float=str) == json.loads(text, parse_float=str)
    assert exact_json({"a": Decimal("1.10")}) == '{"a": 1.10}'


def test_a_lookup_says_when_rows_may_be_old():
    fresh = {"state": "running", "lag": 0, "seconds_ago": Decimal("3600.0")}
    assert lines_behind(fresh) == lines_behind({**fresh, "lag": None}) == ""
    assert lines_behind({**fresh, "lag": 1200}) == " (3,600 s ago, 1,200 records behind)"
    assert lines_behind({**fresh, "state": "stopped"}) == " (the pipeline is stopped, 3,600 s ago)"
    assert lines_behind({**fresh, "state": "starting", "lag": None}) == (
        " (the pipeline is starting, 3,600 s ago, how many records have come since is not known yet)"
    )
