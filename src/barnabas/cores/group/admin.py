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
from barnabas.cores.group.proposal import Proposal
from barnabas.wire.errors import ErrorCode


def decide_describe(proposal: Proposal, event: DescribeGroup) -> None:
    """DescribeGroups: one classic group."""
    group = proposal.find(event.group_id)
    if not isinstance(group, ClassicGroup):
        what = "not found" if group is None else "is not a classic group"
        reply = DescribeReply(
            event.group_id,
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {event.group_id} {what}.",
            ClassicState.DEAD.value,
        )
        proposal.reply(event.token, reply)
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
    proposal.reply(
        event.token,
        DescribeReply(
            event.group_id,
            state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_name=(group.protocol_name or "") if stable else "",
            members=members,
        ),
    )


def decide_describe_consumer(proposal: Proposal, event: DescribeConsumerGroup) -> None:
    """ConsumerGroupDescribe: one group."""
    group = proposal.find(event.group_id)
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        message = f"Group {event.group_id} {what}."
        proposal.reply(
            event.token, ConsumerDescribeReply(event.group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        )
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
    default = proposal.state.limits.consumer_assignors[0]
    proposal.reply(
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


def decide_list(proposal: Proposal, event: ListGroups) -> None:
    """ListGroups: the groups of this partition."""
    states = {state.lower() for state in event.states}
    types = {group_type.lower() for group_type in event.types}
    rows = []
    for group in proposal.state.groups.values():
        row = ListedGroup(group.group_id, group.protocol_type or "", group.state.value, group.group_type)
        if (not states or row.state.lower() in states) and (not types or row.group_type.lower() in types):
            rows.append(row)
    proposal.reply(event.token, ListReply(ErrorCode.NONE, tuple(rows)))
