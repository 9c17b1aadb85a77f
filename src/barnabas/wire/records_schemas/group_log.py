"""Records of __consumer_offsets: classic groups and committed offsets; newer groups are in other modules."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from barnabas.wire.primitives import Buffer
from barnabas.wire.records_schemas import RecordTypes, decode_record
from barnabas.wire.records_schemas.consumer_group import CONSUMER_GROUP_RECORDS
from barnabas.wire.records_schemas.share_group import SHARE_GROUP_RECORDS
from barnabas.wire.records_schemas.streams_group import STREAMS_GROUP_RECORDS
from barnabas.wire.schema import Data, Struct, array, bytes_, int32, int64, string, uuid


class OffsetCommitKey(Data, versions=(0, 1)):
    """Kind 1; kind 0, from before 0.9, is the same."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Data, versions=(0, 4), flexible=4):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: UUID = uuid("4+", ignorable=True, tag=0)


class GroupMetadataKey(Data, versions=(2, 2)):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", null="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


class GroupMetadataValue(Data, versions=(0, 4), flexible=4):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(null="0+")
    leader: str | None = string(null="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


GROUP_RECORDS: Final[RecordTypes] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    **CONSUMER_GROUP_RECORDS,
    **SHARE_GROUP_RECORDS,
    **STREAMS_GROUP_RECORDS,
}


def decode_group_record(key: Buffer, value: Buffer | None) -> tuple[Data, Data | None]:
    """Key and value of a record of __consumer_offsets. Errors as `decode_record`."""
    return decode_record(GROUP_RECORDS, key, value)
