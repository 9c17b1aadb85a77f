"""OffsetDelete (key 47), version 0: delete a group's offsets for topics that it is not subscribed to."""

from __future__ import annotations

from functools import partial
from itertools import islice

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import OFFSETS_PER_STEP
from barnabas.cores.group.events import DeleteOffsets, DeleteOffsetsReply
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """A result for each partition: GROUP_SUBSCRIBED_TO_TOPIC if members still read the topic,
    UNKNOWN_TOPIC_OR_PARTITION if it does not exist.
    """
    partitions, pace = context.services.partitions, Pace(context.services.clock)
    known = (
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
        if partitions.exists(topic.name, partition.partition_index)
    )
    errors: dict[tuple[str, int], ErrorCode] = {}
    piece = tuple(islice(known, OFFSETS_PER_STEP))
    while True:  # the group is asked even about nothing: it may not exist
        reply: DeleteOffsetsReply = await context.services.groups.ask(
            partial(DeleteOffsets, group_id=request.group_id, partitions=piece), request.group_id
        )
        if reply.error and not errors:
            return OffsetDeleteResponse(error_code=reply.error)
        errors |= dict.fromkeys(piece, reply.error) | {row[:2]: row.error for row in reply.partitions}
        piece = tuple(islice(known, OFFSETS_PER_STEP))
        if not piece:
            break
        await pace.rest()

    def row_of(topic: str, partition: OffsetDeleteRequestPartition) -> OffsetDeleteResponsePartition:
        index = partition.partition_index
        code = errors.get((topic, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return OffsetDeleteResponsePartition(partition_index=index, error_code=code)

    answer = OffsetDeleteResponse()
    for topic in request.topics:
        rows = await pace.map(partial(row_of, topic.name), topic.partitions)
        answer.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=rows))
    return answer
