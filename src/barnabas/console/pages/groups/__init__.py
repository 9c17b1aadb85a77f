"""The list of groups: consumer, classic and share groups with their state and their lag."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.admin.families.group_offsets import CommittedOffset
from barnabas.admin.families.records import Bounds
from barnabas.admin.values import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.console.asking import Ask
from barnabas.console.listing import cut
from barnabas.console.site import Data, Page

STATES: Final = {"stable": "good", "empty": "", "dead": "bad"}
"""How states are coloured; all others are passing: a group that changes its members."""


@dataclass(frozen=True, slots=True)
class Row:
    """One group. lag: records between its offsets and the ends; None: not known. kind: consumer, classic or share."""

    name: str
    kind: str
    state: str
    topics: int | None
    lag: int | None
    broker: int


def lag_of(offsets: Mapping[TopicPartition, CommittedOffset], bounds: Mapping[TopicPartition, Bounds]) -> int:
    """Records that a group has still to read: none of those that were deleted before it came to them."""
    return sum(
        max(bounds[key].end - max(committed.offset, bounds[key].start), 0)
        for key, committed in offsets.items()
        if key in bounds
    )


def kind_of(type_: str, protocol: str) -> str:
    """The kind of a group, for people: those of Connect and of the registry say what they are."""
    kind = (type_ or "classic").lower()
    return protocol if kind == "classic" and protocol not in ("", "consumer") else kind


async def read(ask: Ask) -> Data:
    """The groups with state, topics and lag"""
    cluster = ask.cluster
    listed = await cluster.groups.get()
    commits, bounds = await asyncio.gather(
        cluster.commits.get(), cluster.bounds.get(), return_exceptions=True
    )
    for failure in (commits, bounds):
        if isinstance(failure, BaseException) and not isinstance(failure, ClientError):
            raise failure
    rows = []
    for groups_of_broker in listed.done.values():
        for group in groups_of_broker:
            if not ask.sees(group.name):
                continue
            offsets = None if isinstance(commits, BaseException) else commits.get(group.name)
            known = offsets is not None and not isinstance(bounds, BaseException)
            rows.append(
                Row(
                    group.name, kind_of(group.type, group.protocol_type), (group.state or "unknown").lower(),
                    None if offsets is None else len({key.topic for key in offsets}),
                    lag_of(offsets, bounds) if known else None,  # type: ignore[arg-type]
                    group.coordinator,
                )
            )  # fmt: skip
    page, list_ = cut(
        ask, rows, lambda row: row.name,
        {
            "name": lambda row: row.name, "kind": lambda row: row.kind, "state": lambda row: row.state,
            "topics": lambda row: row.topics or 0, "lag": lambda row: row.lag or 0,
        },
        "name",
    )  # fmt: skip
    return {
        "groups": page,
        "list": list_,
        "away": {str(node): str(error) for node, error in listed.failed.items()},
        "states": STATES,
        "commands": [ask.command("group", "list"), ask.command("group", "lag")],
    }


PAGES: Final = (Page("groups", "/groups", "groups", read),)
