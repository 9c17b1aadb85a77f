"""The catalogue of requests and responses: one module per API, imported when first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from barnabas.wire.schema import Message

CATALOGUE: Final[Mapping[int, tuple[str, str, int | None]]] = {
    0: ("Produce", "produce", 9),
    1: ("Fetch", "fetch", 12),
    2: ("ListOffsets", "list_offsets", 6),
    3: ("Metadata", "metadata", 9),
    8: ("OffsetCommit", "offset_commit", 8),
    9: ("OffsetFetch", "offset_fetch", 6),
    10: ("FindCoordinator", "find_coordinator", 3),
    11: ("JoinGroup", "join_group", 6),
    12: ("Heartbeat", "heartbeat", 4),
    13: ("LeaveGroup", "leave_group", 4),
    14: ("SyncGroup", "sync_group", 4),
    15: ("DescribeGroups", "describe_groups", 5),
    16: ("ListGroups", "list_groups", 3),
    17: ("SaslHandshake", "sasl_handshake", None),
    18: ("ApiVersions", "api_versions", 3),
    19: ("CreateTopics", "create_topics", 5),
    20: ("DeleteTopics", "delete_topics", 4),
    21: ("DeleteRecords", "delete_records", 2),
    22: ("InitProducerId", "init_producer_id", 2),
    23: ("OffsetForLeaderEpoch", "offset_for_leader_epoch", 4),
    24: ("AddPartitionsToTxn", "add_partitions_to_txn", 3),
    25: ("AddOffsetsToTxn", "add_offsets_to_txn", 3),
    26: ("EndTxn", "end_txn", 3),
    27: ("WriteTxnMarkers", "write_txn_markers", 1),
    28: ("TxnOffsetCommit", "txn_offset_commit", 3),
    29: ("DescribeAcls", "describe_acls", 2),
    30: ("CreateAcls", "create_acls", 2),
    31: ("DeleteAcls", "delete_acls", 2),
    32: ("DescribeConfigs", "describe_configs", 4),
    33: ("AlterConfigs", "alter_configs", 2),
    34: ("AlterReplicaLogDirs", "alter_replica_log_dirs", 2),
    35: ("DescribeLogDirs", "describe_log_dirs", 2),
    36: ("SaslAuthenticate", "sasl_authenticate", 2),
    37: ("CreatePartitions", "create_partitions", 2),
    38: ("CreateDelegationToken", "create_delegation_token", 2),
    39: ("RenewDelegationToken", "renew_delegation_token", 2),
    40: ("ExpireDelegationToken", "expire_delegation_token", 2),
    41: ("DescribeDelegationToken", "describe_delegation_token", 2),
    42: ("DeleteGroups", "delete_groups", 2),
    43: ("ElectLeaders", "elect_leaders", 2),
    44: ("IncrementalAlterConfigs", "incremental_alter_configs", 1),
    45: ("AlterPartitionReassignments", "alter_partition_reassignments", 0),
    46: ("ListPartitionReassignments", "list_partition_reassignments", 0),
    47: ("OffsetDelete", "offset_delete", None),
    48: ("DescribeClientQuotas", "describe_client_quotas", 1),
    49: ("AlterClientQuotas", "alter_client_quotas", 1),
    50: ("DescribeUserScramCredentials", "describe_user_scram_credentials", 0),
    51: ("AlterUserScramCredentials", "alter_user_scram_credentials", 0),
    55: ("DescribeQuorum", "describe_quorum", 0),
    57: ("UpdateFeatures", "update_features", 0),
    60: ("DescribeCluster", "describe_cluster", 0),
    61: ("DescribeProducers", "describe_producers", 0),
    64: ("UnregisterBroker", "unregister_broker", 0),
    65: ("DescribeTransactions", "describe_transactions", 0),
    66: ("ListTransactions", "list_transactions", 0),
    68: ("ConsumerGroupHeartbeat", "consumer_group_heartbeat", 0),
    69: ("ConsumerGroupDescribe", "consumer_group_describe", 0),
    71: ("GetTelemetrySubscriptions", "get_telemetry_subscriptions", 0),
    72: ("PushTelemetry", "push_telemetry", 0),
    74: ("ListConfigResources", "list_config_resources", 0),
    75: ("DescribeTopicPartitions", "describe_topic_partitions", 0),
    76: ("ShareGroupHeartbeat", "share_group_heartbeat", 0),
    77: ("ShareGroupDescribe", "share_group_describe", 0),
    78: ("ShareFetch", "share_fetch", 0),
    79: ("ShareAcknowledge", "share_acknowledge", 0),
    83: ("InitializeShareGroupState", "initialize_share_group_state", 0),
    84: ("ReadShareGroupState", "read_share_group_state", 0),
    85: ("WriteShareGroupState", "write_share_group_state", 0),
    86: ("DeleteShareGroupState", "delete_share_group_state", 0),
    87: ("ReadShareGroupStateSummary", "read_share_group_state_summary", 0),
    88: ("StreamsGroupHeartbeat", "streams_group_heartbeat", 0),
    89: ("StreamsGroupDescribe", "streams_group_describe", 0),
    90: ("DescribeShareGroupOffsets", "describe_share_group_offsets", 0),
    91: ("AlterShareGroupOffsets", "alter_share_group_offsets", 0),
    92: ("DeleteShareGroupOffsets", "delete_share_group_offsets", 0),
}
"""API key -> name, module, first flexible version (None: none). Left out are the APIs that only Kafka's
own controllers and ZooKeeper-era brokers speak."""


OWN: Final[Mapping[int, tuple[str, str, int | None]]] = {
    30000: ("ConnectedClients", "connected_clients", 0),
    30001: ("ClientMetrics", "client_metrics", 0),
    30002: ("DescribeDamage", "describe_damage", 0),
    30003: ("DescribeDeletedTopics", "topic_bin", 0),
    30004: ("RestoreTopic", "topic_bin", 0),
    30005: ("PurgeTopics", "topic_bin", 0),
    30006: ("AlterLink", "links", 0),
    30007: ("DescribeLinks", "links", 0),
    30008: ("FindKey", "find_key", 0),
}
"""APIs of our own, far from Kafka's keys, in the same form; announced to our own client only."""


def api_name(key: int) -> str:
    """The name of an API key; raises KeyError for one that is in neither catalogue."""
    return (CATALOGUE.get(key) or OWN[key])[0]


def request_class(key: int) -> type[Message]:
    """The request of an API key. Raises KeyError for a key outside the catalogue."""
    return _class(key, "Request")


def response_class(key: int) -> type[Message]:
    """The response of an API key. Raises KeyError for a key outside the catalogue."""
    return _class(key, "Response")


def message_class(name: str) -> type[Message]:
    """The class of a name such as "FetchRequest". Raises KeyError for an unknown one."""
    for api, module, _flexible in CATALOGUE.values():
        if name in (api + "Request", api + "Response"):
            cls: type[Message] = getattr(import_module(f"{__name__}.{module}"), name)
            return cls
    raise KeyError(name)


def _class(key: int, suffix: str) -> type[Message]:
    name, module, _flexible = CATALOGUE.get(key) or OWN[key]
    cls: type[Message] = getattr(import_module(f"{__name__}.{module}"), name + suffix)
    return cls
