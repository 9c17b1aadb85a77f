"""Consumer groups <-> records of the offsets topic (kinds 3, 5 to 8 and 16, as Kafka 4 writes them).

Each `write_*` changes a draft and notes the record of the change, so that the two always agree; `replay` makes the
same change from the record's bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from barnabas.cores.group.assignors import NOTHING, Assignment
from barnabas.cores.group.consumer.group import (
    ClassicSide,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    ResolvedRegex,
)
from barnabas.cores.group.turn import Turn
from barnabas.wire.records_schemas import consumer_group as schemas
from barnabas.wire.schema import Data

KINDS = frozenset({3, 5, 6, 7, 8, 16})


def _record(turn: Turn, key: Data, kind: int, value: Data | None) -> None:
    turn.record((key.encode_versioned(kind), None if value is None else value.encode_versioned(0)))


# --- writing


def write_epoch(turn: Turn, group: ConsumerGroup, epoch: int, metadata_hash: int) -> None:
    """A new group epoch, with the hash of the topics that it is based on."""
    group.epoch, group.metadata_hash = epoch, metadata_hash
    value = schemas.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    _record(turn, schemas.ConsumerGroupMetadataKey(group_id=group.group_id), 3, value)


def write_member(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A member's own data; `write_current` stores its progress."""
    group.put_member(member)
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
    _record(turn, key, 5, value)


def write_target_member(turn: Turn, group: ConsumerGroup, member_id: str, target: Assignment) -> None:
    """A member's target assignment."""
    group.target[member_id] = target
    value = schemas.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            schemas.TopicPartition(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic(target)
        ]
    )
    key = schemas.ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
    _record(turn, key, 7, value)


def write_target_epoch(turn: Turn, group: ConsumerGroup, epoch: int) -> None:
    """The epoch of the target assignment, after all targets have been written."""
    group.target_epoch = epoch
    value = schemas.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=turn.now_ms
    )
    _record(turn, schemas.ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), 6, value)


def write_current(turn: Turn, group: ConsumerGroup, member: ConsumerMember) -> None:
    """A member's progress: its epoch, its partitions, and those that it has to revoke."""
    group.put_member(member)
    value = schemas.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_current(member.assigned),
        partitions_pending_revocation=_current(member.revoking),
    )
    key = schemas.ConsumerGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id)
    _record(turn, key, 8, value)


def write_regex(turn: Turn, group: ConsumerGroup, regex: str, resolved: ResolvedRegex | None) -> None:
    """The topics that an expression matched; None removes an expression that no member uses any more."""
    value = None
    if resolved is None:
        group.regexes.pop(regex, None)
    else:
        group.regexes[regex] = resolved
        value = schemas.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        )
    key = schemas.ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex)
    _record(turn, key, 16, value)


def write_member_gone(turn: Turn, group: ConsumerGroup, member_id: str) -> None:
    """Tombstones for all records of a member."""
    names = {"group_id": group.group_id, "member_id": member_id}
    _record(turn, schemas.ConsumerGroupCurrentMemberAssignmentKey(**names), 8, None)
    _record(turn, schemas.ConsumerGroupTargetAssignmentMemberKey(**names), 7, None)
    _record(turn, schemas.ConsumerGroupMemberMetadataKey(**names), 5, None)
    group.remove_member(member_id)
    group.target.pop(member_id, None)


def write_group_gone(turn: Turn, group: ConsumerGroup) -> None:
    """Tombstones for all records of the group, and its removal."""
    for member_id in list(group.members):
        write_member_gone(turn, group, member_id)
    for member_id in group.target:  # targets of members that have already left
        key = schemas.ConsumerGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
        _record(turn, key, 7, None)
    for regex in list(group.regexes):
        write_regex(turn, group, regex, None)
    _record(turn, schemas.ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), 6, None)
    _record(turn, schemas.ConsumerGroupMetadataKey(group_id=group.group_id), 3, None)
    turn.remove(group.group_id)


def by_topic(assignment: Iterable[tuple[UUID, int]]) -> list[tuple[UUID, list[int]]]:
    """Partitions grouped by topic and sorted, so that equal assignments have equal bytes."""
    topics: dict[UUID, list[int]] = {}
    for topic_id, partition in sorted(assignment):
        topics.setdefault(topic_id, []).append(partition)
    return list(topics.items())


def _current(assignment: Assignment) -> list[schemas.TopicPartitions]:
    return [
        schemas.TopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in by_topic(assignment)
    ]


def _flat(rows: Iterable[schemas.TopicPartition | schemas.TopicPartitions]) -> Assignment:
    return frozenset((row.topic_id, partition) for row in rows for partition in row.partitions)


# --- replaying


def replay(group: ConsumerGroup, key: Data, value: Data | None) -> bool:
    """Apply a record to `group`; False if the record removes the group itself."""
    match key, value:
        case schemas.ConsumerGroupMetadataKey(), None:
            return False
        case schemas.ConsumerGroupMetadataKey(), schemas.ConsumerGroupMetadataValue():
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case schemas.ConsumerGroupMemberMetadataKey(), _:
            _replay_member(group, key.member_id, value)
        case schemas.ConsumerGroupTargetAssignmentMetadataKey(), _:
            target_value = isinstance(value, schemas.ConsumerGroupTargetAssignmentMetadataValue)
            group.target_epoch = value.assignment_epoch if target_value else 0  # type: ignore[union-attr]
        case schemas.ConsumerGroupTargetAssignmentMemberKey(), None:
            group.target.pop(key.member_id, None)
        case (
            schemas.ConsumerGroupTargetAssignmentMemberKey(),
            schemas.ConsumerGroupTargetAssignmentMemberValue(),
        ):
            group.target[key.member_id] = _flat(value.topic_partitions)
        case schemas.ConsumerGroupCurrentMemberAssignmentKey(), _:
            _replay_current(group, key.member_id, value)
        case schemas.ConsumerGroupRegularExpressionKey(), None:
            group.regexes.pop(key.regular_expression, None)
        case schemas.ConsumerGroupRegularExpressionKey(), schemas.ConsumerGroupRegularExpressionValue():
            group.regexes[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )
    return True


def _replay_member(group: ConsumerGroup, member_id: str, value: Data | None) -> None:
    if not isinstance(value, schemas.ConsumerGroupMemberMetadataValue):
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


def _replay_current(group: ConsumerGroup, member_id: str, value: Data | None) -> None:
    member = group.members.get(member_id)
    if not isinstance(value, schemas.ConsumerGroupCurrentMemberAssignmentValue):
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
