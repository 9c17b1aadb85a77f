"""The effect of a group's timer, for groups of every type."""

from __future__ import annotations

from barnabas.cores.decision import TimerFired
from barnabas.cores.group.classic import rebalance as classic_rebalance
from barnabas.cores.group.classic.group import ClassicGroup
from barnabas.cores.group.consumer import epochs as epochs
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.deletion import DELETE, delete_piece
from barnabas.cores.group.migration import fence_members
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.share import heartbeat as share_heartbeat
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.streams import epochs as streams_epochs
from barnabas.cores.group.streams.group import StreamsGroup


def decide_timer(proposal: Proposal, event: TimerFired) -> None:
    """Called only for the current deadline: GroupCoordinatorCore.decide drops stale timers."""
    group_id, member_id, kind = event.key
    proposal.disarm(group_id, member_id, kind)
    stored = proposal.find(group_id)
    if kind == share_heartbeat.INITIALIZE:
        return  # the next heartbeat requests the states again
    if kind == DELETE:
        if group_id in proposal.state.deleting:
            delete_piece(proposal, group_id, proposal.state.deleting[group_id])
        return
    if kind == epochs.ASSIGN:
        if isinstance(stored, ConsumerGroup):
            epochs.refresh(proposal, proposal.edit(stored), subscriptions_changed=False)
        elif isinstance(stored, StreamsGroup) and stored.topology is not None and not stored.is_empty:
            streams_epochs.refresh(proposal, proposal.edit(stored), members_changed=False)
    elif isinstance(stored, ClassicGroup):
        classic_rebalance.timer_ended(proposal, proposal.edit(stored), member_id, kind)
    elif isinstance(stored, ConsumerGroup) and member_id in stored.members:
        fence_members(proposal, proposal.edit(stored), [member_id], f"{kind} time ended")
    elif isinstance(stored, StreamsGroup) and member_id in stored.members:
        streams_epochs.fence_members(proposal, proposal.edit(stored), [member_id], f"{kind} time ended")
    elif isinstance(stored, ShareGroup) and member_id in stored.members:
        share_heartbeat.fence_members(proposal, proposal.edit(stored), [member_id], f"{kind} time ended")
