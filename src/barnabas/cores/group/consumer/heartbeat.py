"""ConsumerGroupHeartbeat (v0 and v1): join, stay, follow the assignment, leave.

A heartbeat is handled in this order: which member is it, what does it subscribe to now, does that change the group (a new
group epoch), what should all members have (a new target assignment), and the next step of this member towards it.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.cores.group.assignors import ASSIGNORS, NOTHING
from barnabas.cores.group.consumer import epochs as epochs
from barnabas.cores.group.consumer import records as records
from barnabas.cores.group.consumer.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from barnabas.cores.group.events import ConsumerHeartbeat, ConsumerHeartbeatReply
from barnabas.cores.group.migration import consumer_group_for, fence_members
from barnabas.cores.group.proposal import Proposal
from barnabas.wire.errors import ApiError, ErrorCode


def decide_consumer_heartbeat(proposal: Proposal, event: ConsumerHeartbeat) -> None:
    """ConsumerGroupHeartbeat: join, stay, leave."""
    _check_request(event)
    if event.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        _leave(proposal, event)
    elif not _answer_if_unchanged(proposal, event):
        _heartbeat(proposal, event)


def _check_request(event: ConsumerHeartbeat) -> None:
    problem = None
    if not event.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    if event.member_epoch < LEAVE_STATIC_EPOCH:
        problem = f"MemberEpoch {event.member_epoch} is invalid."
    elif not event.member_id:
        problem = "MemberId can't be empty."
    elif event.instance_id == "" or event.rack_id == "":
        problem = "InstanceId and RackId can't be empty: leave them out instead."
    elif event.member_epoch == LEAVE_STATIC_EPOCH and event.instance_id is None:
        problem = "InstanceId can't be null."
    elif event.member_epoch == JOIN_EPOCH:
        if event.rebalance_timeout_ms < 0:
            problem = "RebalanceTimeoutMs must be provided in first request."
        elif event.owned is None or event.owned:
            problem = "TopicPartitions must be empty when (re-)joining."
        elif event.topics is None and event.regex is None:
            problem = (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    if event.assignor is not None and event.assignor not in ASSIGNORS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {event.assignor} is not supported. Supported assignors: {', '.join(ASSIGNORS)}.",
        )


def _answer_if_unchanged(proposal: Proposal, event: ConsumerHeartbeat) -> bool:
    """Answer the common heartbeat, which says nothing new to a group at rest, without changing the group; else False."""
    group = proposal.find(event.group_id)
    if not isinstance(group, ConsumerGroup) or group.topics_seen != proposal.state.topics.version:
        return False
    member = group.members.get(event.member_id)
    if (
        member is None
        or event.member_epoch != member.epoch
        or member.epoch == JOIN_EPOCH
        or group.epoch != group.target_epoch
        or not group.is_reconciled(member)
        or event.instance_id not in (None, member.instance_id)
        or (event.topics is not None and event.topics != member.topics)
        or event.regex is not None
        or event.assignor not in (None, member.assignor)
        or event.owned is not None
    ):
        return False
    epochs.arm_session(proposal, group, member)
    proposal.reply(event.token, _reply(proposal, group, member))
    return True


def _heartbeat(proposal: Proposal, event: ConsumerHeartbeat) -> None:
    joins = event.member_epoch == JOIN_EPOCH
    group = consumer_group_for(proposal, event.group_id, create=joins, is_member=not joins)
    limits = proposal.state.limits_of(group.group_id)
    if event.member_id not in group.members and len(group.members) >= limits.consumer_max_size:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"{group.group_id!r} has {len(group.members)} members"
        )
    before = _identify(proposal, group, event)
    member = replace(
        before,
        instance_id=before.instance_id if event.instance_id is None else event.instance_id,
        rack_id=before.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=before.topics if event.topics is None else event.topics,
        regex=before.regex if event.regex is None else (event.regex or None),
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if event.rebalance_timeout_ms < 0 else event.rebalance_timeout_ms
        ),
        assignor=before.assignor if event.assignor is None else event.assignor,
        classic=None,
    )
    epochs.update_member(proposal, group, member)
    after = epochs.follow_target(proposal, group, group.members[event.member_id], event.owned)
    epochs.arm_session(proposal, group, after)
    says_all = (
        event.rebalance_timeout_ms >= 0
        and (event.topics is not None or event.regex is not None)
        and event.owned is not None
    )
    changed = joins or says_all or after.assigned != before.assigned
    proposal.reply(event.token, _reply(proposal, group, after, with_assignment=changed))


def _identify(proposal: Proposal, group: ConsumerGroup, event: ConsumerHeartbeat) -> ConsumerMember:
    """The member so far: a known one, a new one, or a returning static member under its new id."""
    if event.instance_id is not None:
        if event.member_epoch == JOIN_EPOCH:
            return _join_static(proposal, group, event, event.instance_id)
        member = group.require_static(event.instance_id, event.member_id)
    elif event.member_epoch == JOIN_EPOCH:
        return group.members.get(event.member_id) or ConsumerMember(event.member_id)
    else:
        member = group.require_member(event.member_id)
    _require_epoch(member, event)
    return member


def _require_epoch(member: ConsumerMember, event: ConsumerHeartbeat) -> None:
    """A member one epoch behind did not get the last answer: accepted if it owns no more than it may."""
    if event.member_epoch == member.epoch:
        return
    missed_answer = (
        event.member_epoch < member.epoch
        and event.member_epoch == member.previous_epoch
        and event.owned is not None
        and event.owned <= member.assigned
    )
    if not missed_answer:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"{member.member_id!r} is at epoch {member.epoch}, not {event.member_epoch}:"
            " it must give up its partitions and join again",
        )


def _join_static(
    proposal: Proposal, group: ConsumerGroup, event: ConsumerHeartbeat, instance_id: str
) -> ConsumerMember:
    current_id = group.static_ids.get(instance_id)
    if current_id is None:
        return ConsumerMember(event.member_id)
    current = group.members[current_id]
    if current_id == event.member_id:
        return current
    if current.epoch != LEAVE_STATIC_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"{instance_id!r} is in use by member {current_id!r}"
        )
    # It is back from a temporary absence: it takes over the place and the partitions of its former self.
    target = group.target.get(current_id, NOTHING)
    epochs.drop_timers(proposal, group.group_id, current_id)
    records.write_member_gone(proposal, group, current_id)
    back = replace(current, member_id=event.member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    records.write_member(proposal, group, back)
    records.write_target_member(proposal, group, event.member_id, target)
    records.write_current(proposal, group, back)
    return back


# --- leaving


def _leave(proposal: Proposal, event: ConsumerHeartbeat) -> None:
    group = consumer_group_for(proposal, event.group_id, create=False)
    member = group.require(event.member_id, event.instance_id)
    if event.member_epoch == LEAVE_STATIC_EPOCH:
        away = replace(member, epoch=LEAVE_STATIC_EPOCH, state=MemberState.STABLE, revoking=NOTHING)
        records.write_current(proposal, group, away)
        proposal.disarm(group.group_id, member.member_id, epochs.REVOKE)
        proposal.note("static member leaves for a while", group=group.group_id, member=member.member_id)
    else:
        fence_members(proposal, group, [member.member_id], "leaves")
    reply = ConsumerHeartbeatReply(member_id=event.member_id, member_epoch=event.member_epoch)
    proposal.reply(event.token, reply)


def _reply(
    proposal: Proposal, group: ConsumerGroup, member: ConsumerMember, *, with_assignment: bool = False
) -> ConsumerHeartbeatReply:
    limits = proposal.state.limits_of(group.group_id)
    interval_ms = limits.consumer_heartbeat_interval_ms
    if (
        member.state is MemberState.UNRELEASED_PARTITIONS
        or group.epoch > group.target_epoch
        or epochs.must_match(proposal.state, group, proposal.now_ms)
    ):
        # Others are about to release what it waits for, a new assignment is due, or topics are about to be matched: the
        # member should learn of that soon, not after a whole interval.
        interval_ms = min(interval_ms, limits.waiting_heartbeat_interval_ms)
    return ConsumerHeartbeatReply(
        ErrorCode.NONE,
        None,
        member.member_id,
        member.epoch,
        interval_ms,
        member.assigned if with_assignment else None,
    )
