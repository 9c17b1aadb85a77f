"""The table of the APIs that Barnabas serves: one row each.

ApiVersions, dispatch, authorization and the documentation read this table. A row is here when
`barnabas.broker.handlers.<module>` exists; versions are what is announced, which is less than what
`wire.messages` can read. `authorize` is (operation, resource type) for the whole request, or None where
the handler decides per topic, per resource or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from barnabas.wire.messages import request_class, response_class
from barnabas.wire.schema import Message

Authorize = tuple[str, str]

READ_GROUP: Final[Authorize] = ("READ", "GROUP")
DESCRIBE_GROUP: Final[Authorize] = ("DESCRIBE", "GROUP")
DELETE_GROUP: Final[Authorize] = ("DELETE", "GROUP")
WRITE_TOPIC: Final[Authorize] = ("WRITE", "TOPIC")
READ_TOPIC: Final[Authorize] = ("READ", "TOPIC")
DESCRIBE_TOPIC: Final[Authorize] = ("DESCRIBE", "TOPIC")
CREATE_TOPIC: Final[Authorize] = ("CREATE", "TOPIC")
DELETE_TOPIC: Final[Authorize] = ("DELETE", "TOPIC")
ALTER_TOPIC: Final[Authorize] = ("ALTER", "TOPIC")
DESCRIBE_CLUSTER: Final[Authorize] = ("DESCRIBE", "CLUSTER")
ALTER_CLUSTER: Final[Authorize] = ("ALTER", "CLUSTER")
WRITE_PRODUCER: Final[Authorize] = ("IDEMPOTENT_WRITE", "CLUSTER")


@dataclass(frozen=True)
class Api:
    """One row: an API key with its name, handler module, served versions and what it authorizes."""

    key: int
    name: str
    handler: str
    versions: range
    authorize: Authorize | None = None

    @cached_property
    def request(self) -> type[Message]:
        return request_class(self.key)

    @cached_property
    def response(self) -> type[Message]:
        return response_class(self.key)


def _row(key: int, name: str, handler: str, low: int, high: int, authorize: Authorize | None = None) -> Api:
    return Api(key, name, handler, range(low, high + 1), authorize)


APIS: Final[tuple[Api, ...]] = (
    _row(0, "Produce", "produce", 0, 13, WRITE_TOPIC),
    _row(1, "Fetch", "fetch", 0, 18, READ_TOPIC),
    _row(2, "ListOffsets", "list_offsets", 0, 11, DESCRIBE_TOPIC),
    _row(3, "Metadata", "metadata", 0, 13, DESCRIBE_TOPIC),
    _row(8, "OffsetCommit", "offset_commit", 0, 10, READ_GROUP),
    _row(9, "OffsetFetch", "offset_fetch", 0, 10, DESCRIBE_GROUP),
    _row(10, "FindCoordinator", "find_coordinator", 0, 6),
    _row(11, "JoinGroup", "join_group", 0, 9, READ_GROUP),
    _row(12, "Heartbeat", "heartbeat", 0, 4, READ_GROUP),
    _row(13, "LeaveGroup", "leave_group", 0, 5, READ_GROUP),
    _row(14, "SyncGroup", "sync_group", 0, 5, READ_GROUP),
    _row(15, "DescribeGroups", "describe_groups", 0, 6, DESCRIBE_GROUP),
    _row(16, "ListGroups", "list_groups", 0, 5),
    _row(18, "ApiVersions", "api_versions", 0, 4),
    _row(19, "CreateTopics", "create_topics", 0, 7, CREATE_TOPIC),
    _row(20, "DeleteTopics", "delete_topics", 0, 6, DELETE_TOPIC),
    _row(21, "DeleteRecords", "delete_records", 0, 2, DELETE_TOPIC),
    _row(22, "InitProducerId", "init_producer_id", 0, 5, WRITE_PRODUCER),
    _row(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", 0, 4, DESCRIBE_TOPIC),
    _row(29, "DescribeAcls", "describe_acls", 0, 3, DESCRIBE_CLUSTER),
    _row(30, "CreateAcls", "create_acls", 0, 3, ALTER_CLUSTER),
    _row(31, "DeleteAcls", "delete_acls", 0, 3, ALTER_CLUSTER),
    _row(32, "DescribeConfigs", "describe_configs", 0, 4),
    _row(33, "AlterConfigs", "alter_configs", 0, 2),
    _row(34, "AlterReplicaLogDirs", "alter_replica_log_dirs", 0, 2, ALTER_CLUSTER),
    _row(35, "DescribeLogDirs", "describe_log_dirs", 0, 5, DESCRIBE_CLUSTER),
    _row(37, "CreatePartitions", "create_partitions", 0, 3, ALTER_TOPIC),
    _row(42, "DeleteGroups", "delete_groups", 0, 2, DELETE_GROUP),
    _row(43, "ElectLeaders", "elect_leaders", 0, 2, ALTER_CLUSTER),
    _row(44, "IncrementalAlterConfigs", "incremental_alter_configs", 0, 1),
    _row(45, "AlterPartitionReassignments", "alter_partition_reassignments", 0, 1, ALTER_CLUSTER),
    _row(46, "ListPartitionReassignments", "list_partition_reassignments", 0, 0, DESCRIBE_CLUSTER),
    _row(47, "OffsetDelete", "offset_delete", 0, 0, DELETE_GROUP),
    _row(48, "DescribeClientQuotas", "describe_client_quotas", 0, 1),
    _row(49, "AlterClientQuotas", "alter_client_quotas", 0, 1),
    _row(60, "DescribeCluster", "describe_cluster", 0, 2),
    _row(61, "DescribeProducers", "describe_producers", 0, 0, READ_TOPIC),
    _row(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0, 1, READ_GROUP),
    _row(69, "ConsumerGroupDescribe", "consumer_group_describe", 0, 1, DESCRIBE_GROUP),
    _row(71, "GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0, 0),
    _row(72, "PushTelemetry", "push_telemetry", 0, 0),
    _row(74, "ListConfigResources", "list_config_resources", 0, 1),
    _row(75, "DescribeTopicPartitions", "describe_topic_partitions", 0, 0, DESCRIBE_TOPIC),
    _row(76, "ShareGroupHeartbeat", "share_group_heartbeat", 1, 1, READ_GROUP),
    _row(77, "ShareGroupDescribe", "share_group_describe", 1, 1, DESCRIBE_GROUP),
    _row(78, "ShareFetch", "share_fetch", 1, 2, READ_GROUP),
    _row(79, "ShareAcknowledge", "share_acknowledge", 1, 2, READ_GROUP),
    _row(90, "DescribeShareGroupOffsets", "describe_share_group_offsets", 0, 1, DESCRIBE_GROUP),
    _row(91, "AlterShareGroupOffsets", "alter_share_group_offsets", 0, 0, READ_GROUP),
    _row(92, "DeleteShareGroupOffsets", "delete_share_group_offsets", 0, 0, DELETE_GROUP),
)

OWN_APIS: Final[tuple[Api, ...]] = (
    _row(30000, "ConnectedClients", "connected_clients", 0, 0, DESCRIBE_CLUSTER),
    _row(30001, "ClientMetrics", "client_metrics", 0, 0, DESCRIBE_CLUSTER),
)
"""Not Kafka's: announced to our own client only."""

BY_KEY: Final[Mapping[int, Api]] = {api.key: api for api in (*APIS, *OWN_APIS)}
