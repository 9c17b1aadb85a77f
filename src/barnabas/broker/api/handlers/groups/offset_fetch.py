"""OffsetFetch (key 9), versions 0 to 10: what a group has committed.

Version 0 once asked ZooKeeper; there, an offset that was never committed is an error. Since 2 null topics mean all; since 7
a request may insist on stable offsets; since 8 many groups; since 9 member epochs; since 10 topic ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import OFFSETS_PER_STEP
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
    pace = Pace(context.services.clock)
    if context.version >= GROUPS_FROM:
        groups = []
        for asked in request.groups:
            groups.append(await _group(context, pace, asked, request.require_stable))
            await pace.rest()
        return OffsetFetchResponse(groups=groups)
    return await _single(context, pace, request)


async def _fetched(
    context: Context,
    pace: Pace,
    group_id: str,
    asked: Iterable[tuple[str, int]] | None,
    ask: Callable[[object, int, tuple[tuple[str, int], ...] | None], FetchOffsets],
    *,
    require_stable: bool,
) -> FetchReply:
    """The group's reply about these partitions (None: all). It is asked about a few hundred at a time; each offset is the
    one that counted at some moment of the request. ask: (token, now_ms, partitions) -> the event."""
    groups = context.services.groups
    everything = asked is None
    if asked is None:
        core = groups.runtime.core_of(group_id)
        asked = () if core is None else core.partitions_of(group_id, pending=require_stable)
        if len(asked) <= OFFSETS_PER_STEP:
            reply: FetchReply = await groups.ask(lambda token, now_ms: ask(token, now_ms, None), group_id)
            return reply
    left = iter(asked)
    offsets: list[FetchedOffset] = []
    piece = tuple(islice(left, OFFSETS_PER_STEP))
    while True:  # the group is asked even about nothing: it may refuse the member
        reply = await groups.ask(partial(_of_piece, ask, piece), group_id)
        if reply.error:
            return reply
        offsets += (
            [row for row in reply.offsets if row.offset >= 0 or row.error] if everything else reply.offsets
        )
        piece = tuple(islice(left, OFFSETS_PER_STEP))
        if not piece:
            return FetchReply(group_id, offsets=tuple(offsets))
        await pace.rest()


def _of_piece(ask: Any, piece: tuple[tuple[str, int], ...], token: object, now_ms: int) -> FetchOffsets:
    event: FetchOffsets = ask(token, now_ms, piece)
    return event


async def _single(context: Context, pace: Pace, request: OffsetFetchRequest) -> OffsetFetchResponse:
    asked, counts = None, None
    if request.topics is not None:
        asked = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
        counts = [(topic.name, len(topic.partition_indexes)) for topic in request.topics]
    group_id, require_stable = request.group_id, request.require_stable
    reply = await _fetched(
        context,
        pace,
        group_id,
        asked,
        lambda token, now_ms, piece: FetchOffsets(
            token, now_ms, group_id, piece, require_stable=require_stable
        ),
        require_stable=require_stable,
    )
    offsets = reply.offsets
    if reply.error and context.version < ERROR_FIELD_FROM:
        offsets = tuple(
            FetchedOffset(topic.name, index, error=reply.error)
            for topic in request.topics or ()
            for index in topic.partition_indexes
        )
    answer = OffsetFetchResponse(error_code=reply.error)
    for name, rows in await _by_topic(pace, offsets, counts):
        if counts is not None or _is_shown(context, name):
            make = _old_row if context.version >= NOTHING_IS_NO_ERROR_FROM else _oldest_row
            answer.topics.append(OffsetFetchResponseTopic(name=name, partitions=await pace.map(make, rows)))
    return answer


def _old_row(row: FetchedOffset) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=row.partition,
        committed_offset=row.offset,
        committed_leader_epoch=row.leader_epoch,
        metadata=row.metadata,
        error_code=row.error,
    )


def _oldest_row(row: FetchedOffset) -> OffsetFetchResponsePartition:
    if not row.error and row.offset < 0:
        row = row._replace(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _old_row(row)


def _is_shown(context: Context, name: str) -> bool:
    """Whether the offsets of a topic belong to all offsets of a group: not those of a topic in the bin, which groups keep
    for its return. Tools would ask for the ends of such a topic."""
    image = context.services.controller.image
    is_gone = (
        image.bin and name not in image.topics and any(topic.name == name for topic in image.bin.values())
    )
    return not is_gone and context.sees_topic(name)


async def _group(
    context: Context, pace: Pace, group: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    names, unknown = _names(context, group)
    refused: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        allowed = [name is None or _is_seen(context, name) for name in names]
        refused = [_refused(topic) for topic, seen in zip(group.topics, allowed, strict=True) if not seen]
        group.topics = [topic for topic, seen in zip(group.topics, allowed, strict=True) if seen]
        names = [name for name, seen in zip(names, allowed, strict=True) if seen]
    asked, counts = None, None
    if group.topics is not None:
        named = [(name, t) for t, name in zip(group.topics, names, strict=True) if name is not None]
        asked = ((name, index) for name, topic in named for index in topic.partition_indexes)
        counts = [(name, len(topic.partition_indexes)) for name, topic in named]
    reply = await _fetched(
        context,
        pace,
        group.group_id,
        asked,
        lambda token, now_ms, piece: FetchOffsets(
            token, now_ms, group.group_id, piece, group.member_id, group.member_epoch, require_stable
        ),
        require_stable=require_stable,
    )
    topics = [
        await _topic(context, pace, name, rows)
        for name, rows in await _by_topic(pace, reply.offsets, counts)
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


async def _topic(
    context: Context, pace: Pace, name: str, rows: list[FetchedOffset]
) -> OffsetFetchResponseTopics:
    topic = OffsetFetchResponseTopics(name=name, partitions=await pace.map(_row, rows))
    topic_id = context.services.partitions.id_of(name)
    if topic_id is not None:
        topic.topic_id = topic_id
    return topic


def _row(row: FetchedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=row.partition,
        committed_offset=row.offset,
        committed_leader_epoch=row.leader_epoch,
        metadata=row.metadata,
        error_code=row.error,
    )


async def _by_topic(
    pace: Pace, offsets: tuple[FetchedOffset, ...], asked: list[tuple[str, int]] | None
) -> list[tuple[str, list[FetchedOffset]]]:
    """Offsets by topic. asked: the topics of the request, each with its number of partitions, in the order of `offsets`. As
    in Kafka, every row gets its answer, including topics that are named twice or without partitions."""
    if asked is not None:
        rows = iter(offsets)
        return [(name, list(islice(rows, count))) for name, count in asked]
    by_topic: dict[str, list[FetchedOffset]] = {}
    async for piece in pace.pieces(offsets):
        for offset in piece:
            by_topic.setdefault(offset.topic, []).append(offset)
    return list(by_topic.items())
