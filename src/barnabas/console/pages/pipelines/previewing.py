"""What each step of a pipeline makes of real records, as pages show it: only the fields that a step changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

SHOWN_MAX: Final = 300


def shown(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The preview of the server of pipelines, each step with its lines: (sign, text). sign: `+` for a field that the step
    made or changed, `-` for one that it removed, empty for a remark."""
    return [
        {
            "place": f"{record['topic']}/{record['partition']}/{record['offset']}",
            "key": record["key"],
            "value": record["value"],
            "steps": [*_steps(record["steps"])],
            "leaves": record["leaves"],
        }
        for record in records
    ]


def _steps(steps: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    before: list[dict[str, Any]] = [{}]
    for step in steps:
        rows = step["rows"]
        yield {
            "name": step["step"],
            "reason": step["reason"],
            "left_out": step["reason"] is None and not rows,
            "rows": len(rows),
            "lines": [] if step["reason"] is not None else [*_changes(before, rows)],
        }
        before = rows


def _changes(
    before: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    pairs = len(before) == len(rows)
    for number, row in enumerate(rows):
        old = before[number] if pairs else before[0]
        for name, value in row.items():
            if name not in old or old[name] != value:
                yield "+", f"{name} = {_text(value)}"
        for name in old:
            if name not in row:
                yield "-", name


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
