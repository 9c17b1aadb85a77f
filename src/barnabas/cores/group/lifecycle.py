"""What is the same for groups of every type: removal, timers, loading, waiting requests."""

from __future__ import annotations

from typing import Any

from barnabas.cores.group import classic_rebalance, consumer_records, records, share_heartbeat, share_records
from barnabas.cores.group import consumer_epochs as epochs
from barnabas.cores.group.classic import ClassicGroup
from barnabas.cores.group.consumer import ConsumerGroup
from barnabas.cores.group.events import JoinReply, SyncReply, TimerFired
from barnabas.cores.group.migration import fence_members
from barnabas.cores.group.share import ShareGroup
from barnabas.cores.group.state import Group
from barnabas.cores.group.turn import Turn
from barnabas.wire.errors import ErrorCode


def is_removable(group: Group) -> bool:
    """Whether nobody is in the group or about to be, and nothing is kept for whoever comes next."""
    if isinstance(group, ShareGroup) and (group.initialized or group.initializing):
        return False
    return group.is_empty and not (isinstance(group, ClassicGroup) and group.pending_ids)


def remove_group(turn: Turn, group: Group) -> None:
    """Tombstones for the group itself; its offsets are not looked at."""
    if isinstance(group, ClassicGroup):
        turn.record(records.group_tombstone(group.group_id))
        turn.remove(group.group_id)
    elif isinstance(group, ConsumerGroup):
        consumer_records.write_group_gone(turn, turn.edit(group))
    else:
        draft = turn.edit(group)
        share_heartbeat.forget_topics(turn, draft, {**draft.initialized, **draft.initializing})
        share_records.write_group_gone(turn, draft)


def decide_timer(turn: Turn, event: TimerFired) -> None:
    """The deadline is still the armed one: GroupCoordinatorCore.step drops stale timers."""
    group_id, member_id, kind = event.key
    turn.disarm(group_id, member_id, kind)
    stored = turn.find(group_id)
    if kind == epochs.ASSIGN:
        if isinstance(stored, ConsumerGroup):
            epochs.refresh(turn, turn.edit(stored), subscriptions_changed=False)
    elif isinstance(stored, ClassicGroup):
        classic_rebalance.timer_ended(turn, turn.edit(stored), member_id, kind)
    elif isinstance(stored, ConsumerGroup) and member_id in stored.members:
        fence_members(turn, turn.edit(stored), [member_id], f"{kind} time ended")
    elif isinstance(stored, ShareGroup) and member_id in stored.members:
        share_heartbeat.fence_members(turn, turn.edit(stored), [member_id], f"{kind} time ended")


def on_loaded(turn: Turn, group: Group) -> None:
    """Every member gets a whole session, or its whole time to revoke, to report back."""
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


def refuse_all_waiting(groups: list[Group], error: ErrorCode) -> tuple[tuple[Any, Any], ...]:
    """Answers for the requests that wait in classic groups; the newer protocols never let one wait."""
    replies: list[tuple[Any, Any]] = []
    for group in groups:
        if not isinstance(group, ClassicGroup):
            continue
        for member in group.members.values():
            if member.join_token is not None:
                replies.append((member.join_token, JoinReply(error, member.member_id)))
            if member.sync_token is not None:
                replies.append((member.sync_token, SyncReply(error)))
    return tuple(replies)
