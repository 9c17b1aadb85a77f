"""Answers to statements as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

LISTS: Final = (
    "streams", "tables", "topics", "queries", "functions", "properties", "types", "sourceDescriptions", "connectors",
    "connectorPlugins", "variables",
)  # fmt: skip


def tables_of(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each answer as {message, columns, rows}."""
    return [_table(answer) for answer in answers]


def _table(answer: Mapping[str, Any]) -> dict[str, Any]:
    told = (answer.get("commandStatus") or {}).get("message")
    warnings = [str(one["message"]) for one in answer.get("warnings", []) if one.get("message")]
    if told is not None:
        return {"message": " ".join([told, *warnings]), "columns": [], "rows": []}
    about = answer.get("sourceDescription")
    if about is not None:
        return {
            "message": f"{about['name']}: {about['type'].lower()}, {about['topic']}",
            "columns": ["column", "type", "key"],
            "rows": [[f["name"], f["schema"]["type"], f.get("type", "")] for f in about["fields"]],
        }
    plan = answer.get("queryDescription")
    if plan is not None:
        return {"message": plan.get("executionPlan") or plan.get("statementText"), "columns": [], "rows": []}
    held = next((answer[name] for name in LISTS if name in answer), None)
    if isinstance(held, Mapping):
        held = [{"name": name, "value": value} for name, value in held.items()]
    if isinstance(held, list):
        return _listed(held)
    rest = {
        name: value for name, value in answer.items() if name not in ("@type", "statementText", "warnings")
    }
    return {"message": json.dumps(rest, ensure_ascii=False, indent=2), "columns": [], "rows": []}


def _listed(held: list[Any]) -> dict[str, Any]:
    if not held:
        return {"message": None, "columns": ["name"], "rows": []}
    if not isinstance(held[0], Mapping):
        return {"message": None, "columns": ["name"], "rows": [[one] for one in held]}
    columns = list(held[0])
    return {
        "message": None,
        "columns": columns,
        "rows": [[one.get(name) for name in columns] for one in held],
    }
