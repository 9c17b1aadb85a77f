"""ShareGroupHeartbeat (v1), ShareGroupDescribe, and the administration of a share group's offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from barnabas.cores.decision import DoneReply
from barnabas.cores.group.assignors import NOTHING, AssignSpec
from barnabas.cores.group.classic.rebalance import SESSION
from barnabas.cores.group.consumer.epochs import hash_of_topics
from barnabas.cores.group.consumer.group import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.share import records as records
from barnabas.cores.group.share.events import (
    AlterShareOffsets,
    AlterShareReply,
    DeleteShareOffsets,
    DeleteShareState,
    DescribedSharer,
    DescribeShareGroup,
    InitializeShareState,
    ShareDescribeReply,
    ShareHeartbeat,
    ShareHeartbeatReply,
    ShareInitialized,
    ShareStatesLost,
)
from barnabas.cores.group.share.group import (
    ShareGroup,
    ShareMember,
    ShareTopic,
    assign_simple,
)
from barnabas.wire.errors import ApiError, ErrorCode

INITIALIZE: Final = "initialize"
"""The timer of a topic, with its id in place of a member's: while it runs, states are not requested again."""


def decide_share_heartbeat(proposal: Proposal, event: ShareHeartbeat) -> None:
    """ShareGroupHeartbeat: join, stay, leave."""
    if not event.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    if not event.member_id or event.member_epoch < LEAVE_EPOCH or event.rack_id == "":
        raise ApiError(ErrorCode.INVALID_REQUEST, "MemberId must be given, MemberEpoch be -1 or more")
    joins = event.member_epoch == JOIN_EPOCH
    if joins and not event.topics:
        raise ApiError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    stored = proposal.find(event.group_id)
    if event.member_epoch == LEAVE_EPOCH:
        group = proposal.edit(_require_share(stored, event.group_id))
        group.require_member(event.member_id)
        fence_members(proposal, group, [event.member_id], "leaves")
        proposal.reply(event.token, ShareHeartbeatReply(member_id=event.member_id, member_epoch=LEAVE_EPOCH))
        return
    if stored is None and joins:
        group = proposal.put(ShareGroup(event.group_id))
    elif stored is None:  # lost with its topic; see migration.consumer_group_for
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {event.group_id} not found: join again.")
    else:
        group = proposal.edit(_require_share(stored, event.group_id))
    before = _identify(proposal, group, event, joins=joins)
    member = replace(
        before,
        rack_id=before.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id or before.client_id,
        client_host=event.client_host or before.client_host,
        topics=before.topics if event.topics is None else event.topics,
    )
    is_new = event.member_id not in group.members
    if is_new or member != before:
        records.write_member(proposal, group, member)
    _refresh(proposal, group, subscriptions_changed=is_new or member.topics != before.topics)
    after = _follow_target(proposal, group, member)
    arm_session(proposal, group, after)
    changed = joins or event.topics is not None or after.assigned != before.assigned
    limits = proposal.state.limits_of(group.group_id)
    interval_ms = limits.share_heartbeat_interval_ms
    if group.initializing:
        interval_ms = min(interval_ms, limits.waiting_heartbeat_interval_ms)
    proposal.reply(
        event.token,
        ShareHeartbeatReply(
            ErrorCode.NONE,
            None,
            after.member_id,
            after.epoch,
            interval_ms,
            after.assigned if changed else None,
        ),
    )


def _require_share(group: object, group_id: str) -> ShareGroup:
    if not isinstance(group, ShareGroup):
        what = "not found" if group is None else "is not a share group"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
    return group


def _identify(proposal: Proposal, group: ShareGroup, event: ShareHeartbeat, *, joins: bool) -> ShareMember:
    if joins:
        known = group.members.get(event.member_id)
        if known is None and len(group.members) >= proposal.state.limits_of(group.group_id).share_max_size:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"{group.group_id!r} has {len(group.members)} members"
            )
        return known or ShareMember(event.member_id)
    member = group.require_member(event.member_id)
    if event.member_epoch not in (member.epoch, member.previous_epoch):
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"{member.member_id!r} is at epoch {member.epoch}, not {event.member_epoch}: it must join again",
        )
    return member


# --- epochs


def _refresh(proposal: Proposal, group: ShareGroup, *, subscriptions_changed: bool) -> None:
    version = proposal.state.topics.version
    if subscriptions_changed or group.topics_seen != version:
        metadata_hash = hash_of_topics(proposal, group.subscribed_topics())
        if subscriptions_changed or metadata_hash != group.metadata_hash:
            records.write_epoch(proposal, group, group.epoch + 1, metadata_hash)
        group.topics_seen = version
    _initialize_missing(proposal, group)
    if group.epoch > group.target_epoch:
        _compute_target(proposal, group)


def _initialize_missing(proposal: Proposal, group: ShareGroup) -> None:
    """Request the missing states of subscribed partitions; again if there was no answer for a while."""
    retry_ms = proposal.state.limits.share_initialize_retry_interval_ms
    changed = False
    for name in sorted(group.subscribed_topics() & proposal.state.topics.by_name.keys()):
        topic_id, count = proposal.state.topics.by_name[name]
        ready = group.initialized.get(topic_id)
        missing = frozenset(range(count)) - (ready.partitions if ready else frozenset())
        asked = group.initializing.get(topic_id)
        waits = proposal.is_armed(group.group_id, str(topic_id), INITIALIZE)
        if not missing or (waits and asked is not None and missing <= asked.partitions):
            continue
        proposal.arm(group.group_id, str(topic_id), INITIALIZE, proposal.now_ms + retry_ms)
        group.initializing[topic_id] = ShareTopic(name, missing, proposal.now_ms)
        proposal.effect(InitializeShareState(group.group_id, topic_id, missing, group.epoch))
        changed = True
    if changed:
        records.write_topics(proposal, group)


def _compute_target(proposal: Proposal, group: ShareGroup) -> None:
    topics = proposal.state.topics
    wanted = {
        member.member_id: frozenset(
            topics.by_name[name].topic_id for name in member.topics if name in topics.by_name
        )
        for member in group.members.values()
    }
    ready = {
        topic_id: topic.partitions
        for topic_id, topic in group.initialized.items()
        if topic_id in topics.names
    }
    counts = {topic_id: topics.partitions(topic_id) for topic_id in ready}
    target = assign_simple(AssignSpec(counts, wanted, group.target, {}), ready)
    for member_id, share in sorted(target.items()):
        if group.target.get(member_id) != share:
            records.write_target_member(proposal, group, member_id, share)
    records.write_target_epoch(proposal, group, group.epoch)


def _follow_target(proposal: Proposal, group: ShareGroup, member: ShareMember) -> ShareMember:
    if member.epoch == group.target_epoch:
        return member
    after = replace(
        member,
        epoch=group.target_epoch,
        previous_epoch=member.epoch,
        assigned=group.target.get(member.member_id, NOTHING),
    )
    records.write_current(proposal, group, after)
    return after


def arm_session(proposal: Proposal, group: ShareGroup, member: ShareMember) -> None:
    """Restart the member's session timeout."""
    timeout_ms = proposal.state.limits_of(group.group_id).share_session_timeout_ms
    proposal.arm(group.group_id, member.member_id, SESSION, proposal.now_ms + timeout_ms)


def fence_members(proposal: Proposal, group: ShareGroup, member_ids: list[str], reason: str) -> None:
    """Remove members; the next target assigns their partitions to others."""
    for member_id in member_ids:
        proposal.disarm(group.group_id, member_id, SESSION)
        records.write_member_gone(proposal, group, member_id)
    proposal.note("members removed", group=group.group_id, members=member_ids, reason=reason)
    records.write_epoch(proposal, group, group.epoch + 1, hash_of_topics(proposal, group.subscribed_topics()))


# --- states at the share coordinator


def decide_initialized(proposal: Proposal, event: ShareInitialized) -> None:
    """The group's next epoch may assign these partitions. May be repeated."""
    group = proposal.find(event.group_id)
    if isinstance(group, ShareGroup):
        draft = proposal.edit(group)
        for topic_id, partitions in event.topics.items():
            _mark_initialized(proposal, draft, topic_id, partitions)
        records.write_topics(proposal, draft)
        records.write_epoch(proposal, draft, draft.epoch + 1, draft.metadata_hash)
    proposal.reply(event.token, DoneReply())


def ask_again(proposal: Proposal, group: ShareGroup) -> None:
    """After a restart: it is unknown whether the requested states have been created, so request them again."""
    retry_ms = proposal.state.limits.share_initialize_retry_interval_ms
    for topic_id, topic in group.initializing.items():
        proposal.arm(group.group_id, str(topic_id), INITIALIZE, proposal.now_ms + retry_ms)
        proposal.effect(InitializeShareState(group.group_id, topic_id, topic.partitions, group.epoch))


def _mark_initialized(
    proposal: Proposal, group: ShareGroup, topic_id: UUID, partitions: frozenset[int]
) -> None:
    asked = group.initializing.pop(topic_id, None)
    ready = group.initialized.get(topic_id)
    name = asked.name if asked else (ready.name if ready else proposal.state.topics.names.get(topic_id, ""))
    all_ready = partitions | (ready.partitions if ready else frozenset())
    group.initialized[topic_id] = ShareTopic(name, all_ready, proposal.now_ms)
    if asked is not None and asked.partitions - partitions:
        group.initializing[topic_id] = asked._replace(partitions=asked.partitions - partitions)
    else:
        proposal.disarm(group.group_id, str(topic_id), INITIALIZE)


def forget_topics(
    proposal: Proposal, group: ShareGroup, topic_ids: Mapping[UUID, object] | frozenset[UUID]
) -> None:
    """Forget these topics, and have their states deleted."""
    gone = [
        topic_id
        for topic_id in sorted(topic_ids)
        if topic_id in group.initialized or topic_id in group.initializing
    ]
    for topic_id in gone:
        ready, asked = group.initialized.pop(topic_id, None), group.initializing.pop(topic_id, None)
        proposal.disarm(group.group_id, str(topic_id), INITIALIZE)
        partitions = (ready.partitions if ready else frozenset()) | (
            asked.partitions if asked else frozenset()
        )
        proposal.effect(DeleteShareState(group.group_id, topic_id, partitions))
    if gone:
        records.write_topics(proposal, group)
    if gone and group.members:
        records.write_epoch(proposal, group, group.epoch + 1, group.metadata_hash)


def decide_states_lost(proposal: Proposal, event: ShareStatesLost) -> None:
    """At its next heartbeats the group requests the states again, and starts where its options say."""
    group = proposal.find(event.group_id)
    if isinstance(group, ShareGroup) and (group.initialized or group.initializing):
        draft = proposal.edit(group)
        for topic_id in draft.initializing:
            proposal.disarm(group.group_id, str(topic_id), INITIALIZE)
        draft.initialized, draft.initializing = {}, {}
        records.write_topics(proposal, draft)
        if draft.members:
            records.write_epoch(proposal, draft, draft.epoch + 1, draft.metadata_hash)
    proposal.reply(event.token, DoneReply())


def _require_empty(proposal: Proposal, group_id: str) -> ShareGroup:
    group = proposal.edit(_require_share(proposal.find(group_id), group_id))
    if not group.is_empty:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"{group_id!r} has members: stop them first")
    return group


def decide_alter_offsets(proposal: Proposal, event: AlterShareOffsets) -> None:
    """Set the start offsets of a group without members; the group is created if it does not exist yet.

    The states get a new group epoch as their epoch, which fences writes by old leaders.
    """
    if not event.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    if proposal.find(event.group_id) is None:
        proposal.put(ShareGroup(event.group_id))
    group = _require_empty(proposal, event.group_id)
    records.write_epoch(proposal, group, group.epoch + 1, group.metadata_hash)
    for topic_id, partitions in event.topics.items():
        _mark_initialized(proposal, group, topic_id, partitions)
    records.write_topics(proposal, group)
    proposal.reply(event.token, AlterShareReply(state_epoch=group.epoch))


def decide_delete_offsets(proposal: Proposal, event: DeleteShareOffsets) -> None:
    """DeleteShareGroupOffsets for an empty group."""
    group = _require_empty(proposal, event.group_id)
    forget_topics(proposal, group, event.topics)
    proposal.reply(event.token, AlterShareReply())


def decide_describe_share(proposal: Proposal, event: DescribeShareGroup) -> None:
    """ShareGroupDescribe: one group."""
    group = _require_share(proposal.find(event.group_id), event.group_id)
    members = tuple(
        DescribedSharer(
            m.member_id, m.rack_id, m.epoch, m.client_id, m.client_host, tuple(sorted(m.topics)), m.assigned
        )
        for m in group.members.values()
    )
    initialized = tuple(
        (topic_id, topic.name, topic.partitions) for topic_id, topic in group.initialized.items()
    )
    proposal.reply(
        event.token,
        ShareDescribeReply(
            event.group_id,
            state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            members=members,
            initialized=initialized,
        ),
    )
