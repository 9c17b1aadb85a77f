"""DescribeGroups (v0 to v6), ConsumerGroupDescribe (v0, v1), ListGroups (v0 to v5)."""

from __future__ import annotations

from barnabas.cores.group.assignors import ASSIGNORS, NOTHING
from barnabas.cores.group.classic.group import ClassicGroup, ClassicState
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.events import (
    ConsumerDescribeReply,
    DescribeConsumerGroup,
    DescribedConsumer,
    DescribedMember,
    DescribeGroup,
    DescribeReply,
    ListedGroup,
    ListGroups,
    ListReply,
)
from barnabas.cores.group.turn import Turn
from barnabas.wire.errors import ErrorCode


def decide_describe(turn: Turn, event: DescribeGroup) -> None:
    """DescribeGroups: one classic group."""
    group = turn.find(event.group_id)
    if not isinstance(group, ClassicGroup):
        what = "not found" if group is None else "is not a classic group"
        reply = DescribeReply(
            event.group_id,
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {event.group_id} {what}.",
            ClassicState.DEAD.value,
        )
        turn.reply(event.token, reply)
        return
    stable = group.state is ClassicState.STABLE
    members = tuple(
        DescribedMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            m.metadata_for(group.protocol_name) if stable else b"",
            m.assignment if stable else b"",
        )
        for m in group.members.values()
    )
    turn.reply(
        event.token,
        DescribeReply(
            event.group_id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_name=(group.protocol_name or "") if stable else "",
            members=members,
        ),
    )


def decide_describe_consumer(turn: Turn, event: DescribeConsumerGroup) -> None:
    """ConsumerGroupDescribe: one group."""
    group = turn.find(event.group_id)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        message = f"Group {event.group_id} {what}."
        turn.reply(event.token, ConsumerDescribeReply(event.group_id, ErrorCode.GROUP_ID_NOT_FOUND, message))
        return
    members = tuple(
        DescribedConsumer(
            m.member_id,
            m.instance_id,
            m.rack_id,
            m.epoch,
            m.client_id,
            m.client_host,
            tuple(sorted(m.topics)),
            m.regex,
            m.assigned,
            group.target.get(m.member_id, NOTHING),
            m.classic is not None,
        )
        for m in group.members.values()
    )
    default = turn.state.limits.consumer_assignors[0]
    turn.reply(
        event.token,
        ConsumerDescribeReply(
            event.group_id,
            state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor=group.preferred_assignor(ASSIGNORS, default),
            members=members,
        ),
    )


def decide_list(turn: Turn, event: ListGroups) -> None:
    """ListGroups: the groups of this partition."""
    states = {state.lower() for state in event.states}
    types = {group_type.lower() for group_type in event.types}
    rows = []
    for group in turn.state.groups.values():
        row = ListedGroup(group.group_id, group.protocol_type or "", group.state.value, group.group_type)
        if (not states or row.state.lower() in states) and (not types or row.group_type.lower() in types):
            rows.append(row)
    turn.reply(event.token, ListReply(ErrorCode.NONE, tuple(rows)))
