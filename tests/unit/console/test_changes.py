"""What was changed lately: sentences of the console, whatever else stands in its audit topic."""

from __future__ import annotations

import json

import pytest

from barnabas.console.changes import _entry, lately


def entry(**fields: object) -> dict[str, object]:
    written = {"time_ms": 1_767_225_600_000, "user": "anna", "action": "/topics", "result": "done", **fields}
    read = _entry(json.dumps(written).encode())
    assert read is not None
    return dict(read)


def test_sentences_have_their_gaps_filled_the_newest_first() -> None:
    first = entry(said="The topic {name} is created", values={"name": "<b>"})
    second = entry(time_ms=1_767_225_601_000, user="bert", failure="no")
    shown = lately([first, second], None)
    assert [(str(row["what"]), row["user"], row["failure"]) for row in shown] == [
        ("done", "bert", "no"), ("The topic <b> is created", "anna", None),
    ]  # fmt: skip
    assert [row["user"] for row in lately([first, second], "anna")] == ["anna"]
    assert lately([entry(user=None)], "") == []


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ("{a:>2000000000}", {"a": "x"}),
        ("{a.__class__}", {"a": "x"}),
        ("The topic {name} is created", {"other": "x"}),
        ("The topic {name} is created", ["x"]),
        (["x"], {}),
    ],
)
def test_sentences_that_others_have_written_are_not_filled(said: object, values: object) -> None:
    (shown,) = lately([entry(said=said, values=values)], None)
    assert str(shown["what"]) == "done"


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"time_ms": "x", "action": 1}', b"[" * 100_000, b"\xff"]
)
def test_other_records_are_left_out(value: bytes) -> None:
    assert _entry(value) is None
