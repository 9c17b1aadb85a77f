"""StreamsGroupHeartbeat (v0): join, stay, follow the assignment, leave.

A heartbeat is handled in this order: which member is it, which topology does it run, what does that and the existing topics
mean for the group (a new group epoch), what should all members have (a new target assignment), and the next step of this
member towards it.
"""

from __future__ import annotations

from dataclasses import replace

from barnabas.cores.group import records as classic_records
from barnabas.cores.group.classic.group import ClassicGroup
from barnabas.cores.group.consumer.epochs import ASSIGN, REVOKE
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.streams import epochs as epochs
from barnabas.cores.group.streams import records as records
from barnabas.cores.group.streams.endpoints import endpoint_partitions
from barnabas.cores.group.streams.events import StreamsHeartbeat, StreamsHeartbeatReply
from barnabas.cores.group.streams.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_TASKS,
    MemberState,
    StreamsGroup,
    StreamsMember,
    TaskOffset,
    Tasks,
)
from barnabas.cores.group.streams.topology import Status, StatusCode, Topology, check
from barnabas.wire.errors import ApiError, ErrorCode


def decide_streams_heartbeat(proposal: Proposal, event: StreamsHeartbeat) -> None:
    """StreamsGroupHeartbeat: join, stay, leave."""
    _check_request(event)
    if event.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        _leave(proposal, event)
    elif not _answer_if_unchanged(proposal, event):
        _heartbeat(proposal, event)


def _check_request(event: StreamsHeartbeat) -> None:
    problem = None
    if not event.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
    if event.member_epoch < LEAVE_STATIC_EPOCH:
        problem = f"MemberEpoch is {event.member_epoch}, but must be greater than or equal to -2."
    elif not event.member_id:
        problem = "MemberId can't be empty."
    elif event.instance_id == "" or event.rack_id == "":
        problem = "InstanceId and RackId can't be empty: leave them out instead."
    elif event.member_epoch == LEAVE_STATIC_EPOCH and event.instance_id is None:
        problem = "InstanceId can't be null."
    elif event.member_epoch == JOIN_EPOCH:
        if event.rebalance_timeout_ms < 0:
            problem = "RebalanceTimeoutMs must be provided in first request."
        elif event.topology is None:
            problem = "Topology must be non-null when (re-)joining."
        elif event.owned is not None and event.owned != NO_TASKS:
            problem = "ActiveTasks, StandbyTasks and WarmupTasks must be empty when (re-)joining."
    elif event.member_epoch > JOIN_EPOCH and event.topology is not None:
        problem = "Topology can only be provided when (re-)joining."
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    if event.topology is not None:
        check(event.topology)


def streams_group_for(proposal: Proposal, group_id: str, *, create: bool) -> StreamsGroup:
    """A draft of the streams group; it is created, or takes the place of an empty classic one, if a member joins."""
    group = proposal.find(group_id)
    if isinstance(group, StreamsGroup):
        return proposal.edit(group)
    if group is None and not create:
        # Lost with its topic; see migration.consumer_group_for.
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Streams group {group_id} not found: join again.")
    if group is None:
        return proposal.put(StreamsGroup(group_id))
    if create and isinstance(group, ClassicGroup) and group.is_empty and not group.pending_ids:
        proposal.record(classic_records.group_tombstone(group_id))
        proposal.note("an empty classic group became a streams group", group=group_id)
        return proposal.put(StreamsGroup(group_id))
    raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")


def _answer_if_unchanged(proposal: Proposal, event: StreamsHeartbeat) -> bool:
    """Answer the common heartbeat, which says nothing new to a group at rest, without changing the group; else False."""
    group = proposal.find(event.group_id)
    if not isinstance(group, StreamsGroup) or group.topics_seen != proposal.state.topics.version:
        return False
    member = group.members.get(event.member_id)
    if (
        member is None
        or group.configured is None
        or not group.configured.is_ready
        or group.epoch != group.target_epoch
        or event.member_epoch != member.epoch
        or not group.is_reconciled(member)
        or event.owned not in (None, member.assigned)
        or event.offsets is not None
        or event.end_offsets is not None
        or event.shutdown
        or group.endpoint_epoch != event.endpoint_epoch
        or group.last_configs != epochs.configs_of(proposal, group)
        or _updated(member, event) != member
    ):
        return False
    epochs.arm_session(proposal, group, member)
    proposal.reply(event.token, _reply(proposal, group, member, event, tasks=None))
    return True


def _heartbeat(proposal: Proposal, event: StreamsHeartbeat) -> None:
    joins = event.member_epoch == JOIN_EPOCH
    group = streams_group_for(proposal, event.group_id, create=joins)
    limits = proposal.state.limits_of(group.group_id)
    before = _identify(proposal, group, event)
    if before.member_id not in group.members and len(group.members) >= limits.streams_max_size:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The streams group has reached its maximum capacity of {limits.streams_max_size} members.",
        )
    epochs.delay_first_assignment(proposal, group)
    if event.topology is not None:
        _take_topology(proposal, group, event.topology)
    member = _updated(before, event)
    is_new = before.member_id not in group.members
    if is_new or member != before:
        records.write_member(proposal, group, member)
    epochs.refresh(proposal, group, members_changed=is_new or member != before)
    _check_owned(group, event.owned)
    _note_offsets(group, event)
    after = epochs.follow_target(proposal, group, group.members[member.member_id], event.owned)
    epochs.arm_session(proposal, group, after)
    if event.shutdown:
        group.shutdown_by = after.member_id
    missed_answer = not joins and event.member_epoch != before.epoch
    tasks = after.assigned if joins or missed_answer or after.assigned != before.assigned else None
    if tasks is not None and after.endpoint is not None:
        group.endpoint_epoch += 1
    proposal.reply(event.token, _reply(proposal, group, after, event, tasks=tasks))


def _updated(before: StreamsMember, event: StreamsHeartbeat) -> StreamsMember:
    """The member with what it says now. Only a heartbeat that joins takes an endpoint away."""
    joins = event.member_epoch == JOIN_EPOCH
    return replace(
        before,
        instance_id=before.instance_id if event.instance_id is None else event.instance_id,
        rack_id=before.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=(
            before.rebalance_timeout_ms if event.rebalance_timeout_ms < 0 else event.rebalance_timeout_ms
        ),
        topology_epoch=before.topology_epoch if event.topology is None else event.topology.epoch,
        process_id=before.process_id if event.process_id is None else event.process_id,
        endpoint=before.endpoint if event.endpoint is None and not joins else event.endpoint,
        tags=before.tags if event.tags is None else event.tags,
    )


def _take_topology(proposal: Proposal, group: StreamsGroup, topology: Topology) -> None:
    """The first member brings the topology. As long as the group has members, it stays the same.

    A member with an older topology epoch joins all the same, and is told that its topology is stale.
    """
    known = group.topology
    if known is None or (group.is_empty and known != topology):
        records.write_topology(proposal, group, topology)
    elif known.epoch <= topology.epoch and known != topology:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Topology updates are not supported yet: stop all members of the group, then start the new version.",
        )


def _check_owned(group: StreamsGroup, owned: Tasks | None) -> None:
    """Raises ApiError INVALID_REQUEST for tasks that the topology does not have."""
    if owned is None or group.configured is None or not group.configured.is_ready:
        return
    tasks = group.configured.tasks
    for task in owned.active | owned.standby | owned.warmup:
        if task[0] not in tasks:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Subtopology {task[0]} does not exist.")
        if not 0 <= task[1] < tasks[task[0]]:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Task {task[1]} for subtopology {task[0]} is invalid. Number of tasks for this"
                f" subtopology: {tasks[task[0]]}",
            )


def _note_offsets(group: StreamsGroup, event: StreamsHeartbeat) -> None:
    """Keep what a member reports, of tasks that exist, and of each once."""
    if event.offsets is None and event.end_offsets is None:
        return
    tasks = group.configured.tasks if group.configured is not None else {}

    def known(rows: tuple[TaskOffset, ...]) -> tuple[TaskOffset, ...]:
        by_task = {row[:2]: row for row in rows if 0 <= row.partition < tasks.get(row.subtopology, 0)}
        return tuple(by_task.values())

    offsets, end_offsets = group.reported.get(event.member_id, ((), ()))
    group.reported[event.member_id] = (
        offsets if event.offsets is None else known(event.offsets),
        end_offsets if event.end_offsets is None else known(event.end_offsets),
    )


def _identify(proposal: Proposal, group: StreamsGroup, event: StreamsHeartbeat) -> StreamsMember:
    """The member so far: a known one, a new one, or a returning static member under its new id."""
    if event.instance_id is not None:
        if event.member_epoch == JOIN_EPOCH:
            return _join_static(proposal, group, event, event.instance_id)
        member = group.require_static(event.instance_id, event.member_id)
    elif event.member_epoch == JOIN_EPOCH:
        return group.members.get(event.member_id) or StreamsMember(event.member_id)
    else:
        member = group.require_member(event.member_id)
    _require_epoch(member, event)
    return member


def _require_epoch(member: StreamsMember, event: StreamsHeartbeat) -> None:
    """A member one epoch behind did not get the last answer: accepted if it owns no more than it may."""
    if event.member_epoch == member.epoch:
        return
    missed_answer = (
        event.member_epoch < member.epoch
        and event.member_epoch == member.previous_epoch
        and event.owned is not None
        and event.owned.minus(member.assigned) == NO_TASKS
    )
    if not missed_answer:
        raise ApiError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"{member.member_id!r} is at epoch {member.epoch}, not {event.member_epoch}:"
            " it must give up its tasks and join again",
        )


def _join_static(
    proposal: Proposal, group: StreamsGroup, event: StreamsHeartbeat, instance_id: str
) -> StreamsMember:
    current_id = group.static_ids.get(instance_id)
    if current_id is None:
        return StreamsMember(event.member_id)
    current = group.members[current_id]
    if current_id == event.member_id:
        return current
    if current.epoch != LEAVE_STATIC_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID, f"{instance_id!r} is in use by member {current_id!r}"
        )
    # It is back from a temporary absence: it takes over the place and the tasks of its former self.
    target = group.target.get(current_id, NO_TASKS)
    epochs.drop_timers(proposal, group.group_id, current_id)
    records.write_member_gone(proposal, group, current_id)
    back = replace(current, member_id=event.member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    records.write_member(proposal, group, back)
    records.write_target_member(proposal, group, event.member_id, target)
    records.write_current(proposal, group, back)
    return back


# --- leaving


def _leave(proposal: Proposal, event: StreamsHeartbeat) -> None:
    group = streams_group_for(proposal, event.group_id, create=False)
    member = group.require(event.member_id, event.instance_id)
    if event.shutdown:
        group.shutdown_by = member.member_id
    if event.member_epoch == LEAVE_STATIC_EPOCH:
        away = replace(
            member,
            epoch=LEAVE_STATIC_EPOCH,
            state=MemberState.STABLE,
            revoking=NO_TASKS,
            active_epochs={task: member.active_epochs[task] for task in member.assigned.active},
        )
        records.write_current(proposal, group, away)
        proposal.disarm(group.group_id, member.member_id, REVOKE)
        proposal.note("static member leaves for a while", group=group.group_id, member=member.member_id)
    else:
        epochs.fence_members(proposal, group, [member.member_id], "leaves")
    reply = StreamsHeartbeatReply(member_id=event.member_id, member_epoch=event.member_epoch)
    proposal.reply(event.token, reply)


# --- answering


def _reply(
    proposal: Proposal,
    group: StreamsGroup,
    member: StreamsMember,
    event: StreamsHeartbeat,
    *,
    tasks: Tasks | None,
) -> StreamsHeartbeatReply:
    endpoints = None
    if group.endpoint_epoch != event.endpoint_epoch:
        topics = proposal.state.topics
        endpoints = endpoint_partitions(group, topics.version, topics.by_name)
    return StreamsHeartbeatReply(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=_interval_ms(proposal, group, member),
        statuses=_statuses(proposal, group, member),
        tasks=tasks,
        endpoint_epoch=group.endpoint_epoch,
        endpoints=endpoints,
        missing=() if group.configured is None else group.configured.missing,
    )


def _interval_ms(proposal: Proposal, group: StreamsGroup, member: StreamsMember) -> int:
    limits = proposal.state.limits_of(group.group_id)
    waits = (
        member.state is MemberState.UNRELEASED_TASKS
        or group.epoch > group.target_epoch
        or (group.configured is not None and bool(group.configured.missing))
    )
    # Others are about to release what it waits for, a new assignment is due, or topics are being created: the member
    # should learn of that soon, not after a whole interval.
    interval_ms = limits.streams_heartbeat_interval_ms
    return min(interval_ms, limits.waiting_heartbeat_interval_ms) if waits else interval_ms


def _statuses(proposal: Proposal, group: StreamsGroup, member: StreamsMember) -> tuple[Status, ...]:
    statuses = []
    topology = group.topology
    if topology is not None and member.topology_epoch < topology.epoch:
        detail = (
            f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch"
            f" {topology.epoch}."
        )
        statuses.append(Status(StatusCode.STALE_TOPOLOGY, detail))
    if group.epoch > group.target_epoch and proposal.is_armed(group.group_id, "", ASSIGN):
        statuses.append(epochs.DELAYED)
    if group.configured is not None and group.configured.status is not None:
        statuses.append(group.configured.status)
    if group.shutdown_by is not None:
        detail = (
            f"Streams group member {group.shutdown_by} encountered a fatal error and requested a shutdown"
            " for the entire application."
        )
        statuses.append(Status(StatusCode.SHUTDOWN_APPLICATION, detail))
    return tuple(statuses)
