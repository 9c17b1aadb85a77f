"""Pipelines of a server of pipelines: states, rates and lag; starting and stopping; dead letters, log, file, views."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from urllib.parse import urlencode

from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask, Done
from barnabas.console.drawing import drawing
from barnabas.console.pages.pipelines.previewing import shown
from barnabas.console.pages.pipelines.server import call, server_url
from barnabas.console.rendering import encoded, number, rate
from barnabas.console.roles import Role
from barnabas.console.said import Refused, said
from barnabas.console.shell import command
from barnabas.console.site import Action, Data, Page
from barnabas.wire.errors import ErrorCode

STATES: Final = {"running": "good", "failed": "bad", "waiting": "warn", "paused": "", "stopped": ""}
ACTIONS: Final = ("start", "pause", "resume", "stop", "restart")
LOG_LINES: Final = 100
ROWS_MAX: Final = 200
DEAD_LETTERS: Final = 500
PREVIEW_MAX: Final = 20
PREVIEW_S: Final = 120.0
"""A preview runs jobs of Spark, each for a step."""
REASON: Final = "barnabas.reason"


def _shell(ask: Ask, *words: str) -> str:
    return command("barnabas", "pipelines", *words, "--url", server_url(ask))


async def read(ask: Ask) -> Data:
    """The pipelines with their states, rates and lag"""
    pipelines = await call(ask, "GET", "/pipelines")
    return {
        "pipelines": [_row(one) for one in pipelines if ask.sees(one["name"])],
        "states": STATES,
        "commands": [_shell(ask, "list")],
    }


def _row(status: dict[str, Any]) -> dict[str, Any]:
    """A pipeline as the list shows it: its rates and lags added up. lag: None while none is known."""
    queries = status["queries"]
    lags = [query["lag"] for query in queries if query["lag"] is not None]
    return {
        **status,
        "records_per_second": sum(query["records_per_second"] or 0 for query in queries),
        "failed_records": sum(query["failed"] or 0 for query in queries),
        "lag": sum(lags) if lags else None,
    }


async def read_one(ask: Ask) -> Data:
    """One pipeline: its queries, failures, file, log, views, and its dead letters by reason"""
    name = encoded(ask.path["pipeline"])
    status, picture, file, log, views = await asyncio.gather(
        call(ask, "GET", f"/pipelines/{name}"),
        _picture(ask, name),
        call(ask, "GET", f"/pipelines/{name}/file", text=True),
        call(ask, "GET", f"/pipelines/{name}/logs?lines={LOG_LINES}"),
        _views(ask, name),
    )
    return {
        "pipeline": ask.path["pipeline"],
        "status": _row(status),
        "picture": picture and drawing(picture, _notes(picture, status)),
        "file": file,
        "log": log["lines"],
        "views": views,
        "dead": await _dead_letters(ask, status["dead_letters"]),
        "states": STATES,
        "actions": ACTIONS,
        "commands": [_shell(ask, word, ask.path["pipeline"]) for word in ("status", "logs", "stop", "start")],
    }


async def _picture(ask: Ask, name: str) -> dict[str, Any] | None:
    """Nodes and arrows; None where the server is of a version that does not tell."""
    try:
        picture: dict[str, Any] = await call(ask, "GET", f"/pipelines/{name}/picture")
    except Refused:
        return None
    return picture


def _notes(picture: dict[str, Any], status: dict[str, Any]) -> dict[str, str]:
    """What runs, at the nodes that write: records a second, and how many are waiting. An output that has no query of its
    own shares the first."""
    queries = {query["name"]: query for query in status["queries"]}
    if not queries:
        return {}
    shared = next(iter(queries.values()))
    notes = {}
    for node in picture["nodes"]:
        if node["kind"] == "output":
            query = queries.get(node["id"].removeprefix("output "), shared)
            lag = "" if query["lag"] is None else f" · lag {number(query['lag'])}"
            notes[node["id"]] = f"{rate(query['records_per_second'] or 0)}/s{lag}"
    return notes


async def read_preview(ask: Ask) -> Data:
    """What each step makes of real records: topic, count (1 to 20), output, oldest"""
    name = ask.path["pipeline"]
    body: dict[str, Any] = {"name": name, "count": ask.number("count", 3, 1, PREVIEW_MAX)}
    words = ["pipeline", "preview", "FILE", "--count", str(body["count"])]
    for field in ("topic", "output"):
        if ask.text(field):
            body[field] = ask.text(field)
            words += [f"--{field}", ask.text(field)]
    if ask.flag("oldest"):
        body["oldest"] = True
        words.append("--oldest")
    picture = await _picture(ask, encoded(name))
    nodes = [] if picture is None else picture["nodes"]
    sources = [node["title"] for node in nodes if node["kind"] == "source"]
    for topic in dict.fromkeys([*sources, *ask.texts("topic")]):
        if not ask.sees(topic):
            raise Refused(403, said("You may not see {topic}", topic=topic[:100]))
        if ask.masking.of(topic, ask.role_for(topic)):
            raise Refused(
                403,
                said(
                    "Fields of {topic} are hidden from you, and a preview would show them", topic=topic[:100]
                ),
            )
    return {
        "pipeline": name,
        "topics": sources,
        "outputs": [node["id"].removeprefix("output ") for node in nodes if node["kind"] == "output"],
        "records": shown(await call(ask, "POST", "/preview", body, timeout_s=PREVIEW_S)),
        "commands": [command("barnabas", *words)],
    }


async def read_file(ask: Ask) -> Data:
    """The file of a pipeline, to be changed"""
    name = ask.path["pipeline"]
    return {
        "pipeline": name,
        "file": await call(ask, "GET", f"/pipelines/{encoded(name)}/file", text=True),
        "checked": None,
        "commands": [_shell(ask, "add", "FILE")],
    }


async def check(ask: Ask) -> Done:
    """Look for mistakes in a pipeline file, without storing it: file (YAML)"""
    text = (ask.raw("file") or "").replace("\r\n", "\n")
    verdict = await call(ask, "POST", "/check", raw=text.encode())
    picture = verdict["picture"]
    done = said("{count} mistakes", count=len(verdict["mistakes"]))
    shown = {**verdict, "picture": picture and drawing(picture, {})}
    return Done(done, "", shown, (command("barnabas", "pipeline", "check", "FILE"),))


async def _views(ask: Ask, name: str) -> list[dict[str, Any]]:
    """The views; none where the server is of a version without them."""
    try:
        views: list[dict[str, Any]] = await call(ask, "GET", f"/pipelines/{name}/views")
    except Refused:
        return []
    return views


async def _dead_letters(ask: Ask, topic: str | None) -> dict[str, Any] | None:
    """How many of the newest dead letters have which reason; None where there is no such topic to be seen."""
    from barnabas.console.pages.records.asked import question

    if not topic or not ask.sees(topic):
        return None
    inner = Ask(
        ask.cluster, {"topic": topic}, {"limit": str(DEAD_LETTERS)}, ask.user, ask.role_for, ask.masking
    )
    counts: dict[str, int] = {}
    seen = 0
    try:
        asked = await question(inner, DEAD_LETTERS)
        async for rows in asked.search.batches():
            for row in rows:
                seen += 1
                reason = next((v for h, v in row.headers if v is not None and h == REASON), b"?")
                key = (reason or b"?").decode("utf-8", "replace")[:300]
                counts[key] = counts.get(key, 0) + 1
    except ClientError as error:
        if getattr(error, "code", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return {"topic": topic, "seen": 0, "reasons": [], "is_whole": True}
        return None
    except Refused:
        return None
    reasons = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return {
        "topic": topic,
        "seen": seen,
        "reasons": [{"reason": reason, "count": count} for reason, count in reasons],
        "is_whole": asked.search.is_over,
    }


async def act(ask: Ask) -> Done:
    """Start, pause, resume, stop or restart a pipeline: action; from (earliest, latest, milliseconds) for a restart"""
    name, action = ask.path["pipeline"], ask.required("action")
    if action not in ACTIONS:
        raise Refused(400, said("{name} must be one of {choices}", name="action", choices=", ".join(ACTIONS)))
    body: dict[str, Any] | None = None
    words = [action, name]
    place = ask.text("from")
    if action == "restart" and place:
        body = {"from": int(place) if place.isdecimal() else place}
        words += ["--from", place]
    status = await call(ask, "POST", f"/pipelines/{encoded(name)}/{action}", body or {})
    return Done(
        said("{name}: {state}", name=name, state=status["state"]),
        f"/pipelines/{encoded(name)}",
        {"pipeline": name, "action": action, "state": status["state"]},
        (_shell(ask, *words),),
    )


async def put(ask: Ask) -> Done:
    """Store a pipeline file and start it, or replace the one of its name: file (YAML); start=0 only stores it"""
    text = (ask.raw("file") or "").replace("\r\n", "\n")
    if not text.strip():
        raise Refused(400, said("{name} is missing", name="file"))
    start = "false" if ask.text("start", "1") == "0" else "true"
    status = await call(ask, "POST", f"/pipelines?start={start}", raw=text.encode())
    name = status["name"]
    return Done(said("{name}: {state}", name=name, state=status["state"]), f"/pipelines/{encoded(name)}",
                {"pipeline": name}, (_shell(ask, "add", "FILE"),))  # fmt: skip


async def read_view(ask: Ask) -> Data:
    """Rows of a view: key (repeated for a key of several fields), limit, after"""
    name, view = ask.path["pipeline"], ask.path["view"]
    fields: list[tuple[str, str]] = [("key", key) for key in ask.texts("key") if key]
    for word in ("from", "to", "window", "after"):
        if ask.text(word):
            fields.append((word, ask.text(word)))
    fields.append(("limit", str(ask.number("limit", 50, 1, ROWS_MAX))))
    path = f"/pipelines/{encoded(name)}/views"
    views = await call(ask, "GET", path)
    about = next((one for one in views if one["name"] == view), None)
    if about is None:
        raise Refused(404, said("There is no view {name}", name=view[:100]))
    page = await call(ask, "GET", f"{path}/{encoded(view)}?{urlencode(fields)}")
    return {
        "pipeline": name,
        "view": about,
        "as_of": page["as_of"],
        "rows": page["rows"],
        "next": page.get("next"),
        "commands": [_shell(ask, "get", f"{name}/{view}", *[key for word, key in fields if word == "key"])],
    }


PAGES: Final = (
    Page(
        "pipelines", "/pipelines", "pipelines", read,
        actions=(Action("/pipelines", put), Action("/pipelines/check", check, Role.READ, is_change=False)),
    ),
    Page(
        "pipelines", "/pipelines/{pipeline}", "pipelines", read_one, named="pipeline", template="one.html",
        actions=(Action("/pipelines/{pipeline}/act", act, Role.OPERATE, "pipeline"),),
    ),
    Page(
        "pipelines", "/pipelines/{pipeline}/edit", "pipelines", read_file, Role.ADMIN, "pipeline", "edit.html",
        actions=(Action("/pipelines/{pipeline}/check", check, Role.ADMIN, "pipeline", is_change=False),),
    ),
    Page("pipelines", "/pipelines/{pipeline}/preview", "pipelines", read_preview, named="pipeline", template="preview.html"),
    Page("pipelines", "/pipelines/{pipeline}/views/{view}", "pipelines", read_view, named="pipeline", template="view.html"),
)  # fmt: skip
