"""Connectors of a Connect worker: states, lag, errors with what to do, offsets; created and changed with checked forms."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask, Done
from barnabas.console.pages.connectors.advising import advice_of, first_line
from barnabas.console.pages.connectors.forms import (
    change,
    check,
    create,
    read_change,
    read_create,
    read_plugins,
    shown_config,
)
from barnabas.console.pages.connectors.progress import partitions_of, progress_of
from barnabas.console.pages.connectors.worker import at, call, shell
from barnabas.console.rendering import encoded
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.site import Action, Data, Page

STATES: Final = {
    "RUNNING": "good", "FAILED": "bad", "UNASSIGNED": "warn", "RESTARTING": "warn", "PAUSED": "", "STOPPED": "",
}  # fmt: skip
ACTIONS: Final = {
    "restart": ("POST", "restart?includeTasks=true&onlyFailed=false"),
    "restart-failed": ("POST", "restart?includeTasks=true&onlyFailed=true"),
    "pause": ("PUT", "pause"),
    "resume": ("PUT", "resume"),
    "stop": ("PUT", "stop"),
}
WORDS: Final = {"restart": ("restart",), "restart-failed": ("restart", "--failed")}
LOG_LINES: Final = 100
TASK_MAX: Final = 100_000


async def read(ask: Ask) -> Data:
    """The connectors with their states, tasks, lag, rates and last errors"""
    connectors = await call(ask, "GET", "/connectors?expand=info&expand=status")
    names = [name for name in sorted(connectors) if ask.sees(name)]
    progress = await progress_of(ask, {name: connectors[name].get("info") or {} for name in names})
    return {
        "connectors": [_row(name, connectors[name], progress[name]) for name in names],
        "states": STATES,
        "commands": [shell(ask, "list")],
    }


def _row(name: str, connector: Mapping[str, Any], progress: Mapping[str, Any]) -> dict[str, Any]:
    status, info = connector.get("status") or {}, connector.get("info") or {}
    config = info.get("config") or {}
    tasks = status.get("tasks") or []
    parts = [status.get("connector") or {}, *tasks]
    trace = next((part["trace"] for part in parts if part.get("trace")), None)
    return {
        "name": name,
        "type": info.get("type") or status.get("type"),
        "class": str(config.get("connector.class") or ""),
        "state": (status.get("connector") or {}).get("state", "UNASSIGNED"),
        "tasks": len(tasks),
        "running": sum(task["state"] == "RUNNING" for task in tasks),
        "failed": sum(task["state"] == "FAILED" for task in tasks),
        "error": first_line(trace),
        "lag": progress["lag"],
        "per_second": progress["per_second"],
    }


async def read_one(ask: Ask) -> Data:
    """One connector: states of its tasks, errors with what to do, lag, offsets, options without secrets, log"""
    name = ask.path["connector"]
    info, status = await asyncio.gather(call(ask, "GET", at(name)), call(ask, "GET", at(name, "status")))
    offsets, topics, log, config = await asyncio.gather(
        _or_none(call(ask, "GET", at(name, "offsets"))),
        _or_none(call(ask, "GET", at(name, "topics"))),
        _or_none(call(ask, "GET", at(name, f"logs?lines={LOG_LINES}"))),
        shown_config(ask, info["config"]),
    )
    progress = await progress_of(ask, {name: info})
    row = _row(name, {"info": info, "status": status}, progress[name])
    parts = [("connector", None, status["connector"]), *(("task", t["id"], t) for t in status["tasks"])]
    seen = (topics or {}).get(name, {}).get("topics", [])
    return {
        "connector": name,
        "summary": row,
        "parts": [_part(what, number, state) for what, number, state in parts],
        "partitions": await partitions_of(ask, (offsets or {}).get("offsets", []), info),
        "offsets": [
            {"partition": _compact(one["partition"]), "offset": _compact(one["offset"])}
            for one in (offsets or {}).get("offsets", [])
        ],
        "topics": [topic for topic in sorted(seen) if ask.sees(topic)],
        "dead": _dead_letters(ask, info["config"]),
        "config": config,
        "log": None if log is None else log["lines"],
        "states": STATES,
        "commands": [
            shell(ask, word, name) for word in ("status", "restart", "pause", "stop", "offsets", "logs")
        ],
    }


def _part(what: str, number: int | None, state: Mapping[str, Any]) -> dict[str, Any]:
    trace = state.get("trace")
    return {
        "what": what,
        "task": number,
        "state": state["state"],
        "worker": state.get("worker_id"),
        "error": first_line(trace),
        "trace": trace,
        "advice": advice_of(trace) if trace else None,
    }


def _dead_letters(ask: Ask, config: Mapping[str, str]) -> str | None:
    topic = config.get("errors.deadletterqueue.topic.name")
    return topic if topic and ask.sees(topic) else None


async def _or_none(work: Any) -> Any:
    """What workers of some versions do not have, or what the cluster does not tell now."""
    try:
        return await work
    except (Refused, ClientError):
        return None


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


async def act(ask: Ask) -> Done:
    """Restart, restart what has failed of, pause, resume or stop a connector: action; task (a number) restarts one task"""
    name, task = ask.path["connector"], ask.text("task")
    if task:
        number = ask.number("task", 0, 0, TASK_MAX)
        await call(ask, "POST", at(name, f"tasks/{number}/restart"))
        words: tuple[str, ...] = ("restart", name, "--task", str(number))
        action = "restart"
    else:
        action = ask.required("action")
        if action not in ACTIONS:
            raise Refused(
                400, said("{name} must be one of {choices}", name="action", choices=", ".join(ACTIONS))
            )
        method, path = ACTIONS[action]
        await call(ask, method, at(name, path))
        first, *more = WORDS.get(action, (action,))
        words = (first, name, *more)
    return Done(
        said("{name}: {action} is asked for", name=name, action=action),
        f"/connectors/{encoded(name)}",
        {"connector": name, "action": action},
        (shell(ask, *words),),
    )


async def delete(ask: Ask) -> Done:
    """Delete a connector; the offsets of a source stay: confirm (its name)"""
    name = ask.path["connector"]
    if ask.required("confirm") != name:
        raise Refused(400, said("What was typed is not the name {name}", name=name))
    await call(ask, "DELETE", at(name))
    return Done(
        said("{name} is deleted", name=name),
        "/connectors",
        {"connector": name},
        (shell(ask, "delete", name),),
    )


async def move(ask: Ask) -> Done:
    """Set where a stopped connector goes on: partition, offset (JSON each; null removes one); reset=1 removes all"""
    name = ask.path["connector"]
    if ask.flag("reset"):
        if ask.text("confirm", name) != name:
            raise Refused(400, said("What was typed is not the name {name}", name=name))
        answer = await call(ask, "DELETE", at(name, "offsets"))
        words: tuple[str, ...] = ("offsets", name, "--reset")
        moved: dict[str, Any] = {"reset": True}
    else:
        entry = {"partition": _json(ask, "partition"), "offset": _json(ask, "offset")}
        answer = await call(ask, "PATCH", at(name, "offsets"), {"offsets": [entry]})
        words = ("offsets", name, "--set", _compact(entry["partition"]), _compact(entry["offset"]))
        moved = entry
    return Done(
        said("{reason}", reason=answer["message"]),
        f"/connectors/{encoded(name)}",
        {"connector": name, **moved},
        (shell(ask, *words),),
    )


def _json(ask: Ask, field: str) -> Any:
    document = ask.fields.get(field)
    if isinstance(document, dict):
        return document
    try:
        return json.loads(ask.required(field))
    except ValueError:
        raise Refused(
            400, said("{name} is not JSON: {value}", name=field, value=ask.text(field)[:200])
        ) from None


HOME: Final = "/connectors/{connector}"
PLUGIN: Final = "/connector-plugins/{plugin}"
PAGES: Final = (
    Page("connectors", "/connectors", "connectors", read),
    Page("connectors", "/connector-plugins", "connectors", read_plugins, template="plugins.html"),
    Page(
        "connectors", PLUGIN, "connectors", read_create, Role.ADMIN, template="create.html",
        actions=(
            Action(f"{PLUGIN}/check", check, Role.ADMIN, is_change=False),
            Action(f"{PLUGIN}/create", create, Role.ADMIN),
        ),
    ),
    Page(
        "connectors", HOME, "connectors", read_one, named="connector", template="one.html",
        actions=(
            Action(f"{HOME}/act", act, Role.OPERATE, "connector"),
            Action(f"{HOME}/delete", delete, Role.ADMIN, "connector"),
            Action(f"{HOME}/offsets", move, Role.OPERATE, "connector"),
        ),
    ),
    Page(
        "connectors", f"{HOME}/config", "connectors", read_change, Role.ADMIN, "connector", "change.html",
        actions=(
            Action(f"{HOME}/config/check", check, Role.ADMIN, "connector", is_change=False),
            Action(f"{HOME}/config", change, Role.ADMIN, "connector"),
        ),
    ),
)  # fmt: skip
