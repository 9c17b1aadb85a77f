"""Records of streams groups (KIP-1071) in __consumer_offsets."""

from __future__ import annotations

from typing import Final

from barnabas.wire.records_schemas import RecordTypes
from barnabas.wire.schema import Data, Struct, array, int8, int16, int32, int64, string, struct_, uint16


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMetadataKey(Data, versions=(17, 17)):
    group_id: str = string()


class StreamsGroupMetadataValue(Data, versions=(0, 0), flexible=0):
    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(default=-1, tag=0)
    last_assignment_configs: list[KeyValue] | None = array(KeyValue, null="0+", tag=1)


class StreamsGroupMemberMetadataKey(Data, versions=(19, 19)):
    group_id: str = string()
    member_id: str = string()


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class StreamsGroupMemberMetadataValue(Data, versions=(0, 0), flexible=0):
    instance_id: str | None = string(null="0+")
    rack_id: str | None = string(null="0+")
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct_(Endpoint, null="0+")
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(Data, versions=(20, 20)):
    group_id: str = string()


class StreamsGroupTargetAssignmentMetadataValue(Data, versions=(0, 0), flexible=0):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class StreamsGroupTargetAssignmentMemberKey(Data, versions=(21, 21)):
    group_id: str = string()
    member_id: str = string()


class TargetTaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32)


class StreamsGroupTargetAssignmentMemberValue(Data, versions=(0, 0), flexible=0):
    active_tasks: list[TargetTaskIds] = array(TargetTaskIds)
    standby_tasks: list[TargetTaskIds] = array(TargetTaskIds)
    warmup_tasks: list[TargetTaskIds] = array(TargetTaskIds)


class StreamsGroupCurrentMemberAssignmentKey(Data, versions=(22, 22)):
    group_id: str = string()
    member_id: str = string()


class TaskIds(Struct):
    """`assignment_epochs` of active tasks: the member epoch at which each was assigned. Kafka writes it since 4.3."""

    subtopology_id: str = string()
    partitions: list[int] = array(int32)
    assignment_epochs: list[int] | None = array(int32, null="0+", tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Data, versions=(0, 0), flexible=0):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)
    active_tasks_pending_revocation: list[TaskIds] = array(TaskIds)
    standby_tasks_pending_revocation: list[TaskIds] = array(TaskIds)
    warmup_tasks_pending_revocation: list[TaskIds] = array(TaskIds)


class StreamsGroupTopologyKey(Data, versions=(23, 23)):
    group_id: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class CopartitionGroup(Struct):
    source_topics: list[int] = array(int16)
    source_topic_regex: list[int] = array(int16)
    repartition_source_topics: list[int] = array(int16)


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    source_topic_regex: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class StreamsGroupTopologyValue(Data, versions=(0, 0), flexible=0):
    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


STREAMS_GROUP_RECORDS: Final[RecordTypes] = {
    17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
