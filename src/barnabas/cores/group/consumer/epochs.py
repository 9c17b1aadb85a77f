"""A consumer group's epochs: the effect of changed members or topics on the group and on a member."""

from __future__ import annotations

import hashlib
from typing import Final
from uuid import UUID

from barnabas.cores.decision import DoneReply
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
from barnabas.cores.group.events import TopicsMatched
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.state import Group, State
from barnabas.wire.errors import ApiError, ErrorCode

# Timers of one member, in addition to SESSION.
REVOKE: Final = "revoke"  # limits the time for giving up partitions
MEMBER_JOIN: Final = "member-join"  # limits a classic member's time for joining again
MEMBER_SYNC: Final = "member-sync"  # limits a classic member's time for syncing after it joined
# The timer of a whole group, with no member in its key.
ASSIGN: Final = "assign"  # until the next assignment may be computed

MATCH_AGAIN_MS: Final = 10 * 60_000
"""How long a match is valid where topics are hidden: members' rights change (as in Kafka)."""


def update_member(proposal: Proposal, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Store a member's own data; if that or a topic changes something, start a new group epoch and target.

    A regular expression that is new in the group matches nothing yet: `decide_matched` brings its topics, with an epoch of
    their own. What the member names, and what others' expressions have matched, it gets at once.
    """
    before = group.members.get(member.member_id)
    had = group.topics_of(before) if before is not None else frozenset()
    if member.regex and (before is None or before.regex != member.regex):
        _require_valid(member.regex)
    if member != before:
        records.write_member(proposal, group, member)
        drop_unused_regexes(proposal, group)
    refresh(proposal, group, subscriptions_changed=group.epoch == 0 or group.topics_of(member) != had)


def refresh(proposal: Proposal, group: ConsumerGroup, *, subscriptions_changed: bool) -> None:
    """Start a new group epoch and target if topics or subscriptions have changed."""
    version = proposal.state.topics.version
    if subscriptions_changed or group.topics_seen != version:
        now_hash = metadata_hash(proposal, group)
        if subscriptions_changed or now_hash != group.metadata_hash:
            records.write_epoch(proposal, group, group.epoch + 1, now_hash)
        group.topics_seen = version
    if group.epoch > group.target_epoch:
        _assign_when_due(proposal, group)


def _assign_when_due(proposal: Proposal, group: ConsumerGroup) -> None:
    """Compute a new target now, or once the last one is old enough, so that many joins at once need only one."""
    interval_ms = proposal.state.limits_of(group.group_id).consumer_assignment_interval_ms
    if 0 <= proposal.now_ms - group.assigned_ms < interval_ms:
        proposal.arm(group.group_id, "", ASSIGN, group.assigned_ms + interval_ms)
        return
    if interval_ms:
        group.assigned_ms = proposal.now_ms
        proposal.disarm(group.group_id, "", ASSIGN)
    _compute_target(proposal, group)


def _require_valid(regex: str) -> None:
    try:
        compile_topic_regex(regex)
    except InvalidRegex as error:
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error


def decide_matched(proposal: Proposal, event: TopicsMatched) -> None:
    """Store what the expressions of a group match. Members whose topics that changes get them with the next group epoch.

    Expressions that no member uses any more are ignored, as is a group that has ended meanwhile.
    """
    proposal.reply(event.token, DoneReply())
    stored = proposal.find(event.group_id)
    if not isinstance(stored, ConsumerGroup):
        return
    in_use = sorted(event.by_regex.keys() & stored.regex_members.keys())
    if not in_use:
        return
    group = proposal.edit(stored)
    topics, has_changed = proposal.state.topics, False
    for regex in in_use:
        topic_names, known = event.by_regex[regex], group.regexes.get(regex)
        if known is None or known.topics != topic_names or _is_old(proposal.state, known, proposal.now_ms):
            # Topics that are deleted change nothing here: `refresh` has noticed or is about to.
            had = frozenset(name for name in known.topics if name in topics.by_name) if known else frozenset()
            has_changed |= topic_names != had
            records.write_regex(
                proposal, group, regex, ResolvedRegex(topic_names, topics.version, proposal.now_ms)
            )
    if event.among is topics.by_name:
        group.topics_matched = topics.version
    refresh(proposal, group, subscriptions_changed=has_changed)


def must_match(state: State, group: Group | None, now_ms: int) -> bool:
    """Whether the group's expressions have to be matched: one is new, or topics or members' rights may have changed."""
    if not isinstance(group, ConsumerGroup) or not group.regex_members:
        return False
    if group.topics_matched != state.topics.version:
        return True
    known = [group.regexes.get(regex) for regex in group.regex_members]
    return any(resolved is None or _is_old(state, resolved, now_ms) for resolved in known)


def _is_old(state: State, resolved: ResolvedRegex, now_ms: int) -> bool:
    return state.hides_topics and resolved.timestamp_ms + MATCH_AGAIN_MS <= now_ms


def drop_unused_regexes(proposal: Proposal, group: ConsumerGroup) -> None:
    """Drop expressions that no member uses any more."""
    for regex in [regex for regex in group.regexes if regex not in group.regex_members]:
        records.write_regex(proposal, group, regex, None)


def metadata_hash(proposal: Proposal, group: ConsumerGroup) -> int:
    """The hash of the topics that the group currently subscribes to."""
    return hash_of_topics(proposal, group.subscribed_topics())


def hash_of_topics(proposal: Proposal, names: frozenset[str]) -> int:
    """8 bytes over the names, ids and sizes of topics, by which a change of any of them is noticed."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(names):
        topic = proposal.state.topics.by_name.get(name)
        if topic is not None:
            digest.update(f"{name}\0{topic.topic_id}\0{topic.partitions}\0".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def _compute_target(proposal: Proposal, group: ConsumerGroup) -> None:
    topics = proposal.state.topics
    ids: dict[frozenset[str], frozenset[UUID]] = {}  # cached by subscription: most members have the same
    wanted = {}
    for member in group.members.values():
        names = group.topics_of(member)
        topic_ids = ids.get(names)
        if topic_ids is None:
            topic_ids = frozenset(topics.by_name[name].topic_id for name in names if name in topics.by_name)
            ids[names] = topic_ids
        wanted[member.member_id] = topic_ids
    spec = AssignSpec(
        {topic_id: topics.partitions(topic_id) for topic_id in frozenset().union(*ids.values())},
        wanted,
        group.target,
        {member.member_id: member.instance_id or member.member_id for member in group.members.values()},
    )
    name = group.preferred_assignor(ASSIGNORS, default=proposal.state.limits.consumer_assignors[0])
    before = group.target
    targets = ASSIGNORS[name](spec)
    for member_id in sorted(
        member_id for member_id, target in targets.items() if before.get(member_id) != target
    ):
        records.write_target_member(proposal, group, member_id, targets[member_id])
    records.write_target_epoch(proposal, group, group.epoch)
    proposal.note(
        "new target assignment", group=group.group_id, epoch=group.epoch, members=len(group.members)
    )


def follow_target(
    proposal: Proposal, group: ConsumerGroup, member: ConsumerMember, owned: Assignment | None
) -> ConsumerMember:
    """Take the member's next step; while it has to give up partitions, the time for that is limited."""
    target = group.target.get(member.member_id, NOTHING)
    after = reconcile(member, group.target_epoch, target, group.owners, owned)
    if after == member:
        return member
    records.write_current(proposal, group, after)
    if after.state is MemberState.UNREVOKED_PARTITIONS:
        if member.state is not after.state or member.revoking != after.revoking:
            deadline_ms = proposal.now_ms + after.rebalance_timeout_ms
            proposal.arm(group.group_id, member.member_id, REVOKE, deadline_ms)
    else:
        proposal.disarm(group.group_id, member.member_id, REVOKE)
    return after


def drop_timers(proposal: Proposal, group_id: str, member_id: str) -> None:
    """Cancel every timer of a member."""
    for kind in (SESSION, REVOKE, MEMBER_JOIN, MEMBER_SYNC):
        proposal.disarm(group_id, member_id, kind)


def arm_session(proposal: Proposal, group: ConsumerGroup, member: ConsumerMember) -> None:
    """Restart the member's session timeout."""
    timeout_ms = proposal.state.limits_of(group.group_id).consumer_session_timeout_ms
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    proposal.arm(group.group_id, member.member_id, SESSION, proposal.now_ms + timeout_ms)
