"""The table of the APIs that the broker serves: one row each, with the versions, the handler and the rights.

Dispatch, ApiVersions, authorization, the documentation and the tests read this table. The versions are those that are
announced, which may be fewer than `wire.messages` can read. rights.py explains the rights; their source is KafkaApis.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Final, NamedTuple

from barnabas.broker.api.rights import OPEN, Asked, Each, Right, Whole
from barnabas.wire.header import Encoded
from barnabas.wire.messages import request_class, response_class
from barnabas.wire.schema import Message

Answer = Message | Encoded | None
"""None: the client wants no response (Produce with acks=0)."""
Handler = Callable[[Any, Any], Answer | Awaitable[Answer]]
"""(context, request) -> the answer, or an awaitable of it."""


class Older(NamedTuple):
    """Versions below `below` have a handler of their own."""

    below: int
    handler: Handler


@dataclass(frozen=True)
class Api:
    """One row of the table."""

    key: int
    name: str
    versions: range
    handler: Handler
    rights: tuple[Right, ...]
    older: Older | None = None

    def handler_of(self, version: int) -> Handler:
        """The handler of a version."""
        if self.older is not None and version < self.older.below:
            return self.older.handler
        return self.handler

    @cached_property
    def request(self) -> type[Message]:
        return request_class(self.key)

    @cached_property
    def response(self) -> type[Message]:
        return response_class(self.key)


def versions(low: int, high: int) -> range:
    """All versions from `low` to `high`."""
    return range(low, high + 1)


class HandledBy:
    """`handle` of a module in handlers/, which is imported when its first request comes.

    Importing all of them would take a fifth of the time in which a broker starts.
    """

    __slots__ = ("_handle", "module")

    def __init__(self, module: str) -> None:
        self.module = module
        self._handle: Handler | None = None

    def __call__(self, context: Any, request: Any) -> Answer | Awaitable[Answer]:
        handle = self._handle or self.load()
        return handle(context, request)

    def load(self) -> Handler:
        """Import the module."""
        handle: Handler = import_module(f"barnabas.broker.api.handlers.{self.module}").handle
        self._handle = handle
        return handle


DESCRIBE_TOPIC: Final = Asked("DESCRIBE", "TOPIC")
CLUSTER_ACTION: Final = Asked("CLUSTER_ACTION", "CLUSTER")
DESCRIBE_CLUSTER: Final = Whole("DESCRIBE", "CLUSTER")
ALTER_CLUSTER: Final = Whole("ALTER", "CLUSTER")
READ_GROUP: Final = Whole("READ", "GROUP", "group_id")
WRITE_TRANSACTION: Final = Whole("WRITE", "TRANSACTIONAL_ID", "transactional_id")
PARTITIONS: Final = ("partitions", "partitions")

# fmt: off
APIS: Final[tuple[Api, ...]] = (
    Api(0, "Produce", versions(0, 13), HandledBy("records.produce"),
        (
            WRITE_TRANSACTION,
            Each("WRITE", "TOPIC", "topic_data", "responses", ("partition_data", "partition_responses")),
        ), older=Older(3, HandledBy("records.legacy_produce"))),
    Api(1, "Fetch", versions(0, 18), HandledBy("records.fetch"),
        (Asked("READ", "TOPIC"), CLUSTER_ACTION), older=Older(4, HandledBy("records.legacy_fetch"))),
    Api(2, "ListOffsets", versions(0, 11), HandledBy("records.list_offsets"),
        (
            Each("DESCRIBE", "TOPIC", "topics", "topics", PARTITIONS),
        ), older=Older(1, HandledBy("records.legacy_list_offsets"))),
    Api(3, "Metadata", versions(0, 13), HandledBy("topics.metadata"), (DESCRIBE_TOPIC, Asked("CREATE", "TOPIC"))),
    Api(8, "OffsetCommit", versions(0, 10), HandledBy("groups.offset_commit"),
        (READ_GROUP, Each("READ", "TOPIC", "topics", "topics", PARTITIONS))),
    Api(9, "OffsetFetch", versions(0, 10), HandledBy("groups.offset_fetch"),
        (
            Whole("DESCRIBE", "GROUP", "group_id"),
            Each("DESCRIBE", "GROUP", "groups", "groups"),
            Each("DESCRIBE", "TOPIC", "topics", "topics", ("partition_indexes", "partitions")),
            DESCRIBE_TOPIC,
        )),
    Api(10, "FindCoordinator", versions(0, 6), HandledBy("groups.find_coordinator"),
        (Asked("DESCRIBE", "GROUP"), Asked("DESCRIBE", "TRANSACTIONAL_ID"), CLUSTER_ACTION)),
    Api(11, "JoinGroup", versions(0, 9), HandledBy("groups.join_group"), (READ_GROUP,)),
    Api(12, "Heartbeat", versions(0, 4), HandledBy("groups.heartbeat"), (READ_GROUP,)),
    Api(13, "LeaveGroup", versions(0, 5), HandledBy("groups.leave_group"), (READ_GROUP,)),
    Api(14, "SyncGroup", versions(0, 5), HandledBy("groups.sync_group"), (READ_GROUP,)),
    Api(15, "DescribeGroups", versions(0, 6), HandledBy("groups.describe_groups"),
        (Each("DESCRIBE", "GROUP", "groups", "groups"),)),
    Api(16, "ListGroups", versions(0, 5), HandledBy("groups.list_groups"),
        (Asked("DESCRIBE", "CLUSTER"), Asked("DESCRIBE", "GROUP"))),
    Api(17, "SaslHandshake", versions(0, 1), HandledBy("security.sasl_handshake"), OPEN),
    Api(18, "ApiVersions", versions(0, 4), HandledBy("clients.api_versions"), OPEN),
    Api(19, "CreateTopics", versions(0, 7), HandledBy("topics.create_topics"),
        (Each("CREATE", "TOPIC", "topics", "topics", or_cluster="CREATE"), Asked("DESCRIBE_CONFIGS", "TOPIC"))),
    Api(20, "DeleteTopics", versions(0, 6), HandledBy("topics.delete_topics"),
        (Each("DELETE", "TOPIC", "topics", "responses"), Each("DELETE", "TOPIC", "topic_names", "responses"))),
    Api(21, "DeleteRecords", versions(0, 2), HandledBy("records.delete_records"),
        (Each("DELETE", "TOPIC", "topics", "topics", PARTITIONS),)),
    Api(22, "InitProducerId", versions(0, 5), HandledBy("records.init_producer_id"),
        (WRITE_TRANSACTION, Asked("IDEMPOTENT_WRITE", "CLUSTER"), Asked("WRITE", "TOPIC"))),
    Api(23, "OffsetForLeaderEpoch", versions(0, 4), HandledBy("records.offset_for_leader_epoch"),
        (Each("DESCRIBE", "TOPIC", "topics", "topics", PARTITIONS, or_cluster="CLUSTER_ACTION"),)),
    Api(24, "AddPartitionsToTxn", versions(0, 5), HandledBy("transactions.add_partitions_to_txn"),
        (
            Whole("WRITE", "TRANSACTIONAL_ID", "v3_and_below_transactional_id"),
            Each("WRITE", "TOPIC", "v3_and_below_topics", "results_by_topic_v3_and_below",
                 ("partitions", "results_by_partition"), together=True),
            CLUSTER_ACTION,
        )),
    Api(25, "AddOffsetsToTxn", versions(0, 4), HandledBy("transactions.add_offsets_to_txn"),
        (WRITE_TRANSACTION, READ_GROUP)),
    Api(26, "EndTxn", versions(0, 5), HandledBy("transactions.end_txn"), (WRITE_TRANSACTION,)),
    Api(27, "WriteTxnMarkers", versions(0, 2), HandledBy("transactions.write_txn_markers"),
        (CLUSTER_ACTION,)),  # or ALTER (KIP-1037)
    Api(28, "TxnOffsetCommit", versions(0, 5), HandledBy("transactions.txn_offset_commit"),
        (WRITE_TRANSACTION, READ_GROUP, Each("READ", "TOPIC", "topics", "topics", PARTITIONS))),
    Api(29, "DescribeAcls", versions(0, 3), HandledBy("security.describe_acls"), (DESCRIBE_CLUSTER,)),
    Api(30, "CreateAcls", versions(0, 3), HandledBy("security.create_acls"), (Asked("ALTER", "CLUSTER"),)),
    Api(31, "DeleteAcls", versions(0, 3), HandledBy("security.delete_acls"), (Asked("ALTER", "CLUSTER"),)),
    Api(32, "DescribeConfigs", versions(0, 4), HandledBy("configs.describe_configs"),
        (Each("DESCRIBE_CONFIGS", "CONFIG", "resources", "results"),)),
    Api(33, "AlterConfigs", versions(0, 2), HandledBy("configs.alter_configs"),
        (Each("ALTER_CONFIGS", "CONFIG", "resources", "responses"),)),
    Api(34, "AlterReplicaLogDirs", versions(0, 2), HandledBy("cluster.alter_replica_log_dirs"),
        (Asked("ALTER", "CLUSTER"),)),
    Api(35, "DescribeLogDirs", versions(0, 5), HandledBy("cluster.describe_log_dirs"), (Asked("DESCRIBE", "CLUSTER"),)),
    Api(36, "SaslAuthenticate", versions(0, 2), HandledBy("security.sasl_authenticate"), OPEN),
    Api(37, "CreatePartitions", versions(0, 3), HandledBy("topics.create_partitions"),
        (Each("ALTER", "TOPIC", "topics", "results"),)),
    Api(38, "CreateDelegationToken", versions(0, 3), HandledBy("security.create_delegation_token"),
        (Asked("CREATE_TOKENS", "USER"),)),
    Api(39, "RenewDelegationToken", versions(0, 2), HandledBy("security.renew_delegation_token"),
        OPEN),  # to a token's owner and renewers
    Api(40, "ExpireDelegationToken", versions(0, 2), HandledBy("security.expire_delegation_token"), OPEN),  # the same
    Api(41, "DescribeDelegationToken", versions(0, 3), HandledBy("security.describe_delegation_token"),
        (Asked("DESCRIBE", "DELEGATION_TOKEN"), Asked("DESCRIBE_TOKENS", "USER"))),
    Api(42, "DeleteGroups", versions(0, 2), HandledBy("groups.delete_groups"),
        (Each("DELETE", "GROUP", "groups_names", "results"),)),
    Api(43, "ElectLeaders", versions(0, 2), HandledBy("topics.elect_leaders"), (Asked("ALTER", "CLUSTER"),)),
    Api(44, "IncrementalAlterConfigs", versions(0, 1), HandledBy("configs.incremental_alter_configs"),
        (Each("ALTER_CONFIGS", "CONFIG", "resources", "responses"),)),
    Api(45, "AlterPartitionReassignments", versions(0, 1), HandledBy("topics.alter_partition_reassignments"),
        (ALTER_CLUSTER,)),
    Api(46, "ListPartitionReassignments", versions(0, 0), HandledBy("topics.list_partition_reassignments"),
        (DESCRIBE_CLUSTER,)),
    Api(47, "OffsetDelete", versions(0, 0), HandledBy("groups.offset_delete"),
        (Whole("DELETE", "GROUP", "group_id"), Each("READ", "TOPIC", "topics", "topics", PARTITIONS))),
    Api(48, "DescribeClientQuotas", versions(0, 1), HandledBy("configs.describe_client_quotas"),
        (Whole("DESCRIBE_CONFIGS", "CLUSTER"),)),
    Api(49, "AlterClientQuotas", versions(0, 1), HandledBy("configs.alter_client_quotas"),
        (Asked("ALTER_CONFIGS", "CLUSTER"),)),
    Api(50, "DescribeUserScramCredentials", versions(0, 0), HandledBy("security.describe_user_scram_credentials"),
        (DESCRIBE_CLUSTER,)),
    Api(51, "AlterUserScramCredentials", versions(0, 0), HandledBy("security.alter_user_scram_credentials"),
        (Asked("ALTER", "CLUSTER"),)),
    Api(55, "DescribeQuorum", versions(0, 2), HandledBy("cluster.describe_quorum"), (DESCRIBE_CLUSTER,)),
    Api(60, "DescribeCluster", versions(0, 2), HandledBy("cluster.describe_cluster"), OPEN),
    Api(61, "DescribeProducers", versions(0, 0), HandledBy("records.describe_producers"),
        (Each("READ", "TOPIC", "topics", "topics", ("partition_indexes", "partitions")),)),
    Api(65, "DescribeTransactions", versions(0, 0), HandledBy("transactions.describe_transactions"),
        (Each("DESCRIBE", "TRANSACTIONAL_ID", "transactional_ids", "transaction_states"), DESCRIBE_TOPIC)),
    Api(66, "ListTransactions", versions(0, 2), HandledBy("transactions.list_transactions"),
        (Asked("DESCRIBE", "TRANSACTIONAL_ID"),)),
    Api(68, "ConsumerGroupHeartbeat", versions(0, 1), HandledBy("groups.consumer_group_heartbeat"),
        (READ_GROUP, DESCRIBE_TOPIC)),
    Api(69, "ConsumerGroupDescribe", versions(0, 1), HandledBy("groups.consumer_group_describe"),
        (Each("DESCRIBE", "GROUP", "group_ids", "groups"), DESCRIBE_TOPIC)),
    Api(71, "GetTelemetrySubscriptions", versions(0, 0), HandledBy("clients.get_telemetry_subscriptions"), OPEN),
    Api(72, "PushTelemetry", versions(0, 0), HandledBy("clients.push_telemetry"), OPEN),
    Api(74, "ListConfigResources", versions(0, 1), HandledBy("configs.list_config_resources"),
        (Whole("DESCRIBE_CONFIGS", "CLUSTER"),)),
    Api(75, "DescribeTopicPartitions", versions(0, 0), HandledBy("topics.describe_topic_partitions"),
        (DESCRIBE_TOPIC,)),
    Api(76, "ShareGroupHeartbeat", versions(1, 1), HandledBy("shares.share_group_heartbeat"),
        (READ_GROUP, DESCRIBE_TOPIC)),
    Api(77, "ShareGroupDescribe", versions(1, 1), HandledBy("shares.share_group_describe"),
        (Each("DESCRIBE", "GROUP", "group_ids", "groups"), DESCRIBE_TOPIC)),
    Api(78, "ShareFetch", versions(1, 2), HandledBy("shares.share_fetch"),
        (READ_GROUP, Each("READ", "TOPIC", "topics", "responses", PARTITIONS))),
    Api(79, "ShareAcknowledge", versions(1, 2), HandledBy("shares.share_acknowledge"),
        (READ_GROUP, Each("READ", "TOPIC", "topics", "responses", PARTITIONS))),
    Api(83, "InitializeShareGroupState", versions(0, 0), HandledBy("shares.share_group_state"), (CLUSTER_ACTION,)),
    Api(84, "ReadShareGroupState", versions(0, 0), HandledBy("shares.share_group_state"), (CLUSTER_ACTION,)),
    Api(85, "WriteShareGroupState", versions(0, 1), HandledBy("shares.share_group_state"), (CLUSTER_ACTION,)),
    Api(86, "DeleteShareGroupState", versions(0, 0), HandledBy("shares.share_group_state"), (CLUSTER_ACTION,)),
    Api(87, "ReadShareGroupStateSummary", versions(0, 1), HandledBy("shares.share_group_state"), (CLUSTER_ACTION,)),
    Api(88, "StreamsGroupHeartbeat", versions(0, 0), HandledBy("groups.streams_group_heartbeat"),
        (READ_GROUP, DESCRIBE_TOPIC, Asked("CREATE", "TOPIC"))),
    Api(89, "StreamsGroupDescribe", versions(0, 0), HandledBy("groups.streams_group_describe"),
        (Each("DESCRIBE", "GROUP", "group_ids", "groups"), DESCRIBE_TOPIC)),
    Api(90, "DescribeShareGroupOffsets", versions(0, 1), HandledBy("shares.describe_share_group_offsets"),
        (Each("DESCRIBE", "GROUP", "groups", "groups"), DESCRIBE_TOPIC)),
    Api(91, "AlterShareGroupOffsets", versions(0, 0), HandledBy("shares.alter_share_group_offsets"),
        (READ_GROUP, Each("READ", "TOPIC", "topics", "responses", PARTITIONS))),
    Api(92, "DeleteShareGroupOffsets", versions(0, 0), HandledBy("shares.delete_share_group_offsets"),
        (Whole("DELETE", "GROUP", "group_id"), Each("READ", "TOPIC", "topics", "responses"))),
)

OWN_APIS: Final[tuple[Api, ...]] = (
    Api(30000, "ConnectedClients", versions(0, 1), HandledBy("clients.connected_clients"), (DESCRIBE_CLUSTER,)),
    Api(30001, "ClientMetrics", versions(0, 0), HandledBy("clients.client_metrics"), (DESCRIBE_CLUSTER,)),
    Api(30002, "DescribeDamage", versions(0, 0), HandledBy("records.describe_damage"), (DESCRIBE_CLUSTER,)),
    Api(30003, "DescribeDeletedTopics", versions(0, 0), HandledBy("topics.describe_deleted_topics"), (DESCRIBE_TOPIC,)),
    Api(30004, "RestoreTopic", versions(0, 0), HandledBy("topics.restore_topic"),
        (Asked("CREATE", "TOPIC"), Asked("DELETE", "TOPIC"))),
    Api(30005, "PurgeTopics", versions(0, 0), HandledBy("topics.purge_topics"), (Asked("DELETE", "TOPIC"),)),
    Api(30006, "AlterLink", versions(0, 0), HandledBy("links.alter_link"), (ALTER_CLUSTER,)),
    Api(30007, "DescribeLinks", versions(0, 0), HandledBy("links.describe_links"), (DESCRIBE_CLUSTER,)),
    Api(30008, "FindKey", versions(0, 0), HandledBy("records.find_key"), (Whole("READ", "TOPIC", "topic"),)),
)
"""Not part of Kafka: announced only to our own client."""
# fmt: on

BY_KEY: Final[Mapping[int, Api]] = {api.key: api for api in (*APIS, *OWN_APIS)}
