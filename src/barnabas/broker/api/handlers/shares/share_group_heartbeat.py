"""ShareGroupHeartbeat (key 76), version 1: join, keep alive and leave a share group; the member chooses its own id."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation, ResourceType
from barnabas.cores.group import ShareHeartbeat, ShareHeartbeatReply
from barnabas.cores.group.consumer.records import by_topic
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)


async def handle(context: Context, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    """The member's epoch, the time until its next heartbeat in ms, and its partitions if they have changed;
    FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID tell a member to join again.
    """
    refused = next(
        (
            name
            for name in request.subscribed_topic_names or ()
            if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
        ),
        None,
    )
    if refused is not None:
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topics = request.subscribed_topic_names
    reply: ShareHeartbeatReply = await context.services.groups.ask(
        lambda token, now_ms: ShareHeartbeat(
            token=token,
            now_ms=now_ms,
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            client_id=context.client_id or "",
            client_host=context.client_host,
            rack_id=request.rack_id,
            topics=None if topics is None else frozenset(topics),
        ),
        request.group_id,
    )
    return ShareGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None
        if reply.assignment is None
        else Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic(reply.assignment)
            ]
        ),
    )
