"""SyncGroup (v0 to v5), Heartbeat (v0 to v4) and LeaveGroup (v0 to v5), classic protocol."""

from __future__ import annotations

from barnabas.cores.group import records
from barnabas.cores.group.classic.group import ClassicGroup, ClassicState
from barnabas.cores.group.classic.rebalance import (
    SESSION,
    arm_session,
    complete_join_if_all_joined,
    drop_member,
    end_sync_phase_if_all_synced,
    rebalance_or_complete_join,
)
from barnabas.cores.group.consumer import classic_members as consumer_classic
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.events import (
    Heartbeat,
    HeartbeatReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncReply,
)
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.streams.group import StreamsGroup
from barnabas.wire.errors import ApiError, ErrorCode


def _require_group(proposal: Proposal, group_id: str) -> ClassicGroup | ConsumerGroup:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    group = proposal.require(group_id, ErrorCode.UNKNOWN_MEMBER_ID)
    if isinstance(group, ShareGroup | StreamsGroup):
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{group_id!r} is a {group.group_type} group")
    if group.state is ClassicState.DEAD:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{group_id!r} is being deleted")
    return group


def _require_generation(group: ClassicGroup, generation_id: int) -> None:
    if generation_id != group.generation_id:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"{group.group_id!r} is at generation {group.generation_id}, not {generation_id}",
        )


# --- SyncGroup


def decide_sync(proposal: Proposal, event: SyncGroup) -> None:
    """SyncGroup: members wait until the leader has sent the assignment."""
    stored = _require_group(proposal, event.group_id)
    if isinstance(stored, ConsumerGroup):
        consumer_classic.decide_sync(proposal, stored, event)
        return
    stored.require(event.member_id, event.group_instance_id)
    _require_generation(stored, event.generation_id)
    for asked, actual in (
        (event.protocol_type, stored.protocol_type),
        (event.protocol_name, stored.protocol_name),
    ):
        if asked is not None and asked != actual:
            raise ApiError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{event.group_id!r} chose {actual!r}, not {asked!r}"
            )
    match stored.state:
        case ClassicState.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{event.group_id!r} has no members")
        case ClassicState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"{event.group_id!r} rebalances: join again")
        case ClassicState.COMPLETING_REBALANCE:
            _sync_completing(proposal, proposal.edit(stored), event)
        case ClassicState.STABLE:
            group = proposal.edit(stored) if event.member_id in stored.pending_sync_ids else stored
            if group is not stored:
                group.pending_sync_ids -= {event.member_id}
                end_sync_phase_if_all_synced(proposal, group)
            member = group.members[event.member_id]
            arm_session(proposal, group, member)
            proposal.reply(
                event.token,
                SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment),
            )


def _sync_completing(proposal: Proposal, group: ClassicGroup, event: SyncGroup) -> None:
    """The leader's sync brings the assignment and makes the group stable; syncs of others wait for it."""
    member = group.members[event.member_id]
    proposal.reply(member.sync_token, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
    group.change(event.member_id, sync_token=event.token)
    group.pending_sync_ids -= {event.member_id}
    end_sync_phase_if_all_synced(proposal, group)
    if not group.is_leader(event.member_id):
        return
    for waiting in list(group.members.values()):
        # Members without an assignment by the leader get an empty one; assignments to non-members are ignored.
        assignment = event.assignments.get(waiting.member_id, b"")
        group.change(waiting.member_id, assignment=assignment, sync_token=None)
        if waiting.sync_token is not None:
            proposal.reply(
                waiting.sync_token,
                SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol_name, assignment),
            )
            arm_session(proposal, group, waiting)
    group.move_to(ClassicState.STABLE, proposal.now_ms)
    proposal.record(records.group_metadata(group))
    proposal.note(
        "group is stable", group=group.group_id, generation=group.generation_id, leader=group.leader_id
    )


# --- Heartbeat


def decide_heartbeat(proposal: Proposal, event: Heartbeat) -> None:
    """Heartbeat: keeps the member alive and tells it about rebalances."""
    group = _require_group(proposal, event.group_id)
    if isinstance(group, ConsumerGroup):
        consumer_classic.decide_heartbeat(proposal, group, event)
        return
    member = group.require(event.member_id, event.group_instance_id)
    _require_generation(group, event.generation_id)
    if group.state is ClassicState.EMPTY:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{event.group_id!r} has no members")
    arm_session(proposal, group, member)
    # Heartbeats are normal while the generation is being completed: the member waits for its assignment.
    preparing = group.state is ClassicState.PREPARING_REBALANCE
    error = ErrorCode.REBALANCE_IN_PROGRESS if preparing else ErrorCode.NONE
    proposal.reply(event.token, HeartbeatReply(error))


# --- LeaveGroup


def decide_leave(proposal: Proposal, event: LeaveGroup) -> None:
    """LeaveGroup: one member leaves, or an administrator removes several."""
    stored = _require_group(proposal, event.group_id)
    if isinstance(stored, ConsumerGroup):
        consumer_classic.decide_leave(proposal, stored, event)
        return
    group = proposal.edit(stored)
    members_before = set(group.members)
    results = tuple(
        LeftMember(m.member_id, m.group_instance_id, _leave(proposal, group, m)) for m in event.members
    )
    proposal.reply(event.token, LeaveReply(ErrorCode.NONE, results))
    if any(result.error is ErrorCode.NONE for result in results):
        gone = sorted(members_before - set(group.members))
        proposal.note("members leave", group=group.group_id, members=gone)
        if gone:
            rebalance_or_complete_join(proposal, group, "members left")
        else:
            complete_join_if_all_joined(proposal, group)  # a pending id left; the others may be complete now


def _leave(proposal: Proposal, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
    member_id = leaving.member_id
    if not member_id:
        # An administrator removes a static member and knows only its instance id.
        static_id = group.static_ids.get(leaving.group_instance_id or "")
        if static_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = static_id
    elif member_id in group.pending_ids:
        group.remove(member_id)
        proposal.disarm(group.group_id, member_id, SESSION)
        return ErrorCode.NONE
    else:
        try:
            group.require(member_id, leaving.group_instance_id)
        except ApiError as refusal:
            return refusal.code
    drop_member(proposal, group, member_id)
    return ErrorCode.NONE
