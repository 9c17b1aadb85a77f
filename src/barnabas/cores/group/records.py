"""State <-> the records of the offsets topic.

Writes OffsetCommitValue v3 (v1 if the client gave a retention time) and GroupMetadataValue v3. Reads all versions that
Kafka has ever written.
"""

from __future__ import annotations

import struct
from typing import Final

from barnabas.cores.decision import MISSING, CorruptRecord, put
from barnabas.cores.group.classic.group import ClassicGroup, ClassicMember, ClassicState
from barnabas.cores.group.consumer import records as consumer_records
from barnabas.cores.group.consumer.group import ConsumerGroup
from barnabas.cores.group.share import records as share_records
from barnabas.cores.group.share.group import ShareGroup
from barnabas.cores.group.state import Committed, Partition, State, put_held, put_offset
from barnabas.wire.primitives import WireError
from barnabas.wire.records_schemas import group_log as formats

Record = tuple[bytes, bytes | None]

OFFSET_COMMIT_KINDS: Final = (0, 1)  # the same fields; 1 is written
OFFSET_COMMIT_KEY_VERSION: Final = 1
OFFSET_COMMIT_VALUE_VERSION: Final = 3
OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_METADATA_KEY_VERSION: Final = 2
GROUP_METADATA_VALUE_VERSION: Final = 3


# --- encoding


def offset_commit(group_id: str, partition: Partition, committed: Committed) -> Record:
    """The record of a committed offset."""
    version = OFFSET_COMMIT_VALUE_VERSION
    if committed.expire_timestamp_ms >= 0:
        version = OFFSET_COMMIT_VALUE_VERSION_WITH_EXPIRY
    value = formats.OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    return _offset_key(group_id, partition), value.encode_versioned(version)


def offset_tombstone(group_id: str, partition: Partition) -> Record:
    """The tombstone of a committed offset."""
    return _offset_key(group_id, partition), None


def _offset_key(group_id: str, partition: Partition) -> bytes:
    key = formats.OffsetCommitKey(group=group_id, topic=partition[0], partition=partition[1])
    return key.encode_versioned(OFFSET_COMMIT_KEY_VERSION)


def group_metadata(group: ClassicGroup) -> Record:
    """The record of a classic group with its members."""
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
    return _group_key(group.group_id), value.encode_versioned(GROUP_METADATA_VALUE_VERSION)


def group_tombstone(group_id: str) -> Record:
    """The tombstone of a classic group."""
    return _group_key(group_id), None


def _group_key(group_id: str) -> bytes:
    return formats.GroupMetadataKey(group=group_id).encode_versioned(GROUP_METADATA_KEY_VERSION)


# --- replaying


def replay(state: State, key: bytes, value: bytes | None, producer_id: int) -> None:
    """Apply one record to the state; unknown kinds are skipped. Raises CorruptRecord."""
    try:
        (kind,) = struct.unpack_from(">h", key)
        if kind in OFFSET_COMMIT_KINDS:
            _replay_offset(state, key, value, producer_id)
        elif kind == GROUP_METADATA_KEY_VERSION:
            _replay_group(state, key, value)
        elif kind in consumer_records.KINDS:
            _replay_consumer(state, key, value)
        elif kind in share_records.KINDS:
            _replay_share(state, key, value)
    except (WireError, struct.error) as error:
        raise CorruptRecord(f"record of the offsets topic with key {key[:80]!r}: {error}") from error


def _replay_offset(state: State, raw_key: bytes, raw_value: bytes | None, producer_id: int) -> None:
    key = formats.OffsetCommitKey.decode_versioned(raw_key)
    partition = (key.topic, key.partition)
    if raw_value is None:
        put_offset(state, key.group, partition, None, None)
        return
    value = formats.OffsetCommitValue.decode_versioned(raw_value)
    committed = Committed(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        state.next_sequence(),
    )
    if key.group not in state.groups:
        put(state.groups, key.group, ClassicGroup(key.group), None)
    if producer_id < 0:
        put_offset(state, key.group, partition, committed, None)
    else:
        held = dict(state.pending.get(producer_id, {}).get(key.group, {}))
        held[partition] = committed
        put_held(state, producer_id, key.group, held, None)


def _replay_group(state: State, raw_key: bytes, raw_value: bytes | None) -> None:
    group_id = formats.GroupMetadataKey.decode_versioned(raw_key).group
    if raw_value is None:
        put(state.groups, group_id, MISSING, None)
        return
    put(
        state.groups,
        group_id,
        group_of(group_id, formats.GroupMetadataValue.decode_versioned(raw_value)),
        None,
    )


def _replay_consumer(state: State, raw_key: bytes, raw_value: bytes | None) -> None:
    key, value = formats.decode_group_record(raw_key, raw_value)
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = state.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        # A classic group with this id was only created for offsets read earlier, or was converted to this one.
        group = ConsumerGroup(group_id)
        put(state.groups, group_id, group, None)
    if not consumer_records.replay(group, key, value):
        put(state.groups, group_id, MISSING, None)


def _replay_share(state: State, raw_key: bytes, raw_value: bytes | None) -> None:
    key, value = formats.decode_group_record(raw_key, raw_value)
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = state.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        if value is None:
            return
        group = ShareGroup(group_id)
        put(state.groups, group_id, group, None)
    if not share_records.replay(group, key, value):
        put(state.groups, group_id, MISSING, None)


def group_of(group_id: str, value: formats.GroupMetadataValue) -> ClassicGroup:
    """The group in a record: stable if it has members, otherwise empty."""
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
