"""ShareGroupDescribe (key 77), version 1: state, epochs and members of share groups."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.groups.consumer_group_describe import HIDDEN, sees_all
from barnabas.broker.api.handlers.topics.metadata import OPERATIONS_UNKNOWN
from barnabas.cores.acl import ResourceType
from barnabas.cores.group import DescribedSharer, DescribeShareGroup, ShareDescribeReply
from barnabas.cores.group.consumer.records import by_topic
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

ASSIGNOR: Final = "simple"


async def handle(context: Context, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    """A row for each group; TOPIC_AUTHORIZATION_FAILED, and no members, if a member subscribes to a topic, or has
    a partition of one, that the client may not see.
    """
    groups, all_allowed = [], request.include_authorized_operations
    pace = Pace(context.services.clock)
    for group_id in request.group_ids:
        await pace.rest()
        reply = await describe(context, group_id)
        if not sees_all(context, reply.members, lambda member: (member.assignment,)):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            groups.append(DescribedGroup(group_id=group_id, error_code=code, error_message=HIDDEN))
            continue
        groups.append(
            DescribedGroup(
                error_code=reply.error,
                error_message=reply.message,
                group_id=reply.group_id,
                group_state=reply.state,
                group_epoch=reply.group_epoch,
                assignment_epoch=reply.assignment_epoch,
                assignor_name=ASSIGNOR if reply.error == ErrorCode.NONE else "",
                members=[_member(context, member) for member in reply.members],
                authorized_operations=context.operations(ResourceType.GROUP, group_id)
                if all_allowed and not reply.error
                else OPERATIONS_UNKNOWN,
            )
        )
    return ShareGroupDescribeResponse(groups=groups)


async def describe(context: Context, group_id: str) -> ShareDescribeReply:
    """The answer of the group's coordinator; a refusal concerns only this group, not the request."""
    try:
        reply: ShareDescribeReply = await context.services.groups.ask(partial(event, group_id), group_id)
    except ApiError as error:
        return ShareDescribeReply(group_id, error.code, error.message)
    return reply


def event(group_id: str, token: Any, now_ms: int) -> DescribeShareGroup:
    """The event that requests one group's description from a coordinator."""
    return DescribeShareGroup(token, now_ms, group_id)


def _member(context: Context, member: DescribedSharer) -> Member:
    """Topics that have been deleted meanwhile no longer have a name and are left out."""
    named = (
        (context.services.partitions.name_of(t), t, indexes) for t, indexes in by_topic(member.assignment)
    )
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
                for name, topic_id, indexes in named
                if name is not None
            ]
        ),
    )
