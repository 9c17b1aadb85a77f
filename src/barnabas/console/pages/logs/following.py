"""Lines of a log as they arrive."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from barnabas.admin.values import TopicPartition
from barnabas.console.asking import Ask
from barnabas.console.pages.logs.looking import rows_in
from barnabas.console.pages.logs.shaping import line_of
from barnabas.console.records.fetching import Columns, Damaged, Piece, columns_of, fetch
from barnabas.console.said import Refused, said
from barnabas.logs.query import BadQuery, Node, parse
from barnabas.logs.rows import Row

TURN_S: Final = 0.5
BEAT_S: Final = 10.0
SHOWN_PER_TURN: Final = 100


async def follow(ask: Ask) -> AsyncIterator[Mapping[str, Any]]:
    """The lines that match as they arrive, as events: begun, found (records: lines), beat; q (words or a condition)"""
    topic = ask.path["topic"]
    if ask.masks():
        raise Refused(
            403,
            said("Fields of {topic} are hidden from you, and its lines would show them", topic=topic[:100]),
        )
    try:
        node = parse(ask.text("q"))
    except BadQuery as error:
        raise Refused(400, said("The query cannot be understood: {reason}", reason=str(error))) from None
    described = (await ask.admin.topics.describe([topic]))[topic]
    keys = [TopicPartition(topic, part.number) for part in described.partitions if part.leader >= 0]
    at = await _ends(ask, keys)
    yield {"event": "begun", "said": said("Following {count} partitions.", count=len(at))}
    told_s = time.monotonic()
    while True:
        began_s = time.monotonic()
        rows: list[Row] = []
        for key, end in (await _ends(ask, keys)).items():
            while at[key] < end and time.monotonic() - began_s < BEAT_S:
                piece = await fetch(ask.cluster.reading, key, at[key])
                matching, after = await asyncio.to_thread(_matching, piece, end, node)
                rows, at[key] = rows + matching, max(after, at[key] + 1) if piece.records else end
        if rows:
            rows.sort(key=lambda row: (row.time, row.offset), reverse=True)
            event: dict[str, Any] = {
                "event": "found",
                "records": [line_of(row) for row in rows[:SHOWN_PER_TURN]],
            }
            if len(rows) > SHOWN_PER_TURN:
                event["said"] = said(
                    "{count} more records arrived than can be shown.", count=len(rows) - SHOWN_PER_TURN
                )
            yield event
            told_s = time.monotonic()
        elif time.monotonic() - told_s >= BEAT_S:
            told_s = time.monotonic()
            yield {"event": "beat"}
        await asyncio.sleep(max(TURN_S - (time.monotonic() - began_s), 0.05))


async def _ends(ask: Ask, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
    bounds = await ask.admin.records.bounds(keys, read_committed=True)
    if not bounds.done:
        for error in bounds.failed.values():
            raise error
    return {key: int(bound.end) for key, bound in bounds.done.items()}


def _matching(piece: Piece, end: int, node: Node) -> tuple[list[Row], int]:
    """(the lines of a piece that match, the offset after them)."""
    matching: list[Row] = []
    after = piece.start
    try:
        for part in columns_of(piece, end):
            for row in rows_in(part):
                after = row.offset + 1
                if node.matches(row):
                    matching.append(row)
            if isinstance(part, Columns):
                after = max(after, part.next_offset)
    except Damaged:
        after = end
    return matching[-10 * SHOWN_PER_TURN :], after
