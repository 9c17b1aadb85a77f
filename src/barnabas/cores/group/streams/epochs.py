"""A streams group's epochs: the effect of changed members, topics and options on the group and on a member."""

from __future__ import annotations

from typing import Final

from barnabas.cores.group.classic.rebalance import SESSION
from barnabas.cores.group.consumer.epochs import ASSIGN, REVOKE, hash_of_topics
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.streams import records as records
from barnabas.cores.group.streams.assignor import TaskSpec, assign_sticky
from barnabas.cores.group.streams.group import (
    NO_TASKS,
    MemberState,
    StreamsGroup,
    StreamsMember,
    Tasks,
)
from barnabas.cores.group.streams.reconcile import reconcile
from barnabas.cores.group.streams.topology import Configured, Status, StatusCode, configure
from barnabas.wire.errors import ApiError, ErrorCode

FIRST_EPOCH: Final = 2
"""The first epoch of a group: a member that waits for the first assignment is at epoch 1."""
WAITING_EPOCH: Final = 1
NUM_STANDBY_REPLICAS: Final = "num.standby.replicas"
DELAYED: Final = Status(
    StatusCode.ASSIGNMENT_DELAYED,
    "The assignment is delayed, so that members that join at the same time get their tasks together"
    " (streams.initial.rebalance.delay.ms, streams.assignment.interval.ms).",
)


def configs_of(proposal: Proposal, group: StreamsGroup) -> tuple[tuple[str, str], ...]:
    """The options that assignments of the group depend on, as they are now."""
    replicas = proposal.state.limits_of(group.group_id).streams_num_standby_replicas
    return ((NUM_STANDBY_REPLICAS, str(replicas)),)


def configured(proposal: Proposal, group: StreamsGroup) -> Configured:
    """The group's topology compared with the topics of today. Raises UNKNOWN_MEMBER_ID if it has none."""
    if group.topology is None:  # its entry is lost: whoever joins brings it again
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"{group.group_id!r} has no topology: join again")
    if group.configured is None or group.topics_seen != proposal.state.topics.version:
        group.configured = configure(group.topology, proposal.state.topics.by_name)
        group.topics_seen = proposal.state.topics.version
    return group.configured


def refresh(proposal: Proposal, group: StreamsGroup, *, members_changed: bool) -> None:
    """Start a new group epoch and target if members, topics or options have changed."""
    now, topology = configured(proposal, group), group.topology
    assert topology is not None
    topics_hash = hash_of_topics(proposal, topology.required_topics())
    validated = topology.epoch if now.is_ready else -1
    configs = configs_of(proposal, group)
    known = (group.metadata_hash, group.validated_topology_epoch, group.last_configs)
    if members_changed or known != (topics_hash, validated, configs):
        epoch = max(group.epoch + 1, FIRST_EPOCH)
        records.write_epoch(proposal, group, epoch, topics_hash, validated, configs)
    if group.epoch > group.target_epoch:
        _assign_when_due(proposal, group)


def delay_first_assignment(proposal: Proposal, group: StreamsGroup) -> None:
    """The first member of a group waits a while for others."""
    delay_ms = proposal.state.limits_of(group.group_id).streams_initial_rebalance_delay_ms
    if delay_ms > 0 and group.is_empty and not is_delayed(proposal, group):
        proposal.arm(group.group_id, "", ASSIGN, proposal.now_ms + delay_ms)


def is_delayed(proposal: Proposal, group: StreamsGroup) -> bool:
    """Whether the next assignment waits for a timer."""
    return proposal.is_armed(group.group_id, "", ASSIGN)


def _assign_when_due(proposal: Proposal, group: StreamsGroup) -> None:
    if is_delayed(proposal, group):
        return
    interval_ms = proposal.state.limits_of(group.group_id).streams_assignment_interval_ms
    if 0 <= proposal.now_ms - group.assigned_ms < interval_ms:
        proposal.arm(group.group_id, "", ASSIGN, group.assigned_ms + interval_ms)
        return
    compute_target(proposal, group)


def compute_target(proposal: Proposal, group: StreamsGroup) -> None:
    """Assign all tasks anew; none while topics are missing or wrong."""
    now = configured(proposal, group)
    replicas = proposal.state.limits_of(group.group_id).streams_num_standby_replicas
    members = {member.member_id: member.process_id for member in group.members.values()}
    targets = assign_sticky(TaskSpec(now.tasks, now.stateful, members, group.target, replicas))
    for member_id in sorted(targets):
        if group.target.get(member_id) != targets[member_id]:
            records.write_target_member(proposal, group, member_id, targets[member_id])
    records.write_target_epoch(proposal, group, group.epoch)
    group.assigned_ms = proposal.now_ms
    proposal.note(
        "new target assignment", group=group.group_id, epoch=group.epoch, members=len(group.members)
    )


def follow_target(
    proposal: Proposal, group: StreamsGroup, member: StreamsMember, owned: Tasks | None
) -> StreamsMember:
    """Take the member's next step; while it has to give up tasks, the time for that is limited."""
    target = group.target.get(member.member_id, NO_TASKS)
    after = reconcile(group, member, max(group.target_epoch, WAITING_EPOCH), target, owned)
    if after == member:
        return member
    records.write_current(proposal, group, after)
    if after.state is MemberState.UNREVOKED_TASKS:
        if member.state is not after.state or member.revoking != after.revoking:
            deadline_ms = proposal.now_ms + after.rebalance_timeout_ms
            proposal.arm(group.group_id, member.member_id, REVOKE, deadline_ms)
    else:
        proposal.disarm(group.group_id, member.member_id, REVOKE)
    return after


def fence_members(proposal: Proposal, group: StreamsGroup, member_ids: list[str], reason: str) -> None:
    """Remove members at once; the others receive their tasks with their next heartbeats."""
    for member_id in member_ids:
        drop_timers(proposal, group.group_id, member_id)
        if group.members[member_id].endpoint is not None:
            group.endpoint_epoch += 1
        records.write_member_gone(proposal, group, member_id)
    proposal.note("members removed", group=group.group_id, members=member_ids, reason=reason)
    records.write_epoch(
        proposal,
        group,
        group.epoch + 1,
        group.metadata_hash,
        group.validated_topology_epoch,
        group.last_configs,
    )
    if group.is_empty:
        proposal.disarm(group.group_id, "", ASSIGN)


def drop_timers(proposal: Proposal, group_id: str, member_id: str) -> None:
    """Cancel every timer of a member."""
    for kind in (SESSION, REVOKE):
        proposal.disarm(group_id, member_id, kind)


def arm_session(proposal: Proposal, group: StreamsGroup, member: StreamsMember) -> None:
    """Restart the member's session timeout."""
    timeout_ms = proposal.state.limits_of(group.group_id).streams_session_timeout_ms
    proposal.arm(group.group_id, member.member_id, SESSION, proposal.now_ms + timeout_ms)
