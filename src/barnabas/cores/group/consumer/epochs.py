"""A consumer group's epochs: the effect of changed members or topics on the group and on a member."""

from __future__ import annotations

import hashlib
from typing import Final
from uuid import UUID

from barnabas.cores.group.assignors import ASSIGNORS, NOTHING, Assignment, AssignSpec
from barnabas.cores.group.classic.rebalance import SESSION
from barnabas.cores.group.consumer import records as records
from barnabas.cores.group.consumer.group import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from barnabas.cores.group.consumer.reconcile import reconcile
from barnabas.cores.group.consumer.topic_regex import InvalidRegex, compile_topic_regex
from barnabas.cores.group.state import Group, State
from barnabas.cores.group.turn import Turn
from barnabas.wire.errors import ApiError, ErrorCode

# Timers of one member, in addition to SESSION.
REVOKE: Final = "revoke"  # limits the time for giving up partitions
MEMBER_JOIN: Final = "member-join"  # limits a classic member's time for joining again
MEMBER_SYNC: Final = "member-sync"  # limits a classic member's time for syncing after it joined
# The timer of a whole group, with no member in its key.
ASSIGN: Final = "assign"  # until the next assignment may be computed

MATCH_AGAIN_MS: Final = 10 * 60_000
"""How long a match is valid where topics are hidden: members' rights change (as in Kafka)."""


def update_member(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Store a member's own data; if that or a topic changes something, start a new group epoch and target."""
    before = group.members.get(member.member_id)
    if member != before:
        records.write_member(turn, group, member)
    wants = before is None or before.topics != member.topics or before.regex != member.regex
    if before is None or before.regex != member.regex:
        if member.regex and not (turn.state.hides_topics and member.regex in group.regexes):
            _resolve_regex(turn, group, member.regex)
        drop_unused_regexes(turn, group)
    if turn.visible is not None:
        group.topics_seen = -1  # it is time to match again
    refresh(turn, group, subscriptions_changed=wants)


def refresh(turn: Turn, group: ConsumerGroup, *, subscriptions_changed: bool) -> None:
    """Start a new group epoch and target if topics or subscriptions have changed."""
    version = turn.state.topics.version
    if subscriptions_changed or group.topics_seen != version:
        is_whole = True
        if group.topics_seen != version:
            used = {member.regex for member in group.members.values() if member.regex}
            for regex in sorted(used):
                is_whole &= _resolve_regex(turn, group, regex)
        now_hash = metadata_hash(turn, group)
        if subscriptions_changed or now_hash != group.metadata_hash:
            records.write_epoch(turn, group, group.epoch + 1, now_hash)
        group.topics_seen = version if is_whole else -1
    if group.epoch > group.target_epoch:
        _assign_when_due(turn, group)


def _assign_when_due(turn: Turn, group: ConsumerGroup) -> None:
    """Compute a new target now, or once the last one is old enough, so that many joins at once need only one."""
    interval_ms = turn.state.limits_of(group.group_id).consumer_assignment_interval_ms
    if 0 <= turn.now_ms - group.assigned_ms < interval_ms:
        turn.arm(group.group_id, "", ASSIGN, group.assigned_ms + interval_ms)
        return
    if interval_ms:
        group.assigned_ms = turn.now_ms
        turn.disarm(group.group_id, "", ASSIGN)
    _compute_target(turn, group)


def _resolve_regex(turn: Turn, group: ConsumerGroup, regex: str) -> bool:
    """Match topics against an expression; False if that has to wait for the heartbeat of a member whose rights count.

    As in Kafka, the rights of the member count whose heartbeat causes this, for the whole group.
    """
    try:
        pattern = compile_topic_regex(regex)
    except InvalidRegex as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
    topics, resolved = turn.state.topics, group.regexes.get(regex)
    if not turn.state.hides_topics:
        found = pattern.among(topics.by_name)
    else:
        visible = turn.visible
        if visible is None or visible.among is not topics.by_name or regex not in visible.by_regex:
            return False
        found = visible.by_regex[regex]
    is_old = resolved is not None and resolved.timestamp_ms + MATCH_AGAIN_MS <= turn.now_ms
    if resolved is None or resolved.topics != found or (is_old and turn.state.hides_topics):
        records.write_regex(turn, group, regex, ResolvedRegex(found, topics.version, turn.now_ms))
    return True


def must_match(state: State, group: Group | None, regex: str | None, now_ms: int) -> bool:
    """Whether the expressions of a group, and a member's new one, have to be matched before its heartbeat: rights or topics
    may have changed.
    """
    if not isinstance(group, ConsumerGroup):
        return bool(regex)
    if group.topics_seen != state.topics.version:
        return bool(regex or group.regexes) or any(member.regex for member in group.members.values())
    return bool(regex and regex not in group.regexes) or any(
        known.timestamp_ms + MATCH_AGAIN_MS <= now_ms for known in group.regexes.values()
    )


def drop_unused_regexes(turn: Turn, group: ConsumerGroup) -> None:
    """Drop expressions that no member uses any more."""
    used = {member.regex for member in group.members.values()}
    for regex in [regex for regex in group.regexes if regex not in used]:
        records.write_regex(turn, group, regex, None)


def metadata_hash(turn: Turn, group: ConsumerGroup) -> int:
    """The hash of the topics that the group currently subscribes to."""
    return hash_of_topics(turn, group.subscribed_topics())


def hash_of_topics(turn: Turn, names: frozenset[str]) -> int:
    """8 bytes over the names, ids and sizes of topics, by which a change of any of them is noticed."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(names):
        topic = turn.state.topics.by_name.get(name)
        if topic is not None:
            digest.update(f"{name}\0{topic.topic_id}\0{topic.partitions}\0".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def _compute_target(turn: Turn, group: ConsumerGroup) -> None:
    topics = turn.state.topics
    ids: dict[frozenset[str], frozenset[UUID]] = {}  # cached by subscription: most members have the same
    wanted = {}
    for member in group.members.values():
        names = group.topics_of(member)
        found = ids.get(names)
        if found is None:
            found = frozenset(topics.by_name[name].topic_id for name in names if name in topics.by_name)
            ids[names] = found
        wanted[member.member_id] = found
    spec = AssignSpec(
        {topic_id: topics.partitions(topic_id) for topic_id in frozenset().union(*ids.values())},
        wanted,
        group.target,
        {member.member_id: member.instance_id or member.member_id for member in group.members.values()},
    )
    name = group.preferred_assignor(ASSIGNORS, default=turn.state.limits.consumer_assignors[0])
    before = group.target
    targets = ASSIGNORS[name](spec)
    for member_id in sorted(
        member_id for member_id, target in targets.items() if before.get(member_id) != target
    ):
        records.write_target_member(turn, group, member_id, targets[member_id])
    records.write_target_epoch(turn, group, group.epoch)
    turn.note("new target assignment", group=group.group_id, epoch=group.epoch, members=len(group.members))


def follow_target(
    turn: Turn, group: ConsumerGroup, member: ConsumerMember, owned: Assignment | None
) -> ConsumerMember:
    """Take the member's next step; while it has to give up partitions, the time for that is limited."""
    target = group.target.get(member.member_id, NOTHING)
    after = reconcile(member, group.target_epoch, target, group.owners, owned)
    if after == member:
        return member
    records.write_current(turn, group, after)
    if after.state is MemberState.UNREVOKED_PARTITIONS:
        if member.state is not after.state or member.revoking != after.revoking:
            deadline_ms = turn.now_ms + after.rebalance_timeout_ms
            turn.arm(group.group_id, member.member_id, REVOKE, deadline_ms)
    else:
        turn.disarm(group.group_id, member.member_id, REVOKE)
    return after


def drop_timers(turn: Turn, group_id: str, member_id: str) -> None:
    """Cancel every timer of a member."""
    for kind in (SESSION, REVOKE, MEMBER_JOIN, MEMBER_SYNC):
        turn.disarm(group_id, member_id, kind)


def arm_session(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Restart the member's session timeout."""
    timeout_ms = turn.state.limits_of(group.group_id).consumer_session_timeout_ms
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    turn.arm(group.group_id, member.member_id, SESSION, turn.now_ms + timeout_ms)
