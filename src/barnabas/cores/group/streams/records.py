"""Streams groups <-> entries of the offsets topic (kinds 17 and 19 to 23, as Kafka 4.3 writes them).

Each `write_*` notes an entry and replays it into the draft at once: a draft is changed as a restart changes a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from barnabas.cores.decision import Entry
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.streams.group import (
    NO_TASKS,
    Endpoint,
    MemberState,
    StreamsGroup,
    StreamsMember,
    Task,
    Tasks,
)
from barnabas.cores.group.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from barnabas.wire.records_schemas import streams_group as schemas
from barnabas.wire.schema import Data

KINDS = frozenset({17, 19, 20, 21, 22, 23})


def _write(proposal: Proposal, group: StreamsGroup, key: Data, value: Data | None) -> None:
    proposal.record(Entry(key, value))
    replay(group, key, value)


# --- writing


def write_epoch(
    proposal: Proposal,
    group: StreamsGroup,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    configs: tuple[tuple[str, str], ...],
) -> None:
    """A new group epoch, with the topics and options that it is based on."""
    value = schemas.StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[schemas.KeyValue(key=key, value=text) for key, text in configs],
    )
    _write(proposal, group, schemas.StreamsGroupMetadataKey(group_id=group.group_id), value)


def write_topology(proposal: Proposal, group: StreamsGroup, topology: Topology) -> None:
    """The topology that the group's members run."""
    value = schemas.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            schemas.Subtopology(
                subtopology_id=part.subtopology_id,
                source_topics=list(part.sources),
                source_topic_regex=list(part.regexes),
                state_changelog_topics=[_topic_row(topic) for topic in part.changelogs],
                repartition_sink_topics=list(part.repartition_sinks),
                repartition_source_topics=[_topic_row(topic) for topic in part.repartition_sources],
                copartition_groups=[
                    schemas.CopartitionGroup(
                        source_topics=list(together.sources),
                        source_topic_regex=list(together.regexes),
                        repartition_source_topics=list(together.repartition_sources),
                    )
                    for together in part.copartition_groups
                ],
            )
            for part in topology.subtopologies
        ],
    )
    _write(proposal, group, schemas.StreamsGroupTopologyKey(group_id=group.group_id), value)


def _topic_row(topic: InternalTopic) -> schemas.TopicInfo:
    return schemas.TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[schemas.KeyValue(key=key, value=value) for key, value in topic.configs],
    )


def write_member(proposal: Proposal, group: StreamsGroup, member: StreamsMember) -> None:
    """A member's own data; `write_current` stores its progress."""
    endpoint = member.endpoint
    value = schemas.StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else schemas.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[schemas.KeyValue(key=key, value=tag) for key, tag in member.tags],
    )
    key = schemas.StreamsGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id)
    _write(proposal, group, key, value)


def write_target_member(proposal: Proposal, group: StreamsGroup, member_id: str, target: Tasks) -> None:
    """A member's target assignment."""
    active, standby, warmup = (
        [
            schemas.TargetTaskIds(subtopology_id=part, partitions=numbers)
            for part, numbers in by_subtopology(tasks)
        ]
        for tasks in target
    )
    value = schemas.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=active, standby_tasks=standby, warmup_tasks=warmup
    )
    key = schemas.StreamsGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
    _write(proposal, group, key, value)


def write_target_epoch(proposal: Proposal, group: StreamsGroup, epoch: int) -> None:
    """The epoch of the target assignment, after all targets have been written."""
    value = schemas.StreamsGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=proposal.now_ms
    )
    _write(proposal, group, schemas.StreamsGroupTargetAssignmentMetadataKey(group_id=group.group_id), value)


def write_current(proposal: Proposal, group: StreamsGroup, member: StreamsMember) -> None:
    """A member's progress: its epoch, its tasks, and those that it has to revoke."""
    value = schemas.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        active_tasks=_rows(member.assigned.active, member.active_epochs),
        standby_tasks=_rows(member.assigned.standby),
        warmup_tasks=_rows(member.assigned.warmup),
        active_tasks_pending_revocation=_rows(member.revoking.active, member.active_epochs),
        standby_tasks_pending_revocation=_rows(member.revoking.standby),
        warmup_tasks_pending_revocation=_rows(member.revoking.warmup),
    )
    key = schemas.StreamsGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id)
    _write(proposal, group, key, value)


def write_member_gone(proposal: Proposal, group: StreamsGroup, member_id: str) -> None:
    """Tombstones for all entries of a member."""
    names = {"group_id": group.group_id, "member_id": member_id}
    _write(proposal, group, schemas.StreamsGroupCurrentMemberAssignmentKey(**names), None)
    _write(proposal, group, schemas.StreamsGroupTargetAssignmentMemberKey(**names), None)
    _write(proposal, group, schemas.StreamsGroupMemberMetadataKey(**names), None)


def write_group_gone(proposal: Proposal, group: StreamsGroup) -> None:
    """Tombstones for all entries of the group, and its removal."""
    for member_id in list(group.members):
        write_member_gone(proposal, group, member_id)
    for member_id in list(group.target):  # targets of members that have already left
        key = schemas.StreamsGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
        _write(proposal, group, key, None)
    _write(proposal, group, schemas.StreamsGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    _write(proposal, group, schemas.StreamsGroupTopologyKey(group_id=group.group_id), None)
    _write(proposal, group, schemas.StreamsGroupMetadataKey(group_id=group.group_id), None)
    proposal.remove(group.group_id)


def by_subtopology(tasks: Iterable[Task]) -> list[tuple[str, list[int]]]:
    """Tasks grouped by subtopology and sorted, so that equal assignments have equal bytes."""
    return [(part, [number for _, number in rows]) for part, rows in groupby(sorted(tasks), itemgetter(0))]


def _rows(tasks: Iterable[Task], epochs: Mapping[Task, int] | None = None) -> list[schemas.TaskIds]:
    return [
        schemas.TaskIds(
            subtopology_id=part,
            partitions=numbers,
            assignment_epochs=[] if epochs is None else [epochs[part, number] for number in numbers],
        )
        for part, numbers in by_subtopology(tasks)
    ]


def _flat(rows: Iterable[schemas.TaskIds | schemas.TargetTaskIds]) -> frozenset[Task]:
    return frozenset((row.subtopology_id, number) for row in rows for number in row.partitions)


# --- replaying


def replay(group: StreamsGroup, key: Data, value: Data | None) -> bool:
    """Apply an entry to `group`; False if the entry removes the group itself."""
    if value is None and type(key) is schemas.StreamsGroupMetadataKey:
        return False
    REPLAYS[type(key)](group, key, value)
    return True


def _replay_epoch(
    group: StreamsGroup, key: schemas.StreamsGroupMetadataKey, value: schemas.StreamsGroupMetadataValue
) -> None:
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
    group.validated_topology_epoch = value.validated_topology_epoch
    group.last_configs = tuple((row.key, row.value) for row in value.last_assignment_configs or ())


def _replay_topology(
    group: StreamsGroup,
    key: schemas.StreamsGroupTopologyKey,
    value: schemas.StreamsGroupTopologyValue | None,
) -> None:
    group.put_topology(None if value is None else topology_of(value.epoch, value.subtopologies))


def topology_of(epoch: int, subtopologies: Iterable[Any]) -> Topology:
    """A topology as it is in an entry or, with fields of the same names, in a heartbeat."""
    parts = [
        Subtopology(
            row.subtopology_id,
            tuple(row.source_topics),
            tuple(row.source_topic_regex),
            tuple(_topic_of(topic) for topic in row.state_changelog_topics),
            tuple(row.repartition_sink_topics),
            tuple(_topic_of(topic) for topic in row.repartition_source_topics),
            tuple(
                CopartitionGroup(
                    tuple(together.source_topics),
                    tuple(together.source_topic_regex),
                    tuple(together.repartition_source_topics),
                )
                for together in row.copartition_groups
            ),
        )
        for row in subtopologies
    ]
    return Topology(epoch, tuple(sorted(parts, key=lambda part: part.subtopology_id)))


def _topic_of(row: Any) -> InternalTopic:
    configs = tuple((config.key, config.value) for config in row.topic_configs)
    return InternalTopic(row.name, row.partitions, row.replication_factor, configs)


def _replay_target_epoch(
    group: StreamsGroup,
    key: schemas.StreamsGroupTargetAssignmentMetadataKey,
    value: schemas.StreamsGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.target_epoch = 0 if value is None else value.assignment_epoch


def _replay_target_member(
    group: StreamsGroup,
    key: schemas.StreamsGroupTargetAssignmentMemberKey,
    value: schemas.StreamsGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = Tasks(
            _flat(value.active_tasks), _flat(value.standby_tasks), _flat(value.warmup_tasks)
        )


def _replay_member(
    group: StreamsGroup,
    key: schemas.StreamsGroupMemberMetadataKey,
    value: schemas.StreamsGroupMemberMetadataValue | None,
) -> None:
    if value is None:
        group.remove_member(key.member_id)
        return
    endpoint = value.user_endpoint
    group.put_member(
        replace(
            group.members.get(key.member_id) or StreamsMember(key.member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            tags=tuple((row.key, row.value) for row in value.client_tags),
        )
    )


def _replay_current(
    group: StreamsGroup,
    key: schemas.StreamsGroupCurrentMemberAssignmentKey,
    value: schemas.StreamsGroupCurrentMemberAssignmentValue | None,
) -> None:
    member = group.members.get(key.member_id)
    if value is None:
        if member is not None:
            group.put_member(
                replace(
                    member,
                    epoch=0,
                    previous_epoch=-1,
                    state=MemberState.STABLE,
                    assigned=NO_TASKS,
                    revoking=NO_TASKS,
                    active_epochs={},
                )
            )
        return
    epochs: dict[Task, int] = {}
    for row in (*value.active_tasks, *value.active_tasks_pending_revocation):
        # Kafka before 4.3 does not store the epochs.
        known = row.assignment_epochs or [value.member_epoch] * len(row.partitions)
        epochs.update(zip(((row.subtopology_id, number) for number in row.partitions), known, strict=False))
    known_state = value.state in MemberState._value2member_map_
    group.put_member(
        replace(
            member or StreamsMember(key.member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known_state else MemberState.UNKNOWN,
            assigned=Tasks(_flat(value.active_tasks), _flat(value.standby_tasks), _flat(value.warmup_tasks)),
            revoking=Tasks(
                _flat(value.active_tasks_pending_revocation),
                _flat(value.standby_tasks_pending_revocation),
                _flat(value.warmup_tasks_pending_revocation),
            ),
            active_epochs=epochs,
        )
    )


REPLAYS: Final[Mapping[type[Data], Callable[[StreamsGroup, Any, Any], None]]] = {
    schemas.StreamsGroupMetadataKey: _replay_epoch,
    schemas.StreamsGroupTopologyKey: _replay_topology,
    schemas.StreamsGroupMemberMetadataKey: _replay_member,
    schemas.StreamsGroupTargetAssignmentMetadataKey: _replay_target_epoch,
    schemas.StreamsGroupTargetAssignmentMemberKey: _replay_target_member,
    schemas.StreamsGroupCurrentMemberAssignmentKey: _replay_current,
}
