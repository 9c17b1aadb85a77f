"""Follows partitions from their ends on, and shows what arrives, as much of it as somebody can look at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from barnabas.admin.values import TopicPartition
from barnabas.client.async_cluster import AsyncCluster
from barnabas.console.asking import Ask
from barnabas.console.pages.records.showing import shown_rows
from barnabas.console.records.fetching import Row
from barnabas.console.records.scanning import Scan, Wanted
from barnabas.console.records.searching import parse_cursor
from barnabas.console.said import Refused, said

SHOWN_PER_TURN: Final = 50
TURN_S: Final = 0.5
BEAT_S: Final = 10.0
"""A word at least so often, so that a connection that has gone away is noticed."""


async def follow(
    ask: Ask, cluster: AsyncCluster, topic: str, numbers: list[int], wanted: Wanted, how: tuple[str, str]
) -> AsyncIterator[Mapping[str, Any]]:
    """found: records, with `left_out`, the number of others in this turn, and `at`, where a request with it goes on; beat:
    nothing new, but still there. Raises Refused, ClientError.
    """
    keys = [TopicPartition(topic, number) for number in numbers]
    bounds = {key.partition: bound for key, bound in (await _bounds(ask, keys)).items()}
    places = begin_of(ask)
    at = {
        n: min(max(places.get(n, int(bound.end)), int(bound.start)), int(bound.end))
        for n, bound in bounds.items()
    }
    yield {"event": "begun", "at": at, "said": said("Following {count} partitions.", count=len(at))}
    told_s = time.monotonic()
    while True:
        began_s = time.monotonic()
        ends = {key.partition: int(b.end) for key, b in (await _bounds(ask, keys)).items()}
        fresh = {n: at.get(n, end) for n, end in ends.items() if end > at.get(n, end)}
        at = {n: at.get(n, end) for n, end in ends.items()}
        if fresh:
            rows, left_out = await _read(ask, cluster, topic, wanted, fresh, ends)
            at.update({n: ends[n] for n in fresh})
            if rows or left_out:
                shown = await asyncio.to_thread(shown_rows, ask, rows, how)
                event = {"event": "found", "records": shown, "left_out": left_out, "at": at}
                if left_out:
                    event["said"] = said("{count} more records arrived than can be shown.", count=left_out)
                yield event
                told_s = time.monotonic()
        if time.monotonic() - told_s >= BEAT_S:
            told_s = time.monotonic()
            yield {"event": "beat"}
        await asyncio.sleep(max(TURN_S - (time.monotonic() - began_s), 0.05))


def begin_of(ask: Ask) -> Mapping[int, int]:
    """Where a tail that was interrupted goes on, by partition; nothing for one that begins. Raises Refused."""
    if not ask.text("at"):
        return {}
    try:
        return parse_cursor(ask.text("at"))
    except ValueError:
        raise Refused(400, said("{name} must look like {example}", name="at", example="0:15,1:20")) from None


async def _bounds(ask: Ask, keys: list[TopicPartition]) -> Mapping[TopicPartition, Any]:
    bounds = await ask.admin.records.bounds(keys, read_committed=True)
    if not bounds.done:
        for error in bounds.failed.values():
            raise error
    return bounds.done


async def _read(
    ask: Ask,
    cluster: AsyncCluster,
    topic: str,
    wanted: Wanted,
    fresh: Mapping[int, int],
    ends: Mapping[int, int],
) -> tuple[list[Row], int]:
    """(the newest records that fit, how many offsets were passed over unseen)."""
    room = SHOWN_PER_TURN
    left_out = 0
    starts = dict(fresh)
    if wanted.is_everything:
        # More than can be shown has arrived: only the last records of each partition are read.
        share = max(room // len(fresh), 1)
        for number, start in fresh.items():
            starts[number] = max(start, ends[number] - share)
            left_out += starts[number] - start
    scan = Scan(cluster, ask.cluster.decoder, topic, wanted, starts, {n: ends[n] for n in fresh})
    rows: list[Row] = []
    async for step_rows in scan.steps(lambda: room * 20):
        rows += step_rows
        if len(rows) > room:
            rows.sort(key=lambda row: (row.timestamp_ms, row.offset))
            left_out += len(rows) - room
            rows = rows[-room:]
    rows.sort(key=lambda row: (row.timestamp_ms, row.offset), reverse=True)
    return rows, left_out
