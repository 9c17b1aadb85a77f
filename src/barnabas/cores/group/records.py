"""State <-> the entries of the offsets topic.

Writes OffsetCommitValue v3 (v1 if the client gave a retention time) and GroupMetadataValue v3. Reads all versions that
Kafka has ever written.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.cores.decision import CorruptRecord, Entry
from barnabas.cores.group.classic.group import ClassicGroup, ClassicMember, ClassicState
from barnabas.cores.group.consumer import records as consumer_records
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.share import records as share_records
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.state import Committed, Partition, State
from barnabas.cores.group.streams import records as streams_records
from barnabas.cores.group.streams.group import StreamsGroup
from barnabas.wire.primitives import WireError
from barnabas.wire.records_schemas import group_log as formats
from barnabas.wire.schema import Data

KINDS: Final = {0, 1, 2, *consumer_records.KINDS, *share_records.KINDS, *streams_records.KINDS}
OFFSET_COMMIT_VALUE_VERSION: Final = 3
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_METADATA_VALUE_VERSION: Final = 3
NO_EPOCH: Final = -1


# --- writing


def offset_commit(
    group_id: str,
    partition: Partition,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int,
) -> Entry:
    """The entry of a committed offset. Its layout with a retention time has no leader epoch."""
    with_expiry = expire_timestamp_ms >= 0
    value = formats.OffsetCommitValue(
        offset=offset,
        leader_epoch=NO_EPOCH if with_expiry else leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp_ms,
        expire_timestamp=expire_timestamp_ms,
    )
    version = OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY if with_expiry else OFFSET_COMMIT_VALUE_VERSION
    return Entry(_offset_key(group_id, partition), value, version)


def offset_tombstone(group_id: str, partition: Partition) -> Entry:
    """The tombstone of a committed offset."""
    return Entry(_offset_key(group_id, partition), None)


def _offset_key(group_id: str, partition: Partition) -> Data:
    return formats.OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1])


def group_metadata(group: ClassicGroup) -> Entry:
    """The entry of a classic group with its members."""
    value = formats.GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_since_ms,
        members=[
            formats.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_for(group.protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return Entry(formats.GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VALUE_VERSION)


def group_tombstone(group_id: str) -> Entry:
    """The tombstone of a classic group."""
    return Entry(formats.GroupMetadataKey(group=group_id), None)


# --- replaying


def decode(key: bytes, value: bytes | None) -> tuple[Data, Data | None] | None:
    """An entry as it is in the log; None for a kind that this version does not know. Raises CorruptRecord."""
    try:
        (kind,) = struct.unpack_from(">h", key)
        return formats.decode_group_record(key, value) if kind in KINDS else None
    except (WireError, struct.error) as error:
        raise CorruptRecord(f"record of the offsets topic with key {key[:80]!r}: {error}") from error


def replay(state: State, key: Data, value: Data | None, producer_id: int) -> None:
    """Apply one entry of the log to the state.

    producer_id: the producer whose transaction the entry is part of; -1 if it is part of none.
    """
    match key, value:
        case formats.OffsetCommitKey(), _:
            replay_offset(state, key, value, producer_id)
        case formats.GroupMetadataKey(), formats.GroupMetadataValue():
            state.groups[key.group] = group_of(key.group, value)
        case formats.GroupMetadataKey(), None:
            state.groups.pop(key.group, None)
        case _ if type(key).VERSIONS[0] in consumer_records.KINDS:
            _replay_consumer(state, key, value)
        case _ if type(key).VERSIONS[0] in streams_records.KINDS:
            _replay_streams(state, key, value)
        case _:
            _replay_share(state, key, value)


def replay_offset(state: State, key: formats.OffsetCommitKey, value: Data | None, producer_id: int) -> None:
    """Make an offset visible, or hold it back until the end of its transaction.

    A tombstone also drops what open transactions hold for the partition.
    """
    group_id, partition = key.group, (key.topic, key.partition)
    if not isinstance(value, formats.OffsetCommitValue):
        _forget_offset(state, group_id, partition)
        return
    if group_id not in state.groups:
        state.groups[group_id] = ClassicGroup(group_id)
    committed = Committed(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        state.next_sequence(),
    )
    by_group = state.committed if producer_id < 0 else state.pending.setdefault(producer_id, {})
    offsets = by_group.get(group_id)
    if offsets is None:
        by_group[group_id] = offsets = {}
    offsets[partition] = committed


def _forget_offset(state: State, group_id: str, partition: Partition) -> None:
    _drop(state.committed, group_id, partition)
    for producer_id in [
        producer_id for producer_id, by_group in state.pending.items() if group_id in by_group
    ]:
        _drop(state.pending[producer_id], group_id, partition)
        if not state.pending[producer_id]:
            del state.pending[producer_id]


def _drop(by_group: dict[str, dict[Partition, Committed]], group_id: str, partition: Partition) -> None:
    offsets = by_group.get(group_id)
    if offsets is not None:
        offsets.pop(partition, None)
        if not offsets:
            del by_group[group_id]


def replay_marker(state: State, producer_id: int, committed: bool) -> None:
    """Make the offsets that a producer has pending visible, unless there is a newer commit, or drop them."""
    for group_id, offsets in state.pending.pop(producer_id, {}).items():
        if not committed:
            continue
        if group_id not in state.groups:
            state.groups[group_id] = ClassicGroup(group_id)
        visible = state.committed.setdefault(group_id, {})
        for partition, offset in offsets.items():
            current = visible.get(partition)
            if current is None or current.sequence < offset.sequence:
                visible[partition] = offset


def _replay_consumer(state: State, key: Data, value: Data | None) -> None:
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        # A classic group with this id was only created for offsets read earlier, or was converted to this one.
        group = state.groups[group_id] = ConsumerGroup(group_id)
    if not consumer_records.replay(group, key, value):
        del state.groups[group_id]


def _replay_share(state: State, key: Data, value: Data | None) -> None:
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        if value is None:
            return
        group = state.groups[group_id] = ShareGroup(group_id)
    if not share_records.replay(group, key, value):
        del state.groups[group_id]


def _replay_streams(state: State, key: Data, value: Data | None) -> None:
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = state.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        if value is None:
            return
        group = state.groups[group_id] = StreamsGroup(group_id)
    if not streams_records.replay(group, key, value):
        del state.groups[group_id]


def group_of(group_id: str, value: formats.GroupMetadataValue) -> ClassicGroup:
    """The group in an entry: stable if it has members, otherwise empty."""
    group = ClassicGroup(
        group_id,
        state=ClassicState.STABLE if value.members else ClassicState.EMPTY,
        state_since_ms=value.current_state_timestamp,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        generation_id=value.generation,
    )
    for row in value.members:
        member = ClassicMember(
            row.member_id,
            row.group_instance_id,
            row.client_id,
            row.client_host,
            # Version 0 lacked this field; then the session timeout limited the rebalance.
            row.rebalance_timeout if row.rebalance_timeout > 0 else row.session_timeout,
            row.session_timeout,
            ((value.protocol or "", row.subscription),),
            assignment=row.assignment,
        )
        group.add(member, group.protocol_type)
    group.leader_id = value.leader if value.leader in group.members else next(iter(group.members), None)
    group.read_subscribed_topics()
    return group
