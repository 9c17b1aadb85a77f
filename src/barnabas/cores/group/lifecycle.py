"""Removal and loading of groups, which are the same for every type."""

from __future__ import annotations

from barnabas.cores.group import records
from barnabas.cores.group.classic import rebalance as classic_rebalance
from barnabas.cores.group.classic.group import ClassicGroup
from barnabas.cores.group.consumer import epochs as epochs
from barnabas.cores.group.consumer import records as consumer_records
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.share import heartbeat as share_heartbeat
from barnabas.cores.group.share import records as share_records
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.state import Group
from barnabas.cores.group.turn import Turn


def is_removable(group: Group) -> bool:
    """Whether the group has no members, none about to join, and nothing stored for future members."""
    if isinstance(group, ShareGroup) and (group.initialized or group.initializing):
        return False
    return group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_ids)


def remove_group(turn: Turn, group: Group) -> None:
    """Write tombstones for the group itself; its offsets are not touched."""
    if isinstance(group, ClassicGroup):
        turn.record(records.group_tombstone(group.group_id))
        turn.remove(group.group_id)
    elif isinstance(group, ConsumerGroup):
        consumer_records.write_group_gone(turn, turn.edit(group))
    else:
        draft = turn.edit(group)
        share_heartbeat.forget_topics(turn, draft, {**draft.initialized, **draft.initializing})
        share_records.write_group_gone(turn, draft)


def on_loaded(turn: Turn, group: Group) -> None:
    """Give every member a full session timeout, or its full time to revoke, to report back."""
    if isinstance(group, ClassicGroup):
        classic_rebalance.on_loaded(turn, group)
        return
    if isinstance(group, ShareGroup):
        for sharer in group.members.values():
            share_heartbeat.arm_session(turn, group, sharer)
        share_heartbeat.ask_again(turn, group)
        return
    for member in group.members.values():
        epochs.arm_session(turn, group, member)
        if member.revoking:
            deadline_ms = turn.now_ms + member.rebalance_timeout_ms
            turn.arm(group.group_id, member.member_id, epochs.REVOKE, deadline_ms)
