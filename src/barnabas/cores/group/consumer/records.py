"""Consumer groups <-> entries of the offsets topic (kinds 3, 5 to 8 and 16, as Kafka 4 writes them).

Each `write_*` notes an entry and replays it into the draft at once: a draft is changed as a restart changes a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

from barnabas.cores.decision import Entry
from barnabas.cores.group.assignors import NOTHING, Assignment
from barnabas.cores.group.consumer.group import (
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from barnabas.cores.group.proposal import Proposal
from barnabas.wire.records_schemas import consumer_group as schemas
from barnabas.wire.schema import Data

KINDS = frozenset({3, 5, 6, 7, 8, 16})


def _write(proposal: Proposal, group: ConsumerGroup, key: Data, value: Data | None) -> None:
    proposal.record(Entry(key, value))
    replay(group, key, value)


# --- writing


def write_epoch(proposal: Proposal, group: ConsumerGroup, epoch: int, metadata_hash: int) -> None:
    """A new group epoch, with the hash of the topics that it is based on."""
    value = schemas.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    _write(proposal, group, schemas.ConsumerGroupMetadataKey(group_id=group.group_id), value)


def write_member(proposal: Proposal, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A member's own data; `write_current` stores its progress."""
    classic = None
    if member.classic is not None:
        classic = schemas.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                schemas.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    value = schemas.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    key = schemas.ConsumerGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id)
    _write(proposal, group, key, value)


def write_target_member(proposal: Proposal, group: ConsumerGroup, member_id: str, target: Assignment) -> None:
    """A member's target assignment."""
    value = schemas.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            schemas.TopicPartition(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(target)
        ]
    )
    key = schemas.ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
    _write(proposal, group, key, value)


def write_target_epoch(proposal: Proposal, group: ConsumerGroup, epoch: int) -> None:
    """The epoch of the target assignment, after all targets have been written."""
    value = schemas.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=proposal.now_ms
    )
    _write(proposal, group, schemas.ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), value)


def write_current(proposal: Proposal, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A member's progress: its epoch, its partitions, and those that it has to revoke."""
    value = schemas.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_current(member.assigned),
        partitions_pending_revocation=_current(member.revoking),
    )
    key = schemas.ConsumerGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id)
    _write(proposal, group, key, value)


def write_regex(proposal: Proposal, group: ConsumerGroup, regex: str, resolved: ResolvedRegex | None) -> None:
    """The topics that an expression matched; None removes an expression that no member uses any more."""
    value = None
    if resolved is not None:
        value = schemas.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        )
    key = schemas.ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex)
    _write(proposal, group, key, value)


def write_member_gone(proposal: Proposal, group: ConsumerGroup, member_id: str) -> None:
    """Tombstones for all entries of a member."""
    names = {"group_id": group.group_id, "member_id": member_id}
    _write(proposal, group, schemas.ConsumerGroupCurrentMemberAssignmentKey(**names), None)
    _write(proposal, group, schemas.ConsumerGroupTargetAssignmentMemberKey(**names), None)
    _write(proposal, group, schemas.ConsumerGroupMemberMetadataKey(**names), None)


def write_group_gone(proposal: Proposal, group: ConsumerGroup) -> None:
    """Tombstones for all entries of the group, and its removal."""
    for member_id in list(group.members):
        write_member_gone(proposal, group, member_id)
    for member_id in list(group.target):  # targets of members that have already left
        key = schemas.ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
        _write(proposal, group, key, None)
    for regex in list(group.regexes):
        write_regex(proposal, group, regex, None)
    _write(proposal, group, schemas.ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    _write(proposal, group, schemas.ConsumerGroupMetadataKey(group_id=group.group_id), None)
    proposal.remove(group.group_id)


def by_topic(assignment: Iterable[tuple[UUID, int]]) -> list[tuple[UUID, list[int]]]:
    """Partitions grouped by topic and sorted, so that equal assignments have equal bytes."""
    # Without a mapping by topic: that would compute the hash of a UUID, in Python, for each partition.
    return [
        (topic_id, [partition for _, partition in rows])
        for topic_id, rows in groupby(sorted(assignment), itemgetter(0))
    ]


def _current(assignment: Assignment) -> list[schemas.TopicPartitions]:
    return [
        schemas.TopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in by_topic(assignment)
    ]


def _flat(rows: Iterable[schemas.TopicPartition | schemas.TopicPartitions]) -> Assignment:
    return frozenset(chain.from_iterable(zip(repeat(row.topic_id), row.partitions) for row in rows))


# --- replaying


def replay(group: ConsumerGroup, key: Data, value: Data | None) -> bool:
    """Apply an entry to `group`; False if the entry removes the group itself."""
    if value is None and type(key) is schemas.ConsumerGroupMetadataKey:
        return False
    REPLAYS[type(key)](group, key, value)
    return True


def _replay_epoch(
    group: ConsumerGroup, key: schemas.ConsumerGroupMetadataKey, value: schemas.ConsumerGroupMetadataValue
) -> None:
    group.epoch, group.metadata_hash = value.epoch, value.metadata_hash


def _replay_target_epoch(
    group: ConsumerGroup,
    key: schemas.ConsumerGroupTargetAssignmentMetadataKey,
    value: schemas.ConsumerGroupTargetAssignmentMetadataValue | None,
) -> None:
    group.target_epoch = 0 if value is None else value.assignment_epoch


def _replay_target_member(
    group: ConsumerGroup,
    key: schemas.ConsumerGroupTargetAssignmentMemberKey,
    value: schemas.ConsumerGroupTargetAssignmentMemberValue | None,
) -> None:
    if value is None:
        group.target.pop(key.member_id, None)
    else:
        group.target[key.member_id] = _flat(value.topic_partitions)


def _replay_regex(
    group: ConsumerGroup,
    key: schemas.ConsumerGroupRegularExpressionKey,
    value: schemas.ConsumerGroupRegularExpressionValue | None,
) -> None:
    if value is None:
        group.regexes.pop(key.regular_expression, None)
    else:
        resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.regexes[key.regular_expression] = resolved


def _replay_member(
    group: ConsumerGroup,
    key: schemas.ConsumerGroupMemberMetadataKey,
    value: schemas.ConsumerGroupMemberMetadataValue | None,
) -> None:
    member_id = key.member_id
    if value is None:
        group.remove_member(member_id)
        return
    classic = None
    if value.classic_member_metadata is not None:
        side = value.classic_member_metadata
        protocols = tuple((row.name, row.metadata) for row in side.supported_protocols)
        classic = ClassicSide(side.session_timeout_ms, protocols)
    member = group.members.get(member_id) or ConsumerMember(member_id)
    group.put_member(
        replace(
            member,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or None,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=classic,
        )
    )


def _replay_current(
    group: ConsumerGroup,
    key: schemas.ConsumerGroupCurrentMemberAssignmentKey,
    value: schemas.ConsumerGroupCurrentMemberAssignmentValue | None,
) -> None:
    member_id = key.member_id
    member = group.members.get(member_id)
    if value is None:
        if member is not None:
            group.put_member(
                replace(
                    member,
                    epoch=0,
                    previous_epoch=-1,
                    state=MemberState.STABLE,
                    assigned=NOTHING,
                    revoking=NOTHING,
                )
            )
        return
    known = value.state in MemberState._value2member_map_
    group.put_member(
        replace(
            member or ConsumerMember(member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_flat(value.assigned_partitions),
            revoking=_flat(value.partitions_pending_revocation),
        )
    )


REPLAYS: Final[Mapping[type[Data], Callable[[ConsumerGroup, Any, Any], None]]] = {
    schemas.ConsumerGroupMetadataKey: _replay_epoch,
    schemas.ConsumerGroupMemberMetadataKey: _replay_member,
    schemas.ConsumerGroupTargetAssignmentMetadataKey: _replay_target_epoch,
    schemas.ConsumerGroupTargetAssignmentMemberKey: _replay_target_member,
    schemas.ConsumerGroupCurrentMemberAssignmentKey: _replay_current,
    schemas.ConsumerGroupRegularExpressionKey: _replay_regex,
}
