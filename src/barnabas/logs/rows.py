"""What a log record is to a search: a row with a time, a level, a message, and where it comes from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

LEVEL: Final = re.compile(r"\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|PANIC)\b")
"""What is taken as the level of a line that does not say it in a field."""
LEVEL_CHARACTERS: Final = 200
"""Where in a line a level may be."""
MINUTE_MS: Final = 60_000
COLUMNS: Final = ("time", "level", "message", "host", "path", "fields", "partition", "offset")
ENVELOPE: Final = frozenset({"@timestamp", "@metadata", "message", "host", "agent", "ecs", "input", "log"})
"""What is not among the fields of a row."""


class Row(NamedTuple):
    """time: milliseconds since 1970. level: in capitals; empty if there is none. fields: JSON of what else is known."""

    time: int
    level: str
    message: str
    host: str
    path: str
    fields: str
    partition: int = -1
    offset: int = -1


def level_of(message: str) -> str:
    """The level in a line; empty if there is none."""
    match = LEVEL.search(message, 0, LEVEL_CHARACTERS)
    return match[1] if match else ""


def milliseconds(text: str) -> int | None:
    """A time of an event; None if it is none."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def row_of(
    value: bytes,
    timestamp_ms: int,
    headers: Iterable[tuple[str, bytes]] = (),
    partition: int = -1,
    offset: int = -1,
) -> Row:
    """The row of a record: an event in JSON as the agent writes it, or a line of text."""
    if value.startswith(b"{"):
        try:
            event = json.loads(value)
        except ValueError:
            event = None
        if isinstance(event, dict):
            return _of_event(event, timestamp_ms, partition, offset)
    message = value.decode("utf-8", "replace").removesuffix("\r")
    path, own = "", {}
    for name, data in headers:
        text = (data or b"").decode("utf-8", "replace")
        if name == "file":
            path = text
        elif name not in ("position", "end"):
            own[name] = text
    return Row(timestamp_ms, level_of(message), message, "", path, _json(own), partition, offset)


def _of_event(event: Mapping[str, Any], timestamp_ms: int, partition: int, offset: int) -> Row:
    def inner(*names: str) -> str:
        content: Any = event
        for name in names:
            content = content.get(name) if isinstance(content, dict) else None
        return content if isinstance(content, str) else ""

    message = event.get("message", "")
    message = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    time = milliseconds(inner("@timestamp"))
    level = (inner("log", "level") or inner("level")).upper() or level_of(message)
    fields = {name: value for name, value in event.items() if name not in ENVELOPE}
    return Row(
        timestamp_ms if time is None else time,
        level,
        message,
        inner("host", "name"),
        inner("log", "file", "path"),
        _json(fields),
        partition,
        offset,
    )


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) if fields else ""


def shown(milliseconds_: int) -> str:
    """A time for people."""
    return datetime.fromtimestamp(milliseconds_ / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
