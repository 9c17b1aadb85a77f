"""Log search: lines of a topic and its table, by words or a condition; over time, by field, by pattern; live; in context."""

from __future__ import annotations

import re
import time
from typing import Any, Final

from barnabas.console.asking import Ask
from barnabas.console.pages.logs.around import read_around
from barnabas.console.pages.logs.following import follow
from barnabas.console.pages.logs.looking import Look, Range
from barnabas.console.pages.logs.shaping import shaped
from barnabas.console.rendering import encoded
from barnabas.console.said import Refused, said
from barnabas.console.site import Data, Page
from barnabas.logs.query import BadQuery, Node, parse
from barnabas.logs.rows import milliseconds

PAGE_S: Final = 2.0
"""How long a page looks at lines; a search goes on."""
TOLD_S: Final = 1.0
SPANS: Final = ("15m", "1h", "6h", "1d", "7d", "30d", "all")
SINCE: Final = "1h"
DURATION: Final = re.compile(r"(\d{1,6})(s|m|h|d|w)")
UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


async def read(ask: Ask) -> Data:
    """The topics in which logs may be, to choose one"""
    layout = await ask.cluster.layout.get()
    names = sorted(name for name, topic in layout.topics.items() if not topic.is_internal and ask.sees(name))
    return {
        "topics": names,
        "tables": sorted(name for name in ask.cluster.tables if ask.sees(name)),
        "commands": ["barnabas logs search 'timeout -retry' -t TOPIC --since 1h"],
    }


def node_of(ask: Ask) -> Node:
    """What is searched for. Raises Refused."""
    try:
        return parse(ask.text("q"))
    except BadQuery as error:
        raise Refused(
            400,
            said("The query cannot be understood: {reason}", reason=str(error)),
            said(
                "Write words (timeout -retry user:anna), or a condition (level = 'ERROR' AND message LIKE '%timeout%')."
            ),
        ) from None


def moment_of(ask: Ask, field: str, default: str) -> int | None:
    """A time in ms since 1970: a duration before now, or a time; None for all. Raises Refused."""
    text = ask.text(field, default)
    if text in ("", "all"):
        return None
    duration = DURATION.fullmatch(text)
    if duration is not None:
        return int(time.time() * 1000) - int(duration[1]) * UNITS_MS[duration[2]]
    at = int(text) if text.isdecimal() and len(text) <= 15 else milliseconds(text)
    if at is None:
        raise Refused(400, said("{name} is no time: {value}", name=field, value=text[:40]))
    return at


def look_of(ask: Ask) -> Look:
    """A look through a log, as the query asks for it. Raises Refused."""
    topic = ask.path["topic"]
    if ask.masks():
        raise Refused(
            403,
            said("Fields of {topic} are hidden from you, and its lines would show them", topic=topic[:100]),
        )
    since, until = moment_of(ask, "since", SINCE), moment_of(ask, "until", "")
    return Look(ask.cluster, topic, node_of(ask), Range(since, until), compares=ask.flag("compare"))


async def read_log(ask: Ask) -> Data:
    """Lines of a log that match, the newest first, with how many there are over time, by field and by pattern: q (words or
    a condition), since, until (30m, 2h, 7d, all, or a time), compare (marks patterns that are new)"""
    look = look_of(ask)
    deadline_s = time.monotonic() + PAGE_S
    async for _ in look.steps():
        if time.monotonic() > deadline_s:
            break
    words = ["logs", "search", ask.text("q"), "-t", ask.path["topic"], "--since", ask.text("since", SINCE)]
    return {
        "topic": ask.path["topic"],
        "q": ask.text("q"),
        "since": ask.text("since", SINCE),
        "until": ask.text("until"),
        "compare": ask.flag("compare"),
        "spans": SPANS,
        "result": shaped(look),
        "commands": [ask.command(*words), ask.command("logs", "patterns", *words[2:])],
    }


async def search(ask: Ask) -> Any:
    """Search a log to the end, as events: result (everything so far), done; fields as of the page"""
    look = look_of(ask)
    told_s = time.monotonic()
    yield {"event": "begun", "said": said("Searching …")}
    async for _ in look.steps():
        if time.monotonic() - told_s >= TOLD_S:
            told_s = time.monotonic()
            yield {"event": "result", "records": shaped(look), "said": look.said()}
    yield {"event": "result", "records": shaped(look), "said": look.said()}
    yield {"event": "done", "said": look.said()}


def home(topic: str) -> str:
    """The page of a log, below the cluster's address."""
    return f"/logs/{encoded(topic)}"


PAGES: Final = (
    Page("logs", "/logs", "logs", read),
    Page(
        "logs", "/logs/{topic}", "logs", read_log, named="topic", template="one.html", rows="logs/result.html",
        streams={"/logs/{topic}/search": search},
    ),
    Page(
        "logs", "/logs/{topic}/around", "logs", read_around, named="topic", template="around.html", rows="logs/lines.html",
        streams={"/logs/{topic}/tail": follow},
    ),
)  # fmt: skip
