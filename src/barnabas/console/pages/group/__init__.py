"""One group: members and what they read, offsets and lag; moving its offsets after a preview; deleting it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from barnabas.admin.families.group_offsets import CommittedOffset
from barnabas.admin.families.groups import Group
from barnabas.admin.families.records import Bounds
from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask
from barnabas.console.history import graphs_of, of_group
from barnabas.console.pages.group.moving import apply, delete, preview, read_reset
from barnabas.console.pages.groups import STATES, kind_of
from barnabas.console.records.fetching import Columns, columns_of, fetch
from barnabas.console.roles import Role
from barnabas.console.site import Action, Data, Page

TIMES_MAX: Final = 24
"""The partitions whose next record is read, to say how many seconds the group is behind."""
TIMES_S: Final = 1.5


async def read(ask: Ask) -> Data:
    """A group's members with their assignments, its offsets, and its lag in records and seconds"""
    name = ask.path["group"]
    described, shared = await asyncio.gather(
        ask.admin.groups.describe([name]), _or_none(ask.admin.share_groups.describe([name]))
    )
    if shared is not None and name in shared.done and not _is_real(described.done.get(name)):
        return await _read_share(ask, shared.done[name])
    group = described[name]
    offsets = (await ask.admin.groups.offsets([name]))[name]
    bounds = (await ask.admin.records.bounds(list(offsets))).done
    readers = {key: member for member in group.members for key in member.assigned}
    unread = [key for key in readers if key not in offsets]
    times = await _times(ask, offsets, bounds)
    rows = [_partition(key, committed, bounds, readers, times) for key, committed in sorted(offsets.items())]
    return {
        "group": name,
        "kind": kind_of(group.type, group.protocol_type),
        "is_share": False,
        "state": group.state.lower(),
        "coordinator": group.coordinator.id,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "members": [_member(member) for member in group.members],
        "partitions": rows,
        "without_offset": [str(key) for key in sorted(unread)],
        "lag": sum(row["lag"] or 0 for row in rows),
        "behind_s": max((row["behind_s"] for row in rows if row["behind_s"] is not None), default=None),
        "states": STATES,
        "history": await graphs_of(ask, of_group(name)),
        "tab": "group",
        "commands": [
            ask.command("group", "describe", name),
            ask.command("group", "describe", name, "--members"),
        ],
    }


async def _or_none(work: Any) -> Any:
    try:
        return await work
    except ClientError:
        return None


def _is_real(group: Group | None) -> bool:
    """Brokers describe a group that is no consumer group as dead, or not at all."""
    return group is not None and group.state.lower() != "dead"


def _member(member: Any) -> dict[str, Any]:
    return {
        "id": member.id,
        "client": member.client,
        "host": member.host.removeprefix("/"),
        "instance": getattr(member, "instance", None),
        "rack": member.rack,
        "subscribed": list(member.subscribed),
        "assigned": [str(key) for key in sorted(member.assigned)],
    }


def _partition(
    key: TopicPartition,
    committed: CommittedOffset,
    bounds: Mapping[TopicPartition, Bounds],
    readers: Mapping[TopicPartition, Any],
    times: Mapping[TopicPartition, float],
) -> dict[str, Any]:
    bound, member = bounds.get(key), readers.get(key)
    lag = None if bound is None else max(bound.end - max(committed.offset, bound.start), 0)
    return {
        "topic": key.topic,
        "partition": key.partition,
        "committed": committed.offset,
        "start": None if bound is None else bound.start,
        "end": None if bound is None else bound.end,
        "lag": lag,
        "behind_s": 0.0 if lag == 0 else times.get(key),
        "is_lost": bound is not None and committed.offset < bound.start,
        "member": None if member is None else member.client,
        "host": None if member is None else member.host.removeprefix("/"),
        "metadata": committed.metadata,
    }


async def _times(
    ask: Ask, offsets: Mapping[TopicPartition, CommittedOffset], bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, float]:
    """How old the next record of each partition is, in seconds; of as many as can be read in a moment."""
    waiting = [
        key for key, committed in offsets.items() if key in bounds and committed.offset < bounds[key].end
    ]
    now_ms = time.time() * 1000
    times: dict[TopicPartition, float] = {}

    async def one(key: TopicPartition) -> None:
        at = max(offsets[key].offset, bounds[key].start)
        try:
            piece = await fetch(ask.cluster.reading, key, at, max_bytes=1 << 14)
            part = await asyncio.to_thread(lambda: next(columns_of(piece), None))
        except ClientError:
            return
        if isinstance(part, Columns) and part.rows:
            times[key] = round(max(now_ms - part.times_us[0] / 1000, 0) / 1000, 1)

    try:
        async with asyncio.timeout(TIMES_S):
            await asyncio.gather(*(one(key) for key in waiting[:TIMES_MAX]))
    except TimeoutError:
        pass
    return times


async def _read_share(ask: Ask, group: Any) -> Data:
    offsets = await _or_none(ask.admin.share_groups.offsets([group.name]))
    places = {} if offsets is None or group.name not in offsets.done else offsets.done[group.name]
    rows = [
        {
            "topic": key.topic, "partition": key.partition, "committed": place.start, "lag": place.lag, "start": None,
            "end": None, "behind_s": None, "is_lost": False, "member": None, "host": None, "metadata": "",
        }
        for key, place in sorted(places.items())
    ]  # fmt: skip
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    return {
        "group": group.name,
        "kind": "share",
        "is_share": True,
        "state": group.state.lower(),
        "coordinator": None,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "members": [_member(member) for member in group.members],
        "partitions": rows,
        "without_offset": [],
        "lag": sum(lags) if lags else None,
        "behind_s": None,
        "states": STATES,
        "history": await graphs_of(ask, of_group(group.name)),
        "tab": "group",
        "commands": [ask.command("group", "describe", group.name)],
    }


PAGES: Final = (
    Page("group", "/groups/{group}", "groups", read, named="group"),
    Page(
        "group", "/groups/{group}/reset", "groups", read_reset, Role.OPERATE, named="group", template="reset.html",
        actions=(
            Action("/groups/{group}/reset", preview, Role.OPERATE, "group", is_change=False),
            Action("/groups/{group}/offsets", apply, Role.OPERATE, "group"),
            Action("/groups/{group}/delete", delete, Role.ADMIN, "group"),
        ),
    ),
)  # fmt: skip
