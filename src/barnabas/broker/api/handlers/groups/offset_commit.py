"""OffsetCommit (key 8), versions 0 to 10.

Version 0 once wrote to ZooKeeper; here it is a commit from outside the group. Since 1 members commit, with a
timestamp per partition (version 1 only); 2 to 4 carry a retention time; since 9 member epochs; since 10 topic ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final
from uuid import UUID

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import OFFSETS_PER_STEP, by_topic_in_turns
from barnabas.cores.group.events import CommitOffsets, CommitReply, OffsetToCommit
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_FROM: Final = 10
MEMBER_EPOCH_FROM: Final = 9
TIMESTAMP_VERSION: Final = 1
RETENTION_VERSIONS: Final = range(2, 5)


async def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Unknown topics and partitions are answered here; the group coordinator decides about the rest."""
    pace = Pace(context.services.clock)
    asked = await by_topic_in_turns(
        pace,
        request.topics,
        lambda t: (t.name, t.topic_id),
        lambda t: t.partitions,
        lambda p: p.partition_index,
    )
    for topic, partitions in asked:
        topic.partitions = partitions
    request.topics = [topic for topic, _ in asked]
    names = [_name(context, topic) for topic in request.topics]
    errors = await _commit(context, request, pace, _known(context, request, names))
    unknown = (
        ErrorCode.UNKNOWN_TOPIC_ID
        if context.version >= TOPIC_IDS_FROM
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )

    def row_of(name: str | None, partition: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
        index = partition.partition_index
        code = unknown
        if name is not None:
            code = errors.get((name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return OffsetCommitResponsePartition(partition_index=index, error_code=code)

    answer = OffsetCommitResponse()
    for topic, name in zip(request.topics, names, strict=True):
        rows = await pace.map(partial(row_of, name), topic.partitions)
        answer.topics.append(
            OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)
        )
    return answer


async def _commit(
    context: Context, request: OffsetCommitRequest, pace: Pace, known: Iterator[OffsetToCommit]
) -> dict[tuple[str, int], ErrorCode]:
    """The result of each offset. Each step is stored, or refused, by itself: the answer has an error for each partition."""
    errors: dict[tuple[str, int], ErrorCode] = {}
    piece = tuple(islice(known, OFFSETS_PER_STEP))
    while piece or not request.topics:
        reply: CommitReply = await context.services.groups.ask(
            partial(
                CommitOffsets,
                group_id=request.group_id,
                offsets=piece,
                generation_id=request.generation_id_or_member_epoch,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                retention_ms=request.retention_time_ms if context.version in RETENTION_VERSIONS else -1,
                knows_member_epoch=context.version >= MEMBER_EPOCH_FROM,
            ),
            request.group_id,
        )
        if reply.error:
            errors.update(((row.topic, row.partition), reply.error) for row in piece)
        else:
            errors.update(((row.topic, row.partition), row.error) for row in reply.partitions)
        if not request.topics:
            break
        piece = tuple(islice(known, OFFSETS_PER_STEP))
        await pace.rest()
    return errors


def _name(context: Context, topic: OffsetCommitRequestTopic) -> str | None:
    if context.version < TOPIC_IDS_FROM:
        return topic.name
    topic_id: UUID = topic.topic_id
    return context.services.partitions.name_of(topic_id)


def _known(
    context: Context, request: OffsetCommitRequest, names: list[str | None]
) -> Iterator[OffsetToCommit]:
    partitions = context.services.partitions
    return (
        OffsetToCommit(
            name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
            partition.commit_timestamp if context.version == TIMESTAMP_VERSION else -1,
        )
        for topic, name in zip(request.topics, names, strict=True)
        if name is not None
        for partition in topic.partitions
        if partitions.exists(name, partition.partition_index)
    )
