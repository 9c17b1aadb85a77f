"""JoinGroup, classic protocol (served from v0 to v9).

Decides which members may join, under which id, and whether the join starts a rebalance or only repeats the current state
to the member. The request then waits (`join_token`) until `classic/rebalance` completes the generation.
"""

from __future__ import annotations

from barnabas.cores.group import records
from barnabas.cores.group.classic.group import ClassicGroup, ClassicMember, ClassicState
from barnabas.cores.group.classic.rebalance import (
    SESSION,
    arm_session,
    complete_join_if_all_joined,
    joined_members,
    prepare_rebalance,
    rebalance_or_complete_join,
)
from barnabas.cores.group.consumer import classic_members as consumer_classic
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.consumer.records import write_group_gone
from barnabas.cores.group.events import JoinGroup, JoinReply, SyncReply
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.streams import records as streams_records
from barnabas.cores.group.streams.group import StreamsGroup
from barnabas.wire.errors import ApiError, ErrorCode


def decide_join(proposal: Proposal, event: JoinGroup) -> None:
    """JoinGroup: a new member, a known one, or a static one that is back."""
    limits = proposal.state.limits
    if not event.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    if not (
        limits.group_min_session_timeout_ms <= event.session_timeout_ms <= limits.group_max_session_timeout_ms
    ):
        raise ApiError(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"session timeout {event.session_timeout_ms} ms is outside of group.min.session.timeout.ms"
            f" {limits.group_min_session_timeout_ms} to group.max.session.timeout.ms"
            f" {limits.group_max_session_timeout_ms}",
        )
    stored = proposal.find(event.group_id)
    if isinstance(stored, ConsumerGroup):
        if not stored.is_empty:
            consumer_classic.decide_join(proposal, stored, event)
            return
        write_group_gone(proposal, proposal.edit(stored))
        stored = None
    if isinstance(stored, StreamsGroup) and stored.is_empty:
        streams_records.write_group_gone(proposal, proposal.edit(stored))
        stored = None
    if isinstance(stored, ShareGroup | StreamsGroup):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{event.group_id!r} is a {stored.group_type} group"
        )
    if stored is None:
        if event.member_id:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"no group {event.group_id!r} on this coordinator")
        group = proposal.create(event.group_id)
    else:
        group = proposal.edit(stored)
    if not _has_room(proposal, group, event.member_id):
        group.remove(event.member_id)
        complete_join_if_all_joined(proposal, group)
        proposal.reply(event.token, JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED))
        return
    if group.state is ClassicState.DEAD:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{event.group_id!r} is being deleted")
    if not group.supports(event.protocol_type, event.protocols):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"no protocol of {event.protocol_type!r} is common to all members of {event.group_id!r}",
        )
    if event.member_id:
        _join_known_member(proposal, group, event)
    else:
        _join_new_member(proposal, group, event)


def _has_room(proposal: Proposal, group: ClassicGroup, member_id: str) -> bool:
    """Whether group.max.size permits this member.

    While a rebalance is being prepared, the members that have joined count: if the limit was lowered below the size of the
    group, the last ones to rejoin are turned away.
    """
    size_max = proposal.state.limits.group_max_size
    member = group.members.get(member_id)
    if group.state is ClassicState.PREPARING_REBALANCE:
        return (member is not None and member.join_token is not None) or group.awaiting_join < size_max
    if group.state in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE):
        return member is not None or len(group.members) < size_max
    return True


def _join_new_member(proposal: Proposal, group: ClassicGroup, event: JoinGroup) -> None:
    if event.group_instance_id is not None:
        member_id = event.new_member_id
        if event.group_instance_id in group.static_ids:
            _replace_static_member(proposal, group, event, member_id)
        else:
            _add_member(proposal, group, event, member_id)
        return
    member_id = event.new_member_id
    if not event.requires_member_id:
        _add_member(proposal, group, event, member_id)
        return
    # A client that gives up on a long rebalance and retries would leave an unreachable member behind each time. So
    # it first receives an id, and only a join with that id makes it a member.
    group.pending_ids |= {member_id}
    proposal.arm(group.group_id, member_id, SESSION, proposal.now_ms + event.session_timeout_ms)
    proposal.reply(event.token, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _join_known_member(proposal: Proposal, group: ClassicGroup, event: JoinGroup) -> None:
    if event.member_id in group.pending_ids:
        if event.group_instance_id is not None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, "a member id that was given out is not for static members"
            )
        _add_member(proposal, group, event, event.member_id)
        return
    member = group.require(event.member_id, event.group_instance_id)
    same = member.protocols == event.protocols
    match group.state:
        case ClassicState.PREPARING_REBALANCE:
            _update_member(proposal, group, event)
            rebalance_or_complete_join(proposal, group, f"member {event.member_id} joins again")
        case ClassicState.COMPLETING_REBALANCE if same:
            # The member did not receive the answer to its first join: repeat it.
            _reply_current(proposal, group, event, leader_gets_members=True)
        case ClassicState.STABLE if same and not group.is_leader(event.member_id):
            _reply_current(proposal, group, event, leader_gets_members=False)
        case ClassicState.COMPLETING_REBALANCE | ClassicState.STABLE:
            # A leader that joins wants a new assignment even if its own metadata has not changed: the topics may have
            # changed.
            _update_member(proposal, group, event)
            rebalance_or_complete_join(proposal, group, f"member {event.member_id} joins with new metadata")
        case _:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{event.group_id!r} has no members")


def _add_member(proposal: Proposal, group: ClassicGroup, event: JoinGroup, member_id: str) -> None:
    member = ClassicMember(
        member_id,
        event.group_instance_id,
        event.client_id,
        event.client_host,
        event.rebalance_timeout_ms,
        event.session_timeout_ms,
        event.protocols,
        join_token=event.token,
        is_new=True,
    )
    if group.in_initial_delay:
        group.new_member_added = True
    group.add(member, event.protocol_type)
    proposal.arm(
        group.group_id, member_id, SESSION, proposal.now_ms + proposal.state.limits.new_member_join_timeout_ms
    )
    rebalance_or_complete_join(proposal, group, f"new member {member_id}")


def _update_member(proposal: Proposal, group: ClassicGroup, event: JoinGroup) -> None:
    """The member now waits with this request; an earlier waiting request gets a retriable error."""
    member = group.members[event.member_id]
    if member.join_token is not None:
        proposal.reply(member.join_token, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.change(
        event.member_id,
        protocols=event.protocols,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        session_timeout_ms=event.session_timeout_ms,
        client_id=event.client_id,
        client_host=event.client_host,
        join_token=event.token,
    )


def _replace_static_member(proposal: Proposal, group: ClassicGroup, event: JoinGroup, member_id: str) -> None:
    """A static member is back (after a restart): it takes its previous place under a new member id."""
    assert event.group_instance_id is not None
    leader_before = group.leader_id
    old = group.replace_static(event.group_instance_id, member_id)
    proposal.disarm(group.group_id, old.member_id, SESSION)
    # A request still waiting under the old id is from a second process with the same instance id.
    proposal.reply(old.join_token, JoinReply(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
    proposal.reply(old.sync_token, SyncReply(ErrorCode.FENCED_INSTANCE_ID))
    member = group.change(
        member_id,
        protocols=event.protocols,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        session_timeout_ms=event.session_timeout_ms,
        client_id=event.client_id,
        client_host=event.client_host,
        join_token=event.token,
    )
    arm_session(proposal, group, member)
    proposal.note(
        "static member replaced", group=group.group_id, instance=event.group_instance_id, member=member_id
    )
    if group.state is ClassicState.STABLE and group.select_protocol() == group.protocol_name:
        # Other members are not affected: the new id is stored with the old assignment.
        group.change(member_id, join_token=None)
        proposal.record(records.group_metadata(group))
        is_leader = group.is_leader(member_id)
        proposal.reply(
            event.token,
            JoinReply(
                ErrorCode.NONE,
                member_id,
                group.generation_id,
                group.protocol_type,
                group.protocol_name,
                # A client before v9 that saw its own id here would compute a new assignment; with the old leader's
                # id it acts as a follower and keeps its partitions.
                (group.leader_id if event.can_skip_assignment else leader_before) or "",
                skip_assignment=event.can_skip_assignment and is_leader,
                members=joined_members(group) if event.can_skip_assignment and is_leader else (),
            ),
        )
    elif group.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
        # The generation is not complete, and the leader may already have assigned partitions to the old id: only
        # another rebalance gives some to the new id.
        prepare_rebalance(proposal, group, f"static member {event.group_instance_id} came back")
    else:
        complete_join_if_all_joined(proposal, group)


def _reply_current(
    proposal: Proposal, group: ClassicGroup, event: JoinGroup, *, leader_gets_members: bool
) -> None:
    is_leader = leader_gets_members and group.is_leader(event.member_id)
    proposal.reply(
        event.token,
        JoinReply(
            ErrorCode.NONE,
            event.member_id,
            group.generation_id,
            group.protocol_type,
            group.protocol_name,
            group.leader_id or "",
            members=joined_members(group) if is_leader else (),
        ),
    )
