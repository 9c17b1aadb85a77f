"""The offsets of the source's groups, committed here as they are there.

Each broker copies those of the groups that it coordinates, into groups without members only: consumers that have moved here
already know better. An offset beyond the copy's end becomes that end; the next round raises it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.admin.families.groups import AsyncGroups
from barnabas.cores.group.events import CommitOffsets, OffsetToCommit
from barnabas.cores.links import Ends, clamped, linked_topics
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.admin.families.group_offsets import CommittedOffset
    from barnabas.admin.values import TopicPartition
    from barnabas.broker.cluster.controller import Controller
    from barnabas.broker.coordinators.groups import GroupCoordinator
    from barnabas.broker.links.link import Link
    from barnabas.wire.messages.links import LinkPartition

log = logging.getLogger("barnabas.links")

CONSUMER: Final = ("consumer", "")
"""The protocol types of groups that commit offsets of topics; those without members have none."""


class Surroundings(Protocol):
    """What is needed of all links."""

    @property
    def controller(self) -> Controller: ...

    @property
    def groups(self) -> GroupCoordinator: ...

    async def partitions_of(self, name: str) -> dict[tuple[str, int], LinkPartition]: ...


async def copy_groups(links: Surroundings, link: Link) -> None:
    """One round. Raises ClientError."""
    if not link.spec.groups or not link.copies or not linked_topics(links.controller.image, link.name):
        return
    source = AsyncGroups(link.source)
    listed = await source.list()
    names = sorted(
        {
            row.name
            for rows in listed.done.values()
            for row in rows
            if row.protocol_type in CONSUMER and link.spec.takes_group(row.name)
        }
    )
    if not names:
        return
    await links.groups.prepare()
    own = [name for name in names if links.groups.keeps(name)]
    link.groups = len(own)
    offsets_of_groups = await source.offsets(own) if own else None
    if offsets_of_groups is None:
        return
    copies = await links.partitions_of(link.name)
    for name, offsets in offsets_of_groups.done.items():
        link.problems.pop(f"group {name}", None)
        try:
            await _copy_one(links, link, name, offsets, copies)
        except ApiError as error:
            link.problems[f"group {name}"] = error.message


def _here(row: CommittedOffset, copy: LinkPartition) -> tuple[int, int, str]:
    """(offset, leader epoch, metadata) to commit. Consumers would wait for an epoch that is not known here yet."""
    epoch = -1 if row.leader_epoch is None or row.leader_epoch > copy.leader_epoch else row.leader_epoch
    return clamped(row.offset, Ends(copy.log_start, copy.log_end)), epoch, row.metadata


async def _copy_one(
    links: Surroundings,
    link: Link,
    name: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    copies: Mapping[tuple[str, int], LinkPartition],
) -> None:
    """Commit what has changed since the last round. Raises ApiError."""
    known = link.committed.get(name, {})
    wanted = {
        (key.topic, key.partition): _here(row, copies[key]) for key, row in offsets.items() if key in copies
    }
    changed = {key: row for key, row in wanted.items() if known.get(key) != row}
    if not changed:
        return
    rows = tuple(
        OffsetToCommit(topic, index, offset, epoch, metadata)
        for (topic, index), (offset, epoch, metadata) in changed.items()
    )
    reply = await links.groups.ask(
        lambda token, now_ms: CommitOffsets(token=token, now_ms=now_ms, group_id=name, offsets=rows), name
    )
    refused = reply.error or next((row.error for row in reply.partitions if row.error), ErrorCode.NONE)
    if refused == ErrorCode.UNKNOWN_MEMBER_ID:
        link.committed.pop(name, None)  # it has members here; what it commits itself counts
        return
    if refused:
        raise ApiError(refused, f"its offsets cannot be committed: {refused.name}")
    link.committed[name] = {**known, **changed}
