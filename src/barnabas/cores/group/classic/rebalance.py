"""Rebalances of classic groups: prepare, complete the join phase, and all timers.

Timers of a group: SESSION per member (also for pending ids), JOIN while a rebalance is prepared (the initial delay, then the
slowest member's rebalance timeout), SYNC until all members have fetched their assignment.
"""

from __future__ import annotations

from typing import Final

from barnabas.cores.group import records
from barnabas.cores.group.classic.group import (
    CAN_REBALANCE,
    ClassicGroup,
    ClassicMember,
    ClassicState,
)
from barnabas.cores.group.events import JoinedMember, JoinReply, SyncReply
from barnabas.cores.group.proposal import Proposal
from barnabas.wire.errors import ErrorCode

SESSION: Final = "session"
JOIN: Final = "join"
INITIAL: Final = "initial"
SYNC: Final = "sync"


def rebalance_or_complete_join(proposal: Proposal, group: ClassicGroup, reason: str) -> None:
    """Start a rebalance, or complete the running one if now all members have joined."""
    if group.state in CAN_REBALANCE:
        prepare_rebalance(proposal, group, reason)
    else:
        complete_join_if_all_joined(proposal, group)


def complete_join_if_all_joined(proposal: Proposal, group: ClassicGroup) -> None:
    """The first rebalance is not completed before its delay has passed, since more members are expected."""
    if (
        group.state is ClassicState.PREPARING_REBALANCE
        and not group.in_initial_delay
        and group.all_members_joined
    ):
        complete_join(proposal, group)


def prepare_rebalance(proposal: Proposal, group: ClassicGroup, reason: str) -> None:
    """From EMPTY, STABLE or COMPLETING_REBALANCE: ask all members to join again."""
    if group.state is ClassicState.COMPLETING_REBALANCE:
        for member in list(group.members.values()):
            group.change(member.member_id, assignment=b"", sync_token=None)
            if member.sync_token is not None:
                proposal.reply(member.sync_token, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
                arm_session(proposal, group, member)
    proposal.disarm(group.group_id, "", SYNC)
    is_first = group.is_empty
    group.move_to(ClassicState.PREPARING_REBALANCE, proposal.now_ms)
    proposal.note(
        "preparing rebalance",
        group=group.group_id,
        generation=group.generation_id,
        reason=reason,
        members=len(group.members),
    )
    limits = proposal.state.limits
    delay_ms = limits.group_initial_rebalance_delay_ms
    if is_first and delay_ms > 0:
        group.in_initial_delay = True
        group.new_member_added = False
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        proposal.arm(group.group_id, "", INITIAL, proposal.now_ms + delay_ms)
    elif group.all_members_joined:
        complete_join(proposal, group)
    elif is_first:
        # Other clients have just received their member ids and are about to join. Without them, their joins would
        # start the next rebalance at once, which this member would notice only at its next heartbeat, seconds later.
        proposal.arm(group.group_id, "", JOIN, proposal.now_ms + limits.pending_members_wait_ms)
    else:
        proposal.arm(group.group_id, "", JOIN, proposal.now_ms + group.rebalance_timeout_ms)


def complete_join(proposal: Proposal, group: ClassicGroup) -> None:
    """Remove the members that did not join; tell the others the new generation, and the leader its members."""
    proposal.disarm(group.group_id, "", JOIN)
    proposal.disarm(group.group_id, "", INITIAL)
    group.in_initial_delay = False
    late = [m.member_id for m in group.members.values() if m.join_token is None and not m.is_static]
    for member_id in late:
        group.remove(member_id)
        proposal.disarm(group.group_id, member_id, SESSION)
    if late:
        proposal.note("members removed that did not join in time", group=group.group_id, members=late)
    if group.members and not group.elect_joined_leader():
        # Only static members are left and none has joined: wait until one joins or their sessions expire.
        proposal.arm(group.group_id, "", JOIN, proposal.now_ms + group.rebalance_timeout_ms)
        return
    group.generation_id += 1
    group.pending_sync_ids = frozenset()
    if not group.members:
        group.protocol_name = None
        group.read_subscribed_topics()
        group.move_to(ClassicState.EMPTY, proposal.now_ms)
        proposal.record(records.group_metadata(group))
        proposal.note("group is empty", group=group.group_id, generation=group.generation_id)
        return
    group.protocol_name = group.select_protocol()
    group.read_subscribed_topics()
    group.move_to(ClassicState.COMPLETING_REBALANCE, proposal.now_ms)
    _answer_joins(proposal, group)
    proposal.arm(group.group_id, "", SYNC, proposal.now_ms + group.rebalance_timeout_ms)
    proposal.note(
        "join phase complete",
        group=group.group_id,
        generation=group.generation_id,
        members=len(group.members),
        protocol=group.protocol_name,
    )


def _answer_joins(proposal: Proposal, group: ClassicGroup) -> None:
    everybody = joined_members(group)
    group.pending_sync_ids = frozenset(group.members)
    for member in list(group.members.values()):
        proposal.reply(
            member.join_token,
            JoinReply(
                ErrorCode.NONE,
                member.member_id,
                group.generation_id,
                group.protocol_type,
                group.protocol_name,
                group.leader_id or "",
                members=everybody if group.is_leader(member.member_id) else (),
            ),
        )
        group.change(member.member_id, join_token=None, is_new=False)
        arm_session(proposal, group, member)


def joined_members(group: ClassicGroup) -> tuple[JoinedMember, ...]:
    """The members as the leader receives them."""
    return tuple(
        JoinedMember(m.member_id, m.group_instance_id, m.metadata_for(group.protocol_name))
        for m in group.members.values()
    )


def arm_session(proposal: Proposal, group: ClassicGroup, member: ClassicMember) -> None:
    """Restart the member's session timeout."""
    proposal.arm(group.group_id, member.member_id, SESSION, proposal.now_ms + member.session_timeout_ms)


def drop_member(proposal: Proposal, group: ClassicGroup, member_id: str) -> None:
    """Remove a member; its waiting requests get UNKNOWN_MEMBER_ID, which makes it join again."""
    member = group.remove(member_id)
    proposal.disarm(group.group_id, member_id, SESSION)
    if member is not None:
        proposal.reply(member.join_token, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID))
        proposal.reply(member.sync_token, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))


def end_sync_phase_if_all_synced(proposal: Proposal, group: ClassicGroup) -> None:
    """Make the group stable if no member still has to sync."""
    if not group.pending_sync_ids:
        proposal.disarm(group.group_id, "", SYNC)


# --- timers


def timer_ended(proposal: Proposal, group: ClassicGroup, member_id: str, kind: str) -> None:
    """A timer of the group or of one member has fired."""
    if kind == SESSION:
        _session_ended(proposal, group, member_id)
    elif kind == INITIAL:
        _initial_delay_ended(proposal, group)
    elif kind == JOIN and group.state is ClassicState.PREPARING_REBALANCE:
        complete_join(proposal, group)
    elif kind == SYNC:
        _sync_time_ended(proposal, group)


def _session_ended(proposal: Proposal, group: ClassicGroup, member_id: str) -> None:
    if member_id in group.pending_ids:
        group.remove(member_id)
        proposal.note("pending member did not join", group=group.group_id, member=member_id)
        complete_join_if_all_joined(proposal, group)
        return
    member = group.members.get(member_id)
    if member is None or member.satisfies_heartbeat:
        return
    drop_member(proposal, group, member_id)
    proposal.note("member's session ended", group=group.group_id, member=member_id)
    rebalance_or_complete_join(proposal, group, f"session of {member_id} ended")


def _initial_delay_ended(proposal: Proposal, group: ClassicGroup) -> None:
    """Members that joined during the delay extend it, up to the rebalance timeout."""
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    if group.new_member_added and group.initial_remaining_ms > 0:
        group.new_member_added = False
        delay_ms = min(proposal.state.limits.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        proposal.arm(group.group_id, "", INITIAL, proposal.now_ms + delay_ms)
    else:
        complete_join(proposal, group)


def _sync_time_ended(proposal: Proposal, group: ClassicGroup) -> None:
    if (
        group.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE)
        or not group.pending_sync_ids
    ):
        return
    late = sorted(group.pending_sync_ids)
    for member_id in late:
        drop_member(proposal, group, member_id)
    proposal.note("members removed that did not sync in time", group=group.group_id, members=late)
    prepare_rebalance(proposal, group, "members did not sync in time")


def on_loaded(proposal: Proposal, stored: ClassicGroup) -> None:
    """After loading: restart all sessions; a group over the size limit rebalances."""
    if not stored.members:
        return
    for member in stored.members.values():
        arm_session(proposal, stored, member)
    if len(stored.members) > proposal.state.limits.group_max_size:
        prepare_rebalance(
            proposal, proposal.edit(stored), "loaded with more members than group.max.size allows"
        )
