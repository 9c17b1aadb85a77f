"""The table of the APIs that Barnabas serves: one row each.

ApiVersions, dispatch, authorization and the documentation read this table. Each row has a handler module
`barnabas.broker.api.handlers.<area>.<module>`; the versions are those that are announced, which may be fewer than
`wire.messages` can read. If old versions need a different handler, `older` names its module and the first version that
it does not handle. `authorize` lists the required rights (wire/rights.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from barnabas.wire.messages import request_class, response_class
from barnabas.wire.rights import RIGHTS, Right
from barnabas.wire.schema import Message


@dataclass(frozen=True)
class Api:
    """One row: an API key with its name, handler module, served versions and what it authorizes.

    older: (version, module), if versions below that one have their own handler.
    """

    key: int
    name: str
    handler: str
    versions: range
    authorize: tuple[Right, ...]
    older: tuple[int, str] | None = None

    def handler_of(self, version: int) -> str:
        """The module that handles a version."""
        if self.older is not None and version < self.older[0]:
            return self.older[1]
        return self.handler

    @cached_property
    def request(self) -> type[Message]:
        return request_class(self.key)

    @cached_property
    def response(self) -> type[Message]:
        return response_class(self.key)


def _row(
    key: int,
    name: str,
    handler: str,
    low: int,
    high: int,
    older: tuple[int, str] | None = None,
) -> Api:
    return Api(key, name, handler, range(low, high + 1), RIGHTS[key], older)


APIS: Final[tuple[Api, ...]] = (
    _row(0, "Produce", "records.produce", 0, 13, older=(3, "records.legacy_produce")),
    _row(1, "Fetch", "records.fetch", 0, 18, older=(4, "records.legacy_fetch")),
    _row(
        2,
        "ListOffsets",
        "records.list_offsets",
        0,
        11,
        older=(1, "records.legacy_list_offsets"),
    ),
    _row(3, "Metadata", "topics.metadata", 0, 13),
    _row(8, "OffsetCommit", "groups.offset_commit", 0, 10),
    _row(9, "OffsetFetch", "groups.offset_fetch", 0, 10),
    _row(10, "FindCoordinator", "groups.find_coordinator", 0, 6),
    _row(11, "JoinGroup", "groups.join_group", 0, 9),
    _row(12, "Heartbeat", "groups.heartbeat", 0, 4),
    _row(13, "LeaveGroup", "groups.leave_group", 0, 5),
    _row(14, "SyncGroup", "groups.sync_group", 0, 5),
    _row(15, "DescribeGroups", "groups.describe_groups", 0, 6),
    _row(16, "ListGroups", "groups.list_groups", 0, 5),
    _row(17, "SaslHandshake", "cluster.sasl_handshake", 0, 1),
    _row(18, "ApiVersions", "cluster.api_versions", 0, 4),
    _row(19, "CreateTopics", "topics.create_topics", 0, 7),
    _row(20, "DeleteTopics", "topics.delete_topics", 0, 6),
    _row(21, "DeleteRecords", "records.delete_records", 0, 2),
    _row(22, "InitProducerId", "records.init_producer_id", 0, 5),
    _row(23, "OffsetForLeaderEpoch", "records.offset_for_leader_epoch", 0, 4),
    _row(24, "AddPartitionsToTxn", "transactions.add_partitions_to_txn", 0, 5),
    _row(25, "AddOffsetsToTxn", "transactions.add_offsets_to_txn", 0, 4),
    _row(26, "EndTxn", "transactions.end_txn", 0, 5),
    _row(27, "WriteTxnMarkers", "transactions.write_txn_markers", 0, 2),
    _row(28, "TxnOffsetCommit", "transactions.txn_offset_commit", 0, 5),
    _row(29, "DescribeAcls", "cluster.describe_acls", 0, 3),
    _row(30, "CreateAcls", "cluster.create_acls", 0, 3),
    _row(31, "DeleteAcls", "cluster.delete_acls", 0, 3),
    _row(32, "DescribeConfigs", "cluster.describe_configs", 0, 4),
    _row(33, "AlterConfigs", "cluster.alter_configs", 0, 2),
    _row(34, "AlterReplicaLogDirs", "cluster.alter_replica_log_dirs", 0, 2),
    _row(35, "DescribeLogDirs", "cluster.describe_log_dirs", 0, 5),
    _row(36, "SaslAuthenticate", "cluster.sasl_authenticate", 0, 2),
    _row(37, "CreatePartitions", "topics.create_partitions", 0, 3),
    _row(38, "CreateDelegationToken", "cluster.create_delegation_token", 0, 3),
    _row(39, "RenewDelegationToken", "cluster.renew_delegation_token", 0, 2),
    _row(40, "ExpireDelegationToken", "cluster.expire_delegation_token", 0, 2),
    _row(41, "DescribeDelegationToken", "cluster.describe_delegation_token", 0, 3),
    _row(42, "DeleteGroups", "groups.delete_groups", 0, 2),
    _row(43, "ElectLeaders", "topics.elect_leaders", 0, 2),
    _row(44, "IncrementalAlterConfigs", "cluster.incremental_alter_configs", 0, 1),
    _row(45, "AlterPartitionReassignments", "topics.alter_partition_reassignments", 0, 1),
    _row(46, "ListPartitionReassignments", "topics.list_partition_reassignments", 0, 0),
    _row(47, "OffsetDelete", "groups.offset_delete", 0, 0),
    _row(48, "DescribeClientQuotas", "cluster.describe_client_quotas", 0, 1),
    _row(49, "AlterClientQuotas", "cluster.alter_client_quotas", 0, 1),
    _row(50, "DescribeUserScramCredentials", "cluster.describe_user_scram_credentials", 0, 0),
    _row(51, "AlterUserScramCredentials", "cluster.alter_user_scram_credentials", 0, 0),
    _row(55, "DescribeQuorum", "cluster.describe_quorum", 0, 2),
    _row(60, "DescribeCluster", "cluster.describe_cluster", 0, 2),
    _row(61, "DescribeProducers", "records.describe_producers", 0, 0),
    _row(65, "DescribeTransactions", "transactions.describe_transactions", 0, 0),
    _row(66, "ListTransactions", "transactions.list_transactions", 0, 2),
    _row(68, "ConsumerGroupHeartbeat", "groups.consumer_group_heartbeat", 0, 1),
    _row(69, "ConsumerGroupDescribe", "groups.consumer_group_describe", 0, 1),
    _row(71, "GetTelemetrySubscriptions", "cluster.get_telemetry_subscriptions", 0, 0),
    _row(72, "PushTelemetry", "cluster.push_telemetry", 0, 0),
    _row(74, "ListConfigResources", "cluster.list_config_resources", 0, 1),
    _row(75, "DescribeTopicPartitions", "topics.describe_topic_partitions", 0, 0),
    _row(76, "ShareGroupHeartbeat", "shares.share_group_heartbeat", 1, 1),
    _row(77, "ShareGroupDescribe", "shares.share_group_describe", 1, 1),
    _row(78, "ShareFetch", "shares.share_fetch", 1, 2),
    _row(79, "ShareAcknowledge", "shares.share_acknowledge", 1, 2),
    _row(83, "InitializeShareGroupState", "shares.share_group_state", 0, 0),
    _row(84, "ReadShareGroupState", "shares.share_group_state", 0, 0),
    _row(85, "WriteShareGroupState", "shares.share_group_state", 0, 1),
    _row(86, "DeleteShareGroupState", "shares.share_group_state", 0, 0),
    _row(87, "ReadShareGroupStateSummary", "shares.share_group_state", 0, 1),
    _row(90, "DescribeShareGroupOffsets", "shares.describe_share_group_offsets", 0, 1),
    _row(91, "AlterShareGroupOffsets", "shares.alter_share_group_offsets", 0, 0),
    _row(92, "DeleteShareGroupOffsets", "shares.delete_share_group_offsets", 0, 0),
)

OWN_APIS: Final[tuple[Api, ...]] = (
    _row(30000, "ConnectedClients", "cluster.connected_clients", 0, 0),
    _row(30001, "ClientMetrics", "cluster.client_metrics", 0, 0),
    _row(30002, "DescribeDamage", "records.describe_damage", 0, 0),
)
"""Not part of Kafka: announced only to our own client."""

BY_KEY: Final[Mapping[int, Api]] = {api.key: api for api in (*APIS, *OWN_APIS)}
