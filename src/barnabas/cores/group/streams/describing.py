"""StreamsGroupDescribe (v0): one group."""

from __future__ import annotations

from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.streams.events import (
    DescribedStreamsMember,
    DescribeStreamsGroup,
    StreamsDescribeReply,
)
from barnabas.cores.group.streams.group import NO_TASKS, StreamsGroup
from barnabas.wire.errors import ErrorCode


def decide_describe_streams(proposal: Proposal, event: DescribeStreamsGroup) -> None:
    """State, epochs, topology and members."""
    group = proposal.find(event.group_id)
    if not isinstance(group, StreamsGroup):
        what = "not found" if group is None else "is not a streams group"
        message = f"Group {event.group_id} {what}."
        proposal.reply(
            event.token, StreamsDescribeReply(event.group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        )
        return
    members = tuple(
        DescribedStreamsMember(
            member,
            group.target.get(member.member_id, NO_TASKS),
            *group.reported.get(member.member_id, ((), ())),
        )
        for member in group.members.values()
    )
    proposal.reply(
        event.token,
        StreamsDescribeReply(
            event.group_id,
            state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            topology=group.topology,
            members=members,
        ),
    )
