"""ConsumerGroupHeartbeat (key 68), versions 0 and 1: the one request by which members take part in a KIP-848 group.

Since 1 the member chooses its own id and may subscribe with a regular expression.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation, ResourceType
from barnabas.cores.group import ConsumerHeartbeat, ConsumerHeartbeatReply
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsResponse,
)

MEMBER_NAMES_ITSELF_FROM: Final = 1
JOIN_EPOCH: Final = 0


async def handle(context: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """The member's epoch, the time until its next heartbeat in ms, and its partitions if they have changed;
    FENCED_MEMBER_EPOCH and UNKNOWN_MEMBER_ID tell a member to join again.
    """
    if not context.services.features.consumer_groups:
        return ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            error_message="group.coordinator.rebalance.protocols does not name consumer on this broker",
        )
    refused = next(
        (
            name
            for name in request.subscribed_topic_names or ()
            if not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
        ),
        None,
    )
    if refused is not None:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    groups = context.services.groups
    reply: ConsumerHeartbeatReply = await groups.ask(
        lambda token, now_ms: _event(context, request, token, now_ms), request.group_id
    )
    if reply.error is ErrorCode.NONE and request.member_epoch >= JOIN_EPOCH:
        groups.match_topics_soon(request.group_id, context.sees_topic)
    return ConsumerGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=None if reply.assignment is None else _assignment(reply.assignment),
    )


def _event(
    context: Context, request: ConsumerGroupHeartbeatRequest, token: object, now_ms: int
) -> ConsumerHeartbeat:
    member_id = request.member_id
    if not member_id and context.version < MEMBER_NAMES_ITSELF_FROM and request.member_epoch == JOIN_EPOCH:
        member_id = str(context.services.entropy.uuid())
    topics, owned = request.subscribed_topic_names, request.topic_partitions
    return ConsumerHeartbeat(
        token=token,
        now_ms=now_ms,
        group_id=request.group_id,
        member_id=member_id,
        member_epoch=request.member_epoch,
        client_id=context.client_id or "",
        client_host=context.client_host,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if topics is None else frozenset(topics),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else frozenset((topic.topic_id, index) for topic in owned for index in topic.partitions),
    )


def _assignment(partitions: Iterable[tuple[UUID, int]]) -> Assignment:
    by_topic: defaultdict[UUID, list[int]] = defaultdict(list)
    for topic_id, index in sorted(partitions):
        by_topic[topic_id].append(index)
    return Assignment(
        topic_partitions=[
            TopicPartitionsResponse(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic.items()
        ]
    )
