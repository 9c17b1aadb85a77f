"""DeleteShareGroupOffsets (key 92), version 0: make a share group without members forget topics."""

from __future__ import annotations

from uuid import UUID

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.shares.share_group_describe import describe
from barnabas.cores.group import AlterShareReply, DeleteShareOffsets
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)


async def handle(
    context: Context, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """A result for each topic; NON_EMPTY_GROUP for the whole request if the group has members."""
    groups, group_id = context.services.groups, request.group_id
    described = await describe(context, group_id)
    if described.error:
        return DeleteShareGroupOffsetsResponse(error_code=described.error, error_message=described.message)
    has_offsets = {topic_id for topic_id, _, _ in described.initialized}
    responses = []
    gone: set[UUID] = set()
    for topic in request.topics:
        topic_id = context.services.partitions.id_of(topic.topic_name)
        row = DeleteShareGroupOffsetsResponseTopic(topic_name=topic.topic_name)
        responses.append(row)
        if topic_id is None or topic_id not in has_offsets:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row.error_message = (
                f"there is no topic {topic.topic_name}"
                if topic_id is None
                else f"{group_id!r} has no offsets of {topic.topic_name}"
            )
        else:
            row.topic_id = topic_id
            gone.add(topic_id)
    reply: AlterShareReply = await groups.ask(
        lambda token, now_ms: DeleteShareOffsets(token, now_ms, group_id, frozenset(gone)), group_id
    )
    if reply.error:
        return DeleteShareGroupOffsetsResponse(error_code=reply.error, error_message=reply.message)
    return DeleteShareGroupOffsetsResponse(responses=responses)
