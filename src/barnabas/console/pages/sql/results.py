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
    message = (answer.get("commandStatus") or {}).get("message")
    warnings = [str(one["message"]) for one in answer.get("warnings", []) if one.get("message")]
    if message is not None:
        return {"message": " ".join([message, *warnings]), "columns": [], "rows": []}
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
    members = next((answer[name] for name in LISTS if name in answer), None)
    if isinstance(members, Mapping):
        members = [{"name": name, "value": value} for name, value in members.items()]
    if isinstance(members, list):
        return _listed(members)
    rest = {
        name: value for name, value in answer.items() if name not in ("@type", "statementText", "warnings")
    }
    return {"message": json.dumps(rest, ensure_ascii=False, indent=2), "columns": [], "rows": []}


def _listed(items: list[Any]) -> dict[str, Any]:
    if not items:
        return {"message": None, "columns": ["name"], "rows": []}
    if not isinstance(items[0], Mapping):
        return {"message": None, "columns": ["name"], "rows": [[one] for one in items]}
    columns = list(items[0])
    return {
        "message": None,
        "columns": columns,
        "rows": [[one.get(name) for name in columns] for one in items],
    }
