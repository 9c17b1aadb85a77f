"""ConsumerGroupDescribe (key 69), versions 0 and 1: KIP-848 groups, with each member's current and target assignment.

Since 1, members that still use the classic protocol are marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final
from uuid import UUID

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.topics.metadata import OPERATIONS_UNKNOWN
from barnabas.cores.acl import ResourceType
from barnabas.cores.group import ConsumerDescribeReply, DescribeConsumerGroup, DescribedConsumer
from barnabas.cores.group.assignors import Assignment as Assigned
from barnabas.cores.group.consumer.records import by_topic
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."


async def handle(context: Context, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    """A row for each group; TOPIC_AUTHORIZATION_FAILED, and no members, if a member subscribes to a topic, or has
    or gets a partition of one, that the client may not see.
    """
    groups, all_allowed = [], request.include_authorized_operations
    pace = Pace(context.services.clock)
    for group_id in request.group_ids:
        await pace.rest()
        reply: ConsumerDescribeReply = await context.services.groups.ask(partial(_event, group_id), group_id)
        if not sees_all(context, reply.members, lambda member: (member.assignment, member.target)):
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
                assignor_name=reply.assignor,
                members=[_member(context, member) for member in reply.members],
                authorized_operations=context.operations(ResourceType.GROUP, group_id)
                if all_allowed and not reply.error
                else OPERATIONS_UNKNOWN,
            )
        )
    return ConsumerGroupDescribeResponse(groups=groups)


def sees_all(
    context: Context, members: Iterable[Any], assignments: Callable[[Any], Iterable[Assigned]]
) -> bool:
    """Whether the peer may know of all topics that members subscribe to, or have or get partitions of."""
    names: set[str] = set()
    ids: set[UUID] = set()
    for member in members:
        names.update(member.topics)
        for assigned in assignments(member):
            ids.update(topic_id for topic_id, _ in assigned)
    named = map(context.services.partitions.name_of, ids)
    return all(name is None or context.sees_topic(name) for name in (*names, *named))


def _event(group_id: str, token: Any, now_ms: int) -> DescribeConsumerGroup:
    return DescribeConsumerGroup(token, now_ms, group_id)


def _member(context: Context, member: DescribedConsumer) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(context, member.assignment),
        target_assignment=_assignment(context, member.target),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(context: Context, partitions: Iterable[tuple[UUID, int]]) -> Assignment:
    """Topics that have been deleted meanwhile no longer have a name and are left out."""
    named = ((context.services.partitions.name_of(t), t, indexes) for t, indexes in by_topic(partitions))
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for name, topic_id, indexes in named
            if name is not None
        ]
    )
