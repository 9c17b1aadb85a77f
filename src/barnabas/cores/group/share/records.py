"""Share groups <-> entries of the offsets topic (kinds 10 to 15, as Kafka 4 writes them).

Each `write_*` notes an entry and replays it into the draft at once: a draft is changed as a restart changes a group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from barnabas.cores.decision import Entry
from barnabas.cores.group.assignors import NOTHING, Assignment
from barnabas.cores.group.consumer.records import by_topic
from barnabas.cores.group.proposal import Proposal
from barnabas.cores.group.share.group import ShareGroup, ShareMember, ShareTopic
from barnabas.wire.records_schemas import share_group as schemas
from barnabas.wire.schema import Data

KINDS = frozenset(range(10, 16))


def _write(proposal: Proposal, group: ShareGroup, key: Data, value: Data | None) -> None:
    proposal.record(Entry(key, value))
    replay(group, key, value)


def write_epoch(proposal: Proposal, group: ShareGroup, epoch: int, metadata_hash: int) -> None:
    """A new group epoch, with the hash of the topics that it is based on."""
    value = schemas.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    _write(proposal, group, schemas.ShareGroupMetadataKey(group_id=group.group_id), value)


def write_member(proposal: Proposal, group: ShareGroup, member: ShareMember) -> None:
    """A member's own data."""
    value = schemas.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
    )
    key = schemas.ShareGroupMemberMetadataKey(group_id=group.group_id, member_id=member.member_id)
    _write(proposal, group, key, value)


def write_target_member(proposal: Proposal, group: ShareGroup, member_id: str, target: Assignment) -> None:
    """A member's target assignment."""
    value = schemas.ShareGroupTargetAssignmentMemberValue(topic_partitions=_rows(target))
    key = schemas.ShareGroupTargetAssignmentMemberKey(group_id=group.group_id, member_id=member_id)
    _write(proposal, group, key, value)


def write_target_epoch(proposal: Proposal, group: ShareGroup, epoch: int) -> None:
    """The epoch of the target assignment, after all targets have been written."""
    value = schemas.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    _write(proposal, group, schemas.ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id), value)


def write_current(proposal: Proposal, group: ShareGroup, member: ShareMember) -> None:
    """A member's assignment, and its epoch."""
    value = schemas.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=0,
        assigned_partitions=_rows(member.assigned),
    )
    key = schemas.ShareGroupCurrentMemberAssignmentKey(group_id=group.group_id, member_id=member.member_id)
    _write(proposal, group, key, value)


def write_topics(proposal: Proposal, group: ShareGroup) -> None:
    """The partitions whose states exist or are being created; the draft's two tables are written as they are."""
    value = schemas.ShareGroupStatePartitionMetadataValue(
        initializing_topics=_topics(group.initializing), initialized_topics=_topics(group.initialized)
    )
    _write(proposal, group, schemas.ShareGroupStatePartitionMetadataKey(group_id=group.group_id), value)


def write_member_gone(proposal: Proposal, group: ShareGroup, member_id: str) -> None:
    """Tombstones for all entries of a member."""
    group_id = group.group_id
    _write(
        proposal,
        group,
        schemas.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        None,
    )
    _write(
        proposal,
        group,
        schemas.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        None,
    )
    _write(proposal, group, schemas.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def write_group_gone(proposal: Proposal, group: ShareGroup) -> None:
    """Tombstones for all entries of the group, and its removal."""
    for member_id in list(group.members):
        write_member_gone(proposal, group, member_id)
    _write(proposal, group, schemas.ShareGroupStatePartitionMetadataKey(group_id=group.group_id), None)
    _write(proposal, group, schemas.ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id), None)
    _write(proposal, group, schemas.ShareGroupMetadataKey(group_id=group.group_id), None)
    proposal.remove(group.group_id)


def _rows(assignment: Assignment) -> list[schemas.TopicPartition]:
    return [
        schemas.TopicPartition(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in by_topic(assignment)
    ]


def _flat(rows: Iterable[schemas.TopicPartition]) -> Assignment:
    return frozenset((row.topic_id, number) for row in rows for number in row.partitions)


def _topics(topics: dict[UUID, ShareTopic]) -> list[schemas.TopicPartitionsInfo]:
    return [
        schemas.TopicPartitionsInfo(
            topic_id=topic_id,
            topic_name=topic.name,
            partitions=sorted(topic.partitions),
            create_timestamp=topic.since_ms,
        )
        for topic_id, topic in sorted(topics.items())
    ]


# --- replaying


def replay(group: ShareGroup, key: Data, value: Data | None) -> bool:
    """Apply a record to `group`; False if the record removes the group itself."""
    match key, value:
        case schemas.ShareGroupMetadataKey(), None:
            return False
        case schemas.ShareGroupMetadataKey(), schemas.ShareGroupMetadataValue():
            group.epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case schemas.ShareGroupMemberMetadataKey(), None:
            group.members.pop(key.member_id, None)
        case schemas.ShareGroupMemberMetadataKey(), schemas.ShareGroupMemberMetadataValue():
            group.members[key.member_id] = replace(
                group.members.get(key.member_id) or ShareMember(key.member_id),
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topics=frozenset(value.subscribed_topic_names),
            )
        case schemas.ShareGroupTargetAssignmentMetadataKey(), None:
            group.target_epoch = 0
        case (
            schemas.ShareGroupTargetAssignmentMetadataKey(),
            schemas.ShareGroupTargetAssignmentMetadataValue(),
        ):
            group.target_epoch = value.assignment_epoch
        case schemas.ShareGroupTargetAssignmentMemberKey(), None:
            group.target.pop(key.member_id, None)
        case schemas.ShareGroupTargetAssignmentMemberKey(), schemas.ShareGroupTargetAssignmentMemberValue():
            group.target[key.member_id] = _flat(value.topic_partitions)
        case schemas.ShareGroupCurrentMemberAssignmentKey(), _:
            _replay_current(group, key.member_id, value)
        case schemas.ShareGroupStatePartitionMetadataKey(), _:
            known = isinstance(value, schemas.ShareGroupStatePartitionMetadataValue)
            group.initializing = _replay_topics(value.initializing_topics) if known else {}  # type: ignore[union-attr]
            group.initialized = _replay_topics(value.initialized_topics) if known else {}  # type: ignore[union-attr]
    return True


def _replay_current(group: ShareGroup, member_id: str, value: Data | None) -> None:
    member = group.members.get(member_id)
    if isinstance(value, schemas.ShareGroupCurrentMemberAssignmentValue):
        group.members[member_id] = replace(
            member or ShareMember(member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=_flat(value.assigned_partitions),
        )
    elif member is not None:
        group.members[member_id] = replace(member, epoch=0, previous_epoch=-1, assigned=NOTHING)


def _replay_topics(rows: Iterable[schemas.TopicPartitionsInfo]) -> dict[UUID, ShareTopic]:
    return {
        row.topic_id: ShareTopic(row.topic_name, frozenset(row.partitions), row.create_timestamp)
        for row in rows
    }
