"""OffsetFetch (key 9), versions 0 to 10: what a group has committed.

Version 0 once asked ZooKeeper; there, an offset that was never committed is an error. Since 2 null topics mean all; since 7
a request may insist on stable offsets; since 8 many groups; since 9 member epochs; since 10 topic ids.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation, ResourceType
from barnabas.cores.group.events import FetchedOffset, FetchOffsets, FetchReply
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUPS_FROM: Final = 8
ERROR_FIELD_FROM: Final = 2
NOTHING_IS_NO_ERROR_FROM: Final = 1
TOPIC_IDS_FROM: Final = 10


async def handle(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """The committed offsets, -1 where there is none; UNSTABLE_OFFSET_COMMIT if stable offsets are wanted and a
    transaction has still to decide about one.
    """
    if context.version >= GROUPS_FROM:
        pace, groups = Pace(context.services.clock), []
        for asked in request.groups:
            groups.append(await _group(context, asked, request.require_stable))
            await pace.rest()
        return OffsetFetchResponse(groups=groups)
    return await _single(context, request)


async def _single(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    asked = None
    if request.topics is not None:
        asked = tuple((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    reply: FetchReply = await context.services.groups.ask(
        lambda token, now_ms: FetchOffsets(
            token, now_ms, request.group_id, asked, require_stable=request.require_stable
        ),
        request.group_id,
    )
    offsets = reply.offsets
    if reply.error and context.version < ERROR_FIELD_FROM:
        offsets = tuple(FetchedOffset(topic, index, error=reply.error) for topic, index in asked or ())
    if context.version < NOTHING_IS_NO_ERROR_FROM:
        offsets = tuple(
            row if row.error or row.offset >= 0 else row._replace(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for row in offsets
        )
    if request.topics is None:
        offsets = tuple(row for row in offsets if _is_shown(context, row.topic))
    return OffsetFetchResponse(
        error_code=reply.error,
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=row.partition,
                        committed_offset=row.offset,
                        committed_leader_epoch=row.leader_epoch,
                        metadata=row.metadata,
                        error_code=row.error,
                    )
                    for row in rows
                ],
            )
            for name, rows in _by_topic(
                offsets,
                None
                if request.topics is None
                else [(t.name, len(t.partition_indexes)) for t in request.topics],
            )
        ],
    )


def _is_shown(context: Context, name: str) -> bool:
    """Whether the offsets of a topic belong to all offsets of a group: not those of a topic in the bin, which groups keep
    for its return. Tools would ask for the ends of such a topic."""
    image = context.services.controller.image
    is_gone = (
        image.bin and name not in image.topics and any(topic.name == name for topic in image.bin.values())
    )
    return not is_gone and context.sees_topic(name)


async def _group(
    context: Context, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    names, unknown = _names(context, group)
    refused: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        allowed = [name is None or _is_seen(context, name) for name in names]
        refused = [_refused(topic) for topic, seen in zip(group.topics, allowed, strict=True) if not seen]
        group.topics = [topic for topic, seen in zip(group.topics, allowed, strict=True) if seen]
        names = [name for name, seen in zip(names, allowed, strict=True) if seen]
    asked = None
    if group.topics is not None:
        asked = tuple(
            (name, index)
            for topic, name in zip(group.topics, names, strict=True)
            if name is not None
            for index in topic.partition_indexes
        )
    reply: FetchReply = await context.services.groups.ask(
        lambda token, now_ms: FetchOffsets(
            token, now_ms, group.group_id, asked, group.member_id, group.member_epoch, require_stable
        ),
        group.group_id,
    )
    counts = None
    if group.topics is not None:
        counts = [
            (name, len(topic.partition_indexes))
            for topic, name in zip(group.topics, names, strict=True)
            if name is not None
        ]
    topics = [
        _topic(context, name, rows)
        for name, rows in _by_topic(reply.offsets, counts)
        if counts is not None or _is_shown(context, name)
    ]
    return OffsetFetchResponseGroup(
        group_id=group.group_id, topics=topics + unknown + refused, error_code=reply.error
    )


def _is_seen(context: Context, name: str) -> bool:
    return context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _refused(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                metadata="",
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
            for index in topic.partition_indexes
        ],
    )


def _names(
    context: Context, group: OffsetFetchRequestGroup
) -> tuple[list[str | None], list[OffsetFetchResponseTopics]]:
    """The name of each requested topic, and the answers for topic ids that no topic has."""
    if group.topics is None:
        return [], []
    if context.version < TOPIC_IDS_FROM:
        return [topic.name for topic in group.topics], []
    names = [context.services.partitions.name_of(topic.topic_id) for topic in group.topics]
    unknown = [
        OffsetFetchResponseTopics(
            topic_id=topic.topic_id,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=-1,
                    metadata="",
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic, name in zip(group.topics, names, strict=True)
        if name is None
    ]
    return names, unknown


def _topic(context: Context, name: str, rows: list[FetchedOffset]) -> OffsetFetchResponseTopics:
    topic = OffsetFetchResponseTopics(
        name=name,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=row.partition,
                committed_offset=row.offset,
                committed_leader_epoch=row.leader_epoch,
                metadata=row.metadata,
                error_code=row.error,
            )
            for row in rows
        ],
    )
    topic_id = context.services.partitions.id_of(name)
    if topic_id is not None:
        topic.topic_id = topic_id
    return topic


def _by_topic(
    offsets: tuple[FetchedOffset, ...], asked: list[tuple[str, int]] | None
) -> list[tuple[str, list[FetchedOffset]]]:
    """Offsets by topic. asked: the topics of the request, each with its number of partitions, in the order of `offsets`. As
    in Kafka, every row gets its answer, including topics that are named twice or without partitions."""
    if asked is not None:
        rows = iter(offsets)
        return [(name, list(islice(rows, count))) for name, count in asked]
    by_topic: dict[str, list[FetchedOffset]] = {}
    for offset in offsets:
        by_topic.setdefault(offset.topic, []).append(offset)
    return list(by_topic.items())
