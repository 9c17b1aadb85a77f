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
from barnabas.cores.group.turn import Turn
from barnabas.wire.errors import ApiError, ErrorCode

INITIALIZE: Final = "initialize"
"""The timer of a topic, with its id in place of a member's: while it runs, states are not requested again."""


def decide_share_heartbeat(turn: Turn, event: ShareHeartbeat) -> None:
    """ShareGroupHeartbeat: join, stay, leave."""
    if not event.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    if not event.member_id or event.member_epoch < LEAVE_EPOCH or event.rack_id == "":
        raise ApiError(ErrorCode.INVALID_REQUEST, "MemberId must be given, MemberEpoch be -1 or more")
    joins = event.member_epoch == JOIN_EPOCH
    if joins and not event.topics:
        raise ApiError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
    stored = turn.find(event.group_id)
    if event.member_epoch == LEAVE_EPOCH:
        group = turn.edit(_require_share(stored, event.group_id))
        group.require_member(event.member_id)
        fence_members(turn, group, [event.member_id], "leaves")
        turn.reply(event.token, ShareHeartbeatReply(member_id=event.member_id, member_epoch=LEAVE_EPOCH))
        return
    if stored is None and joins:
        group = turn.put(ShareGroup(event.group_id))
    elif stored is None:  # lost with its topic; see migration.consumer_group_for
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {event.group_id} not found: join again.")
    else:
        group = turn.edit(_require_share(stored, event.group_id))
    before = _identify(turn, group, event, joins=joins)
    member = replace(
        before,
        rack_id=before.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id or before.client_id,
        client_host=event.client_host or before.client_host,
        topics=before.topics if event.topics is None else event.topics,
    )
    is_new = event.member_id not in group.members
    if is_new or member != before:
        records.write_member(turn, group, member)
    _refresh(turn, group, subscriptions_changed=is_new or member.topics != before.topics)
    after = _follow_target(turn, group, member)
    arm_session(turn, group, after)
    changed = joins or event.topics is not None or after.assigned != before.assigned
    limits = turn.state.limits_of(group.group_id)
    interval_ms = limits.share_heartbeat_interval_ms
    if group.initializing:
        interval_ms = min(interval_ms, limits.waiting_heartbeat_interval_ms)
    turn.reply(
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


def _identify(turn: Turn, group: ShareGroup, event: ShareHeartbeat, *, joins: bool) -> ShareMember:
    if joins:
        known = group.members.get(event.member_id)
        if known is None and len(group.members) >= turn.state.limits_of(group.group_id).share_max_size:
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


def _refresh(turn: Turn, group: ShareGroup, *, subscriptions_changed: bool) -> None:
    version = turn.state.topics.version
    if subscriptions_changed or group.topics_seen != version:
        metadata_hash = hash_of_topics(turn, group.subscribed_topics())
        if subscriptions_changed or metadata_hash != group.metadata_hash:
            records.write_epoch(turn, group, group.epoch + 1, metadata_hash)
        group.topics_seen = version
    _initialize_missing(turn, group)
    if group.epoch > group.target_epoch:
        _compute_target(turn, group)


def _initialize_missing(turn: Turn, group: ShareGroup) -> None:
    """Request the missing states of subscribed partitions; again if there was no answer for a while."""
    retry_ms = turn.state.limits.share_initialize_retry_interval_ms
    changed = False
    for name in sorted(group.subscribed_topics() & turn.state.topics.by_name.keys()):
        topic_id, count = turn.state.topics.by_name[name]
        ready = group.initialized.get(topic_id)
        missing = frozenset(range(count)) - (ready.partitions if ready else frozenset())
        asked = group.initializing.get(topic_id)
        waits = turn.is_armed(group.group_id, str(topic_id), INITIALIZE)
        if not missing or (waits and asked is not None and missing <= asked.partitions):
            continue
        turn.arm(group.group_id, str(topic_id), INITIALIZE, turn.now_ms + retry_ms)
        group.initializing[topic_id] = ShareTopic(name, missing, turn.now_ms)
        turn.effect(InitializeShareState(group.group_id, topic_id, missing, group.epoch))
        changed = True
    if changed:
        records.write_topics(turn, group)


def _compute_target(turn: Turn, group: ShareGroup) -> None:
    topics = turn.state.topics
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
            records.write_target_member(turn, group, member_id, share)
    records.write_target_epoch(turn, group, group.epoch)


def _follow_target(turn: Turn, group: ShareGroup, member: ShareMember) -> ShareMember:
    if member.epoch == group.target_epoch:
        return member
    after = replace(
        member,
        epoch=group.target_epoch,
        previous_epoch=member.epoch,
        assigned=group.target.get(member.member_id, NOTHING),
    )
    records.write_current(turn, group, after)
    return after


def arm_session(turn: Turn, group: ShareGroup, member: ShareMember) -> None:
    """Restart the member's session timeout."""
    timeout_ms = turn.state.limits_of(group.group_id).share_session_timeout_ms
    turn.arm(group.group_id, member.member_id, SESSION, turn.now_ms + timeout_ms)


def fence_members(turn: Turn, group: ShareGroup, member_ids: list[str], reason: str) -> None:
    """Remove members; the next target assigns their partitions to others."""
    for member_id in member_ids:
        turn.disarm(group.group_id, member_id, SESSION)
        records.write_member_gone(turn, group, member_id)
    turn.note("members removed", group=group.group_id, members=member_ids, reason=reason)
    records.write_epoch(turn, group, group.epoch + 1, hash_of_topics(turn, group.subscribed_topics()))


# --- states at the share coordinator


def decide_initialized(turn: Turn, event: ShareInitialized) -> None:
    """The group's next epoch may assign these partitions. May be repeated."""
    group = turn.find(event.group_id)
    if isinstance(group, ShareGroup):
        draft = turn.edit(group)
        for topic_id, partitions in event.topics.items():
            _mark_initialized(turn, draft, topic_id, partitions)
        records.write_topics(turn, draft)
        records.write_epoch(turn, draft, draft.epoch + 1, draft.metadata_hash)
    turn.reply(event.token, DoneReply())


def ask_again(turn: Turn, group: ShareGroup) -> None:
    """After a restart: it is unknown whether the requested states have been created, so request them again."""
    retry_ms = turn.state.limits.share_initialize_retry_interval_ms
    for topic_id, topic in group.initializing.items():
        turn.arm(group.group_id, str(topic_id), INITIALIZE, turn.now_ms + retry_ms)
        turn.effect(InitializeShareState(group.group_id, topic_id, topic.partitions, group.epoch))


def _mark_initialized(turn: Turn, group: ShareGroup, topic_id: UUID, partitions: frozenset[int]) -> None:
    asked = group.initializing.pop(topic_id, None)
    ready = group.initialized.get(topic_id)
    name = asked.name if asked else (ready.name if ready else turn.state.topics.names.get(topic_id, ""))
    all_ready = partitions | (ready.partitions if ready else frozenset())
    group.initialized[topic_id] = ShareTopic(name, all_ready, turn.now_ms)
    if asked is not None and asked.partitions - partitions:
        group.initializing[topic_id] = asked._replace(partitions=asked.partitions - partitions)
    else:
        turn.disarm(group.group_id, str(topic_id), INITIALIZE)


def forget_topics(turn: Turn, group: ShareGroup, topic_ids: Mapping[UUID, object] | frozenset[UUID]) -> None:
    """Forget these topics, and have their states deleted."""
    gone = [
        topic_id
        for topic_id in sorted(topic_ids)
        if topic_id in group.initialized or topic_id in group.initializing
    ]
    for topic_id in gone:
        ready, asked = group.initialized.pop(topic_id, None), group.initializing.pop(topic_id, None)
        turn.disarm(group.group_id, str(topic_id), INITIALIZE)
        partitions = (ready.partitions if ready else frozenset()) | (
            asked.partitions if asked else frozenset()
        )
        turn.effect(DeleteShareState(group.group_id, topic_id, partitions))
    if gone:
        records.write_topics(turn, group)
    if gone and group.members:
        records.write_epoch(turn, group, group.epoch + 1, group.metadata_hash)


def decide_states_lost(turn: Turn, event: ShareStatesLost) -> None:
    """At its next heartbeats the group requests the states again, and starts where its options say."""
    group = turn.find(event.group_id)
    if isinstance(group, ShareGroup) and (group.initialized or group.initializing):
        draft = turn.edit(group)
        for topic_id in draft.initializing:
            turn.disarm(group.group_id, str(topic_id), INITIALIZE)
        draft.initialized, draft.initializing = {}, {}
        records.write_topics(turn, draft)
        if draft.members:
            records.write_epoch(turn, draft, draft.epoch + 1, draft.metadata_hash)
    turn.reply(event.token, DoneReply())


def _require_empty(turn: Turn, group_id: str) -> ShareGroup:
    group = turn.edit(_require_share(turn.find(group_id), group_id))
    if not group.is_empty:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"{group_id!r} has members: stop them first")
    return group


def decide_alter_offsets(turn: Turn, event: AlterShareOffsets) -> None:
    """Set the start offsets of a group without members; the group is created if it does not exist yet.

    The states get a new group epoch as their epoch, which fences writes by old leaders.
    """
    if not event.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    if turn.find(event.group_id) is None:
        turn.put(ShareGroup(event.group_id))
    group = _require_empty(turn, event.group_id)
    records.write_epoch(turn, group, group.epoch + 1, group.metadata_hash)
    for topic_id, partitions in event.topics.items():
        _mark_initialized(turn, group, topic_id, partitions)
    records.write_topics(turn, group)
    turn.reply(event.token, AlterShareReply(state_epoch=group.epoch))


def decide_delete_offsets(turn: Turn, event: DeleteShareOffsets) -> None:
    """DeleteShareGroupOffsets for an empty group."""
    group = _require_empty(turn, event.group_id)
    forget_topics(turn, group, event.topics)
    turn.reply(event.token, AlterShareReply())


def decide_describe_share(turn: Turn, event: DescribeShareGroup) -> None:
    """ShareGroupDescribe: one group."""
    group = _require_share(turn.find(event.group_id), event.group_id)
    members = tuple(
        DescribedSharer(
            m.member_id, m.rack_id, m.epoch, m.client_id, m.client_host, tuple(sorted(m.topics)), m.assigned
        )
        for m in group.members.values()
    )
    initialized = tuple(
        (topic_id, topic.name, topic.partitions) for topic_id, topic in group.initialized.items()
    )
    turn.reply(
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
