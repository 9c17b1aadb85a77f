"""What was changed lately through the console: as its audit topic tells, or else as this process remembers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.admin import AsyncAdmin
from barnabas.admin.values import TopicPartition
from barnabas.client.async_cluster import AsyncCluster
from barnabas.console.records.fetching import Piece, Rows, columns_of, fetch
from barnabas.console.rendering import moment
from barnabas.console.said import Said
from barnabas.console.words import CHINESE

KEPT_MAX: Final = 50
"""Changes of a cluster that a console remembers, or reads of its topic."""
SHOWN_MAX: Final = 10
READ_BYTES_MAX: Final = 1 << 20
FETCHES_MAX: Final = 5
TEXT_MAX: Final = 500
Entry = Mapping[str, Any]


def lately(entries: Sequence[Entry], by: str | None) -> list[dict[str, Any]]:
    """The newest changes first. by: only those of this user; None: of all."""
    shown = [entry for entry in entries if by is None or entry.get("user") == by]
    return [
        {
            "time": moment(entry["time_ms"]),
            "user": _text(entry.get("user")),
            "what": _what(entry),
            "failure": _text(entry.get("failure")),
        }
        for entry in sorted(shown, key=lambda entry: entry["time_ms"], reverse=True)[:SHOWN_MAX]
    ]


async def read_topic(admin: AsyncAdmin, reading: AsyncCluster, topic: str) -> list[Entry]:
    """The last entries of an audit topic. Raises ClientError."""
    place = TopicPartition(topic, 0)
    bound = (await admin.records.bounds([place]))[place]
    at = max(int(bound.start), int(bound.end) - KEPT_MAX)
    entries: list[Entry] = []
    for _ in range(FETCHES_MAX):
        if at >= bound.end:
            break
        piece = await fetch(reading, place, at, max_bytes=READ_BYTES_MAX)
        values, following = await asyncio.to_thread(_values, piece, at, int(bound.end))
        entries += [entry for value in values if (entry := _entry(value)) is not None]
        if following <= at:
            break
        at = following
    return entries[-KEPT_MAX:]


def _values(piece: Piece, begin: int, end: int) -> tuple[list[bytes], int]:
    """(values of the records from an offset on, where to go on)."""
    values: list[bytes] = []
    following = begin
    for part in columns_of(piece, end):
        if isinstance(part, Rows):
            rows = part.records
            following = max([following, *(row.offset + 1 for row in rows)])
        else:
            rows = [part.row(index) for index in range(part.rows)]
            following = max(following, part.next_offset)
        values += [row.value for row in rows if row.offset >= begin and row.value is not None]
    return values, following


def _entry(value: bytes) -> Entry | None:
    """An entry as it was written; None for what others have written into the topic."""
    try:
        entry = json.loads(value)
    except (ValueError, RecursionError):
        return None
    is_entry = isinstance(entry, dict) and isinstance(entry.get("time_ms"), int) and "action" in entry
    return entry if is_entry else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)[:TEXT_MAX]


def _what(entry: Entry) -> Said:
    """The sentence of the change, otherwise what was asked for.

    A topic may be written by others: only sentences that the console has itself are taken as such, as their gaps are filled.
    """
    text, values = entry.get("said"), entry.get("values")
    if isinstance(text, str) and text in CHINESE and isinstance(values, dict):
        sentence = Said(text, {str(name): _text(value) for name, value in values.items()})
        try:
            str(sentence)
        except (KeyError, IndexError, ValueError, AttributeError):
            pass
        else:
            return sentence
    return Said("{what}", {"what": _text(entry.get("result") or entry.get("action"))})
