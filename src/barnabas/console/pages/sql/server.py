"""Asks a SQL server over HTTP: one of Barnabas, or ksqlDB."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from barnabas.console import services
from barnabas.console.asking import Ask
from barnabas.console.said import Refused, said
from barnabas.console.services import SQL
from barnabas.console.shell import command

TIMEOUT_S: Final = 120.0
"""A statement may start a job of Spark."""
COMMENT: Final = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
QUERY: Final = re.compile(r"\s*(SELECT|PRINT)\b", re.IGNORECASE)
PRINTED: Final = re.compile(r"\s*PRINT\s+['\"`]?([^\s'\"`;]+)", re.IGNORECASE)
NAME: Final = re.compile(r"[\w.-]+")
START: Final = "auto.offset.reset"
STARTS: Final = ("latest", "earliest")


def shell(ask: Ask, *words: str) -> str:
    """A `barnabas sql` command for this server."""
    return command("barnabas", "sql", services.service_url(ask, SQL), *words)


async def call(ask: Ask, method: str, path: str, body: Any = None) -> Any:
    """The JSON of an answer. Raises Refused."""
    return await services.call(ask, SQL, method, path, body, timeout_s=TIMEOUT_S)


def is_query(text: str) -> bool:
    """Whether the text is one that answers with rows."""
    return QUERY.match(COMMENT.sub(" ", text)) is not None


def stream_properties(ask: Ask) -> dict[str, str]:
    """What is set before the statements. Raises Refused."""
    start = ask.text("start", STARTS[0])
    if start not in STARTS:
        raise Refused(400, said("{name} must be one of {choices}", name="start", choices=", ".join(STARTS)))
    return {START: start}


def require_readable(ask: Ask, text: str, relations: Collection[Mapping[str, Any]]) -> None:
    """Raises Refused where a query would show what the user may not see, or fields that are hidden from them."""
    words = {word.upper() for word in NAME.findall(text)}
    topics = [about["topic"] for about in relations if str(about["name"]).upper() in words]
    printed = PRINTED.match(COMMENT.sub(" ", text))
    if printed is not None:
        topics.append(printed[1])
    for topic in topics:
        if not ask.sees(topic):
            raise Refused(403, said("You may not see {topic}", topic=topic[:100]))
    for topic in {about["topic"] for about in relations} | set(topics):
        if ask.masking.of(topic, ask.role_for(topic)):
            raise Refused(
                403,
                said("Fields of {topic} are hidden from you, and a query would show them", topic=topic[:100]),
            )
