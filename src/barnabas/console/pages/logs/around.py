"""The lines before and after one line, of the same file on the same host."""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.admin.values import TopicPartition
from barnabas.console.asking import Ask
from barnabas.console.pages.logs.looking import rows_in
from barnabas.console.pages.logs.shaping import line_of
from barnabas.console.records.fetching import Piece, columns_of, fetch
from barnabas.console.said import Refused, said
from barnabas.console.site import Data
from barnabas.logs.rows import Row

LINES: Final = 20
OFFSETS: Final = 2_000
"""How far before and after a line its neighbours are looked for; other files may be between them."""
OFFSET_MAX: Final = (1 << 63) - 1


async def read_around(ask: Ask) -> Data:
    """Lines around one: partition, offset, lines (how many before and after)"""
    topic = ask.path["topic"]
    if ask.masks():
        raise Refused(
            403,
            said("Fields of {topic} are hidden from you, and its lines would show them", topic=topic[:100]),
        )
    number = ask.number("partition", 0, 0, (1 << 31) - 1)
    offset = ask.number("offset", 0, 0, OFFSET_MAX)
    count = ask.number("lines", LINES, 1, 500)
    place = TopicPartition(topic, number)
    bounds = (await ask.admin.records.bounds([place], read_committed=True))[place]
    rows = await _rows(
        ask, place, max(int(bounds.start), offset - OFFSETS), min(int(bounds.end), offset + OFFSETS + 1)
    )
    at = next((index for index, row in enumerate(rows) if row.offset == offset), None)
    if at is None:
        raise Refused(
            404, said("There is no record at offset {offset} of {place}", offset=offset, place=str(place))
        )
    hit = rows[at]
    before = [row for row in rows[:at] if _is_beside(row, hit)][-count:]
    after = [row for row in rows[at + 1 :] if _is_beside(row, hit)][:count]
    return {
        "topic": topic,
        "partition": number,
        "offset": offset,
        "count": count,
        "host": hit.host,
        "path": hit.path,
        "lines": [line_of(row) for row in (*before, hit, *after)],
        "commands": [
            ask.command(
                "consume", topic, "-p", str(number), "-o", str(max(offset - count, 0)), "-c", str(2 * count)
            )
        ],
    }


def _is_beside(row: Row, hit: Row) -> bool:
    return row.host == hit.host and row.path == hit.path


async def _rows(ask: Ask, place: TopicPartition, begin: int, end: int) -> list[Row]:
    all_rows: list[Row] = []
    at = begin
    while at < end:
        piece = await fetch(ask.cluster.reading, place, at)
        if not piece.records:
            break
        rows = await asyncio.to_thread(_in_piece, piece, end)
        if not rows:
            break
        all_rows += rows
        at = rows[-1].offset + 1
    return all_rows


def _in_piece(piece: Piece, end: int) -> list[Row]:
    return [row for part in columns_of(piece, end) for row in rows_in(part)]
