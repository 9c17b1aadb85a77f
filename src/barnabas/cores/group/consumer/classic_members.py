"""Members that speak the classic protocol inside a consumer group.

Their JoinGroup is a heartbeat that also says what they own, their generation is their member epoch, their SyncGroup
fetches the assignment made by the server, and their Heartbeat is answered with REBALANCE_IN_PROGRESS whenever there is
something new for them. There is no leader.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.cores.group.assignors import NOTHING
from barnabas.cores.group.consumer import epochs as epochs
from barnabas.cores.group.consumer import records as records
from barnabas.cores.group.consumer.group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from barnabas.cores.group.events import (
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncReply,
)
from barnabas.cores.group.migration import encode_assignment, fence_members, topic_ids
from barnabas.cores.group.proposal import Proposal
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.primitives import WireError
from barnabas.wire.records_schemas import consumer_protocol as protocol


def decide_join(proposal: Proposal, stored: ConsumerGroup, event: JoinGroup) -> None:
    """JoinGroup by a member that uses the classic protocol."""
    limits = proposal.state.limits_of(stored.group_id)
    if event.member_id not in stored.members and len(stored.members) >= limits.consumer_max_size:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"{stored.group_id!r} has {len(stored.members)} members"
        )
    _require_common_protocol(stored, event)
    try:
        subscription = protocol.ConsumerProtocolSubscription.decode_versioned(event.protocols[0][1])
    except WireError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"unreadable subscription: {error}") from error
    member_id = event.member_id
    if not member_id:
        member_id = event.new_member_id
        if event.requires_member_id and event.group_instance_id is None:
            proposal.reply(event.token, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
    group = proposal.edit(stored)
    before = _identify(proposal, group, event, member_id)
    member = replace(
        before,
        instance_id=event.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=frozenset(subscription.topics),
        regex=None,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        classic=ClassicSide(event.session_timeout_ms, event.protocols),
    )
    epochs.update_member(proposal, group, member)
    owned = topic_ids(proposal, subscription.owned_partitions)
    after = epochs.follow_target(proposal, group, group.members[member_id], owned)
    proposal.disarm(group.group_id, member_id, epochs.MEMBER_JOIN)
    proposal.arm(group.group_id, member_id, epochs.MEMBER_SYNC, proposal.now_ms + event.rebalance_timeout_ms)
    epochs.arm_session(proposal, group, after)
    proposal.reply(
        event.token,
        JoinReply(ErrorCode.NONE, member_id, after.epoch, protocol.PROTOCOL_TYPE, event.protocols[0][0]),
    )


def _require_common_protocol(group: ConsumerGroup, event: JoinGroup) -> None:
    common = {name for name, _ in event.protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != event.member_id:
            common &= {name for name, _ in member.classic.protocols}
    if event.protocol_type != protocol.PROTOCOL_TYPE or not common:
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"no protocol of {event.protocol_type!r} is common to all members of {group.group_id!r}",
        )


def _identify(proposal: Proposal, group: ConsumerGroup, event: JoinGroup, member_id: str) -> ConsumerMember:
    instance_id = event.group_instance_id
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if event.member_id:
        return group.require_static(instance_id, member_id)
    current_id = group.static_ids.get(instance_id)
    if current_id is None:
        return ConsumerMember(member_id)
    current = group.members[current_id]
    if current.classic is None and current.epoch != LEAVE_STATIC_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"{instance_id!r} is in use by member {current_id!r}"
        )
    target = group.target.get(current_id, NOTHING)
    epochs.drop_timers(proposal, group.group_id, current_id)
    records.write_member_gone(proposal, group, current_id)
    back = replace(
        current,
        member_id=member_id,
        epoch=JOIN_EPOCH,
        previous_epoch=JOIN_EPOCH,
        state=MemberState.STABLE,
        revoking=NOTHING,
    )
    records.write_member(proposal, group, back)
    records.write_target_member(proposal, group, member_id, target)
    records.write_current(proposal, group, back)
    return back


def _require_classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> ConsumerMember:
    member = group.require(member_id, instance_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} does not speak the classic protocol")
    if generation_id != member.epoch:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION, f"{member_id!r} is at {member.epoch}, not {generation_id}"
        )
    return member


def decide_sync(proposal: Proposal, group: ConsumerGroup, event: SyncGroup) -> None:
    """SyncGroup: the assignment made by the server, in the classic format."""
    member = _require_classic_member(group, event.member_id, event.group_instance_id, event.generation_id)
    assert member.classic is not None
    name = member.classic.protocols[0][0]
    if event.protocol_type not in (None, protocol.PROTOCOL_TYPE) or event.protocol_name not in (None, name):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{event.group_id!r} uses consumer and {name!r}"
        )
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        # Something has changed since it joined. A member that still has to revoke learns of the change afterwards.
        _expect_join(proposal, group, member)
        proposal.disarm(group.group_id, member.member_id, epochs.MEMBER_SYNC)
        proposal.reply(event.token, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
        return
    proposal.disarm(group.group_id, member.member_id, epochs.MEMBER_SYNC)
    epochs.arm_session(proposal, group, member)
    assignment = encode_assignment(proposal, member)
    proposal.reply(event.token, SyncReply(ErrorCode.NONE, protocol.PROTOCOL_TYPE, name, assignment))


def decide_heartbeat(proposal: Proposal, group: ConsumerGroup, event: Heartbeat) -> None:
    """Heartbeat: REBALANCE_IN_PROGRESS if there is something new for the member."""
    member = _require_classic_member(group, event.member_id, event.group_instance_id, event.generation_id)
    epochs.arm_session(proposal, group, member)
    waiting_for = group.target.get(member.member_id, NOTHING) - member.assigned
    something_new = (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (
            member.state is MemberState.UNRELEASED_PARTITIONS
            and not any(tp in group.owners for tp in waiting_for)
        )
    )
    if something_new:
        _expect_join(proposal, group, member)
    proposal.reply(
        event.token, HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS if something_new else ErrorCode.NONE)
    )


def _expect_join(proposal: Proposal, group: ConsumerGroup, member: ConsumerMember) -> None:
    """The member has been asked to join again: start its rebalance timeout, unless it is running."""
    if not proposal.is_armed(group.group_id, member.member_id, epochs.MEMBER_JOIN):
        deadline_ms = proposal.now_ms + member.rebalance_timeout_ms
        proposal.arm(group.group_id, member.member_id, epochs.MEMBER_JOIN, deadline_ms)


def decide_leave(proposal: Proposal, stored: ConsumerGroup, event: LeaveGroup) -> None:
    """LeaveGroup of classic members, or by an administrator."""
    group = proposal.edit(stored)
    leaving: list[str] = []
    results = []
    for wish in event.members:
        error = _leave(group, wish, leaving)
        results.append(LeftMember(wish.member_id, wish.group_instance_id, error))
    proposal.reply(event.token, LeaveReply(ErrorCode.NONE, tuple(results)))
    if leaving:
        fence_members(proposal, group, leaving, "leave")


def _leave(group: ConsumerGroup, wish: LeavingMember, leaving: list[str]) -> ErrorCode:
    """The result for one leaving member. An administrator may remove any static member, others only themselves."""
    member_id = wish.member_id
    try:
        if wish.group_instance_id is not None and not member_id:
            member_id = group.static_ids.get(wish.group_instance_id, "")
        elif wish.group_instance_id is not None:
            group.require_static(wish.group_instance_id, member_id)
        group.require_member(member_id)
    except ApiError as refusal:
        return refusal.code
    if member_id not in leaving:
        leaving.append(member_id)
    return ErrorCode.NONE
