"""OffsetDelete (key 47), version 0: delete a group's offsets for topics that it is not subscribed to."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.group.events import DeleteOffsets, DeleteOffsetsReply
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """A result for each partition: GROUP_SUBSCRIBED_TO_TOPIC if members still read the topic,
    UNKNOWN_TOPIC_OR_PARTITION if it does not exist.
    """
    partitions = context.services.partitions
    known = tuple(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if partitions.exists(topic.name, partition.partition_index)
    )
    reply: DeleteOffsetsReply = await context.services.groups.ask(
        lambda token, now_ms: DeleteOffsets(token, now_ms, request.group_id, known), request.group_id
    )
    if reply.error:
        return OffsetDeleteResponse(error_code=reply.error)
    errors = {(partition.topic, partition.partition): partition.error for partition in reply.partitions}
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors.get(
                            (topic.name, partition.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
