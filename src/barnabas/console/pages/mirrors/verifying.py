"""Compares the copies of a link with their source, by counts and checksums, while somebody watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from barnabas.admin import AsyncAdmin
from barnabas.admin.families.links import Link
from barnabas.admin.values import TopicPartition
from barnabas.client.cluster import Cluster as Connections
from barnabas.client.comparing import batches_of, compare
from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.console.asking import Ask
from barnabas.console.said import Refused, said
from barnabas.records.units import Offset

STEP: Final = 100_000
"""How many offsets are compared at a time."""
FETCH: Final = 1
BATCHES_VERSION: Final = 4
"""The first version of Fetch that answers with batches."""


def source_options(ask: Ask, link: Link) -> ClientOptions:
    """How the console reaches a link's source: as one of its own clusters if it is one, otherwise without a login."""
    wanted = set(link.source.replace(" ", "").split(","))
    for cluster in ask.cluster.others.values():
        if wanted & set(cluster.where.split(",")):
            return cluster.patient
    return ClientOptions.from_kafka({"client.id": "barnabas-console", "bootstrap.servers": link.source})


async def verify(ask: Ask) -> AsyncIterator[Mapping[str, Any]]:
    """Compare copies with their source, range by range, as events: found (records: ranges), done; topic: only this one"""
    name = ask.path["link"]
    link = next((candidate for candidate in await ask.admin.links.describe() if candidate.name == name), None)
    if link is None:
        raise Refused(404, said("There is no link {name}", name=name[:100]))
    chosen = ask.text("topic")
    topics = [topic for topic in link.topics if ask.sees(topic) and chosen in ("", topic)]
    options = source_options(ask, link)
    source = AsyncAdmin(options)
    ours, theirs = Connections(ask.cluster.patient), Connections(options)
    same = records = 0
    try:
        places = await _common(ask, source, topics, link)
        yield {"event": "progress", "said": said("Comparing {count} partitions.", count=len(places))}
        await asyncio.to_thread(_require_batches, theirs, link)
        for key, first, end in places:
            place = (key.topic, key.partition, Offset(first), Offset(end))
            ranges = compare(batches_of(theirs, *place), batches_of(ours, *place), first, end, STEP)
            while (part := await asyncio.to_thread(next, ranges, None)) is not None:
                same, records = same + (part.differs_from < 0), records + part.copied_records
                yield {
                    "event": "found",
                    "records": [{"topic": key.topic, "partition": key.partition, **part.as_json()}],
                }
                if part.differs_from >= 0:
                    yield {"event": "done", "said": _differs(key, part.differs_from)}
                    return
        yield {
            "event": "done",
            "said": said(
                "{records} records in {count} ranges: both sides are the same.", records=records, count=same
            ),
        }
    finally:
        await source.close()
        await asyncio.to_thread(ours.close)
        await asyncio.to_thread(theirs.close)


def _differs(key: TopicPartition, offset: int) -> Any:
    return said("{partition} differs from offset {offset} on.", partition=str(key), offset=offset)


def _require_batches(theirs: Connections, link: Link) -> None:
    if theirs.any().versions[FETCH][1] < BATCHES_VERSION:
        raise Refused(
            501,
            said("The source is too old to be compared by batches"),
            said("Compare its records with: barnabas mirror verify {name}", name=link.name),
        )


async def _common(
    ask: Ask, source: AsyncAdmin, topics: list[str], link: Link
) -> list[tuple[TopicPartition, int, int]]:
    """(partition, first, end) of what both sides hold."""
    layout = await ask.cluster.layout.get()
    keys = [
        TopicPartition(topic, part.number)
        for topic in topics
        if topic in layout.topics
        for part in layout.topics[topic].partitions
    ]
    try:
        ours, theirs = await asyncio.gather(ask.admin.records.bounds(keys), source.records.bounds(keys))
    except ClientError as error:
        raise Refused(
            502,
            said(
                "The source {source} cannot be read from here: {reason}",
                source=link.source,
                reason=str(error),
            ),
            said("If it asks for a login, name it to the console with --also NAME=FILE."),
        ) from None
    ranges = []
    for key in keys:
        if key in ours.done and key in theirs.done:
            first = max(ours.done[key].start, theirs.done[key].start)
            end = min(ours.done[key].end, theirs.done[key].end)
            if first < end:
                ranges.append((key, int(first), int(end)))
    return ranges
