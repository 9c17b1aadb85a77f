"""Records of share groups (KIP-932) in __consumer_offsets."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from barnabas.wire.records_schemas import RecordTypes
from barnabas.wire.schema import Data, Struct, array, int8, int32, int64, string, uuid


class ShareGroupMemberMetadataKey(Data, versions=(10, 10)):
    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Data, versions=(0, 0), flexible=0):
    rack_id: str | None = string(null="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)


class ShareGroupMetadataKey(Data, versions=(11, 11)):
    group_id: str = string()


class ShareGroupMetadataValue(Data, versions=(0, 0), flexible=0):
    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Data, versions=(12, 12)):
    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Data, versions=(0, 0), flexible=0):
    assignment_epoch: int = int32()


class ShareGroupTargetAssignmentMemberKey(Data, versions=(13, 13)):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class ShareGroupTargetAssignmentMemberValue(Data, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupCurrentMemberAssignmentKey(Data, versions=(14, 14)):
    group_id: str = string()
    member_id: str = string()


class ShareGroupCurrentMemberAssignmentValue(Data, versions=(0, 0), flexible=0):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartition] = array(TopicPartition)


class ShareGroupStatePartitionMetadataKey(Data, versions=(15, 15)):
    group_id: str = string()


class TopicPartitionsInfo(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32)
    create_timestamp: int = int64()


class TopicInfo(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(Data, versions=(0, 0), flexible=0):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)


SHARE_GROUP_RECORDS: Final[RecordTypes] = {
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}
