"""StreamsGroupDescribe (key 89): state, topology and members of streams groups (KIP-1071)."""

from __future__ import annotations

from barnabas.wire.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    struct_,
    uint16,
)


class StreamsGroupDescribeRequest(Request, key=89, versions=(0, 0), flexible=0):
    group_ids: list[str] = array(string)
    include_authorized_operations: bool = boolean()


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string)
    repartition_sink_topics: list[str] = array(string)
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class Topology(Struct):
    epoch: int = int32()
    subtopologies: list[Subtopology] | None = array(Subtopology, null="0+", default=None)


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32)


class Assignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class Member(Struct):
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(null="0+", default=None)
    rack_id: str | None = string(null="0+", default=None)
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct_(Endpoint, null="0+")
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct_(Assignment)
    target_assignment: Assignment = struct_(Assignment)
    is_classic: bool = boolean()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(null="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = struct_(Topology, null="0+")
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


class StreamsGroupDescribeResponse(Response, key=89, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
