"""AlterShareGroupOffsets (key 91), version 0: move the start offsets of a share group without members."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from barnabas.broker.api.context import Context
from barnabas.cores.group import AlterShareOffsets, AlterShareReply
from barnabas.cores.group.share.state import ShareKey
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)


async def handle(context: Context, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    """A result for each partition; NON_EMPTY_GROUP for the whole request if the group has members."""
    services, group_id = context.services, request.group_id
    known: defaultdict[UUID, set[int]] = defaultdict(set)
    for topic in request.topics:
        topic_id = services.partitions.id_of(topic.topic_name)
        for partition in topic.partitions:
            if topic_id is not None and services.partitions.exists(
                topic.topic_name, partition.partition_index
            ):
                known[topic_id].add(partition.partition_index)
    topics = {topic_id: frozenset(indexes) for topic_id, indexes in known.items()}
    await services.shares.states.prepare()
    reply: AlterShareReply = await services.groups.ask(
        lambda token, now_ms: AlterShareOffsets(token, now_ms, group_id, topics), group_id
    )
    if reply.error:
        return AlterShareGroupOffsetsResponse(error_code=reply.error, error_message=reply.message)
    pace = Pace(services.clock)
    return AlterShareGroupOffsetsResponse(
        responses=[
            await _alter(context, pace, group_id, topic, reply.state_epoch) for topic in request.topics
        ]
    )


async def _alter(
    context: Context, pace: Pace, group_id: str, topic: AlterShareGroupOffsetsRequestTopic, state_epoch: int
) -> AlterShareGroupOffsetsResponseTopic:
    services = context.services
    topic_id = services.partitions.id_of(topic.topic_name)
    response = AlterShareGroupOffsetsResponseTopic(topic_name=topic.topic_name, partitions=[])
    for asked in topic.partitions:
        await pace.rest()
        row = AlterShareGroupOffsetsResponsePartition(partition_index=asked.partition_index)
        response.partitions.append(row)
        if topic_id is None or not services.partitions.exists(topic.topic_name, asked.partition_index):
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row.error_message = f"there is no {topic.topic_name}-{asked.partition_index}"
            continue
        response.topic_id = topic_id
        services.shares.forget(group_id, topic_id, (asked.partition_index,))
        key = ShareKey(group_id, topic_id, asked.partition_index)
        try:
            await services.shares.begin_state(key, state_epoch, asked.start_offset)
        except ApiError as error:
            row.error_code, row.error_message = error.code, error.message
    return response
