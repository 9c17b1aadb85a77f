"""Records of KIP-848 consumer groups in __consumer_offsets."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from barnabas.wire.records_schemas import RecordTypes
from barnabas.wire.schema import Data, Struct, array, bytes_, int8, int32, int64, string, struct_, uuid


class ConsumerGroupMetadataKey(Data, versions=(3, 3)):
    group_id: str = string()


class ConsumerGroupMetadataValue(Data, versions=(0, 0), flexible=0):
    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Data, versions=(4, 4)):
    """Written up to Kafka 4.0 only; 4.1 keeps a hash in the group's metadata instead."""

    group_id: str = string()


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: list[str] = array(string)


class TopicMetadata(Struct):
    topic_id: UUID = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Data, versions=(0, 0), flexible=0):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Data, versions=(5, 5)):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = bytes_()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Data, versions=(0, 0), flexible=0):
    instance_id: str | None = string(null="0+")
    rack_id: str | None = string(null="0+")
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string)
    subscribed_topic_regex: str | None = string(null="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(null="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct_(ClassicMemberMetadata, null="0+", tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Data, versions=(6, 6)):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Data, versions=(0, 0), flexible=0):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Data, versions=(7, 7)):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupTargetAssignmentMemberValue(Data, versions=(0, 0), flexible=0):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Data, versions=(8, 8)):
    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    topic_id: UUID = uuid()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, null="0+", default=None, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Data, versions=(0, 0), flexible=0):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Data, versions=(16, 16)):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Data, versions=(0, 0), flexible=0):
    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()


CONSUMER_GROUP_RECORDS: Final[RecordTypes] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
