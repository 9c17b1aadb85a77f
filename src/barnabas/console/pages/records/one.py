"""One record: all of it, the batch that it came in, and which groups have passed it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask
from barnabas.console.pages.records.showing import WHOLE_MAX, shown_row
from barnabas.console.pages.topic import topic_of
from barnabas.console.records.fetching import Piece, Row, Rows, columns_of, fetch
from barnabas.console.said import Refused, said
from barnabas.console.site import Data, Page
from barnabas.records.batch import CorruptBatch, batches

SHOWN_MAX: Final = 200_000
"""Characters of a value on the page; the API returns all of them with whole=1."""


async def read(ask: Ask) -> Data:
    """One record whole, with its batch and the groups that have passed it; whole=1 does not cut its value"""
    topic = await topic_of(ask)
    try:
        partition, offset = int(ask.path["partition"]), int(ask.path["offset"])
    except ValueError:
        raise Refused(404, said("There is no such record")) from None
    if not 0 <= partition < len(topic.partitions) or offset < 0:
        raise Refused(404, said("There is no such record"))
    place = TopicPartition(topic.name, partition)
    how = ask.text("key_as", "auto"), ask.text("value_as", "auto")
    formats = ask.cluster.decoder.formats
    if how[0] not in formats or how[1] not in formats:
        raise Refused(400, said("{name} is not one of {choices}", name="format", choices=", ".join(formats)))
    bound = (await ask.admin.records.bounds([place]))[place]
    if not bound.start <= offset < bound.end:
        raise Refused(
            404,
            said("Partition {partition} holds the offsets {start} to {end}", partition=partition, start=bound.start,
                 end=bound.end),
        )  # fmt: skip
    piece = await fetch(ask.cluster.reading, place, offset, max_bytes=64 << 10)
    row = await asyncio.to_thread(_first, piece, offset)
    if row is None:
        raise Refused(
            404,
            said(
                "There is no record at offset {offset} of partition {partition}",
                offset=offset,
                partition=partition,
            ),
            said("It was removed by compaction, or is the mark of a transaction."),
        )
    length = WHOLE_MAX if ask.flag("whole") else SHOWN_MAX
    return {
        "topic": topic.name,
        "record": await asyncio.to_thread(shown_row, ask, row, how, length),
        "batch": _batch(piece, offset),
        "before": offset - 1 if offset > bound.start else None,
        "after": offset + 1 if offset + 1 < bound.end else None,
        "groups": await _groups(ask, place, offset),
        "formats": formats,
        "tab": "records",
        "commands": [
            ask.command("consume", topic.name, "-p", str(partition), "-o", f"{offset}:{offset + 1}", "-J"),
        ],
    }


def _first(piece: Piece, offset: int) -> Row | None:
    for part in columns_of(piece, offset + 1):
        if isinstance(part, Rows):
            return next((row for row in part.records if row.offset == offset), None)
        for index in range(part.rows):
            if part.offsets[index] == offset:
                return part.row(index)
    return None


def _batch(piece: Piece, offset: int) -> dict[str, Any] | None:
    """What is said of all records of a batch: who wrote it, in which epoch, compressed how."""
    try:
        for _, header in batches(piece.records):
            if header.magic < 2:
                return None
            if header.base_offset <= offset <= header.last_offset:
                return {
                    "base_offset": header.base_offset,
                    "records": header.record_count,
                    "size_bytes": header.size_bytes,
                    "compression": header.codec.name.lower(),
                    "producer_id": header.producer_id if header.has_producer_id else None,
                    "producer_epoch": header.producer_epoch if header.has_producer_id else None,
                    "is_transactional": header.is_transactional,
                    "leader_epoch": header.partition_leader_epoch,
                }
    except CorruptBatch:
        return None
    return None


async def _groups(ask: Ask, place: TopicPartition, offset: int) -> list[dict[str, Any]]:
    """The groups that have committed an offset in the partition, and whether it lies behind the record."""
    try:
        commits = await ask.cluster.commits.get()
    except ClientError:
        return []
    return [
        {
            "group": group,
            "committed": int(offsets[place].offset),
            "has_passed": offsets[place].offset > offset,
        }
        for group, offsets in sorted(commits.items())
        if place in offsets and ask.sees(group)
    ]


PAGE: Final = Page(
    "records",
    "/topics/{topic}/records/{partition}/{offset}",
    "topics",
    read,
    named="topic",
    template="one.html",
)
