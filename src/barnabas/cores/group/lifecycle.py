"""Removal and loading of groups, which are the same for every type."""

from __future__ import annotations

from barnabas.cores.group import records
from barnabas.cores.group.classic import rebalance as classic_rebalance
from barnabas.cores.group.classic.group import ClassicGroup
from barnabas.cores.group.consumer import epochs as epochs
from barnabas.cores.group.consumer import records as consumer_records
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.share import heartbeat as share_heartbeat
from barnabas.cores.group.share import records as share_records
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.state import Group
from barnabas.cores.group.streams import epochs as streams_epochs
from barnabas.cores.group.streams import records as streams_records
from barnabas.cores.group.streams.group import NO_TASKS, StreamsGroup


def is_removable(group: Group) -> bool:
    """Whether the group has no members, none about to join, and nothing stored for future members."""
    if isinstance(group, ShareGroup) and (group.initialized or group.initializing):
        return False
    return group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_ids)


def remove_group(proposal: Proposal, group: Group) -> None:
    """Write tombstones for the group itself; its offsets are not touched."""
    if isinstance(group, ClassicGroup):
        proposal.record(records.group_tombstone(group.group_id))
        proposal.remove(group.group_id)
    elif isinstance(group, ConsumerGroup):
        consumer_records.write_group_gone(proposal, proposal.edit(group))
    elif isinstance(group, StreamsGroup):
        streams_records.write_group_gone(proposal, proposal.edit(group))
        proposal.disarm(group.group_id, "", epochs.ASSIGN)
    else:
        draft = proposal.edit(group)
        share_heartbeat.forget_topics(proposal, draft, {**draft.initialized, **draft.initializing})
        share_records.write_group_gone(proposal, draft)


def on_loaded(proposal: Proposal, group: Group) -> None:
    """Give every member a full session timeout, or its full time to revoke, to report back."""
    if isinstance(group, ClassicGroup):
        classic_rebalance.on_loaded(proposal, group)
        return
    if isinstance(group, ShareGroup):
        for sharer in group.members.values():
            share_heartbeat.arm_session(proposal, group, sharer)
        share_heartbeat.ask_again(proposal, group)
        return
    if isinstance(group, StreamsGroup):
        for streamer in group.members.values():
            streams_epochs.arm_session(proposal, group, streamer)
            if streamer.revoking != NO_TASKS:
                deadline_ms = proposal.now_ms + streamer.rebalance_timeout_ms
                proposal.arm(group.group_id, streamer.member_id, epochs.REVOKE, deadline_ms)
        return
    for member in group.members.values():
        epochs.arm_session(proposal, group, member)
        if member.revoking:
            deadline_ms = proposal.now_ms + member.rebalance_timeout_ms
            proposal.arm(group.group_id, member.member_id, epochs.REVOKE, deadline_ms)
