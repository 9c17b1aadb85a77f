"""How far connectors are: lag of those that read topics, records per second of those and of those that write them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask
from barnabas.console.pages.connectors.worker import at, call
from barnabas.console.said import Refused

OF_GROUP: Final = "consumer.override.group.id"
TOPICS_MAX: Final = 50
"""The sources that are asked for their topics on a page with all connectors."""


def group_of(name: str, info: Mapping[str, Any]) -> str:
    """The consumer group of a sink."""
    return str((info.get("config") or {}).get(OF_GROUP) or f"connect-{name}")


async def progress_of(
    ask: Ask, infos: Mapping[str, Mapping[str, Any]], topics: Mapping[str, Sequence[str]] | None = None
) -> dict[str, dict[str, Any]]:
    """lag, in records, and per_second, by connector; None while unknown. The rate of a source is that of its topics.

    topics: by connector; None: the worker is asked for those of sources.
    """
    nothing: dict[str, dict[str, Any]] = {name: {"lag": None, "per_second": None} for name in infos}
    try:
        bounds, commits = await asyncio.gather(ask.cluster.bounds.get(), ask.cluster.commits.get())
    except ClientError:
        return nothing
    speeds = ask.cluster.group_rates()
    if topics is None:
        sources = [name for name, info in infos.items() if info.get("type") == "source"][:TOPICS_MAX]
        asked = await asyncio.gather(*(topics_of(ask, name) for name in sources))
        topics = dict(zip(sources, asked, strict=True))
    rates = ask.cluster.rates()
    for name, info in infos.items():
        if info.get("type") == "source":
            known = [rates[topic] for topic in topics.get(name, ()) if topic in rates]
            nothing[name]["per_second"] = sum(known) if known else None
            continue
        group = group_of(name, info)
        lags = [
            max(bounds[key].end - max(committed.offset, bounds[key].start), 0)
            for key, committed in commits.get(group, {}).items()
            if key in bounds
        ]
        nothing[name] = {"lag": sum(lags) if lags else None, "per_second": speeds.get(group)}
    return nothing


async def topics_of(ask: Ask, name: str) -> list[str]:
    """The topics that a connector has read or written; none where the worker does not tell."""
    try:
        topics_by_connector = await call(ask, "GET", at(name, "topics"))
    except Refused:
        return []
    return list(topics_by_connector.get(name, {}).get("topics", []))


async def partitions_of(
    ask: Ask, offsets: Sequence[Mapping[str, Any]], info: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The partitions that a sink has read, with their lag; empty for a source."""
    if info.get("type") != "sink":
        return []
    try:
        bounds = await ask.cluster.bounds.get()
    except ClientError:
        bounds = {}
    rows = []
    for one in offsets:
        place, offset = one["partition"], (one["offset"] or {}).get("kafka_offset")
        key = TopicPartition(str(place.get("kafka_topic")), int(place.get("kafka_partition", 0)))
        bound = bounds.get(key)
        lag = None if bound is None or offset is None else max(bound.end - max(offset, bound.start), 0)
        rows.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "offset": offset,
                "end": None
                if bound is None
                else max(bound.end, offset or 0),  # the end is some seconds older
                "lag": lag,
            }
        )
    return rows
