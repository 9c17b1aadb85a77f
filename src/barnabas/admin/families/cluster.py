"""The cluster itself: its brokers and controller, features, metadata quorum, and brokers that have left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final
from uuid import UUID

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import each_node, spread, to_controller
from barnabas.admin.values import Broker, LeaderEpoch, NodeId, Offset, Operation, TimestampMs, rights_of
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError, UnsupportedByBroker
from barnabas.wire.messages import api_versions as wire_versions
from barnabas.wire.messages import describe_cluster as wire_cluster
from barnabas.wire.messages import describe_quorum as wire_quorum
from barnabas.wire.messages import update_features as wire_features
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

METADATA_TOPIC: Final = "__cluster_metadata"
FENCED_VERSION: Final = 2
ENDPOINT_VERSION: Final = 1
BROKERS: Final = 1
CONTROLLERS: Final = 2
UPGRADE_TYPE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ClusterView:
    """controller: NO_NODE if there is none. rights: what the caller may do with the cluster; None if not asked for."""

    id: str | None
    controller: NodeId
    brokers: tuple[Broker, ...]
    rights: frozenset[Operation] | None = None


@dataclass(frozen=True, slots=True)
class Feature:
    """The levels of a feature that the broker supports, and the one in force, 0 if none is."""

    name: str
    level_min: int
    level_max: int
    level: int


@dataclass(frozen=True, slots=True)
class Features:
    """Features by name. epoch: counts their changes; None if the broker does not say."""

    features: Mapping[str, Feature]
    epoch: int | None


class UpgradeKind(IntEnum):
    """How a level may change; the numbers are the protocol's. UNSAFE_DOWNGRADE may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """One voter or observer. Times: None if it has not fetched, or the broker does not say."""

    id: NodeId
    log_end_offset: Offset
    last_fetch_ms: TimestampMs | None
    last_caught_up_ms: TimestampMs | None
    directory_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum that keeps the metadata of a KRaft cluster. endpoints: where its controllers listen (`NAME://host:port`);
    none where the broker does not say (before Kafka 3.9)."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    high_watermark: Offset
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[NodeId, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ApiRange:
    """The versions of one API that a broker serves."""

    key: int
    version_min: int
    version_max: int


class AsyncClusterAdmin:
    """`AsyncAdmin.cluster`."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def describe(
        self, *, rights: bool = False, fenced: bool = False, controllers: bool = False
    ) -> ClusterView:
        """The cluster's id, controller and brokers. fenced: brokers that are registered, but not live, as well.

        controllers: those of a KRaft cluster in place of its brokers; ask one of them. Raises UnsupportedByBroker if the
        server cannot tell (before Kafka 3.7).
        """

        async def ask() -> ClusterView:
            connection = await self._cluster.any()
            known = connection.serves(wire_cluster.DescribeClusterRequest)
            if not known and not controllers:
                await self._cluster.refresh()
                brokers = [
                    Broker(NodeId(node.id), node.host, node.port, node.rack)
                    for _, node in sorted(self._cluster.nodes.items())
                ]
                controller = NodeId(self._cluster.controller_id)
                return ClusterView(self._cluster.cluster_id, controller, tuple(brokers))
            version = connection.version_for(wire_cluster.DescribeClusterRequest)
            if controllers and version < ENDPOINT_VERSION:
                raise UnsupportedByBroker(
                    f"{connection.address} does not list controllers", "DescribeCluster"
                )
            request = wire_cluster.DescribeClusterRequest(
                endpoint_type=CONTROLLERS if controllers else BROKERS,
                include_cluster_authorized_operations=rights,
                include_fenced_brokers=fenced and version >= FENCED_VERSION,
            )
            answer = await connection.call(request, wire_cluster.DescribeClusterResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "describe", "the cluster", answer.error_message)
            brokers = [
                Broker(NodeId(row.broker_id), row.host, row.port, row.rack, row.is_fenced)
                for row in sorted(answer.brokers, key=lambda row: int(row.broker_id))
            ]
            return ClusterView(
                answer.cluster_id,
                NodeId(answer.controller_id),
                tuple(brokers),
                rights_of(answer.cluster_authorized_operations),
            )

        return await self._cluster.retry(ask)

    async def api_versions(self) -> Results[NodeId, Sequence[ApiRange]]:
        """What each broker serves, by broker."""

        async def ask(connection: AsyncConnection) -> Sequence[ApiRange]:
            return [ApiRange(key, *versions) for key, versions in sorted(connection.versions.items())]

        return await each_node(self._cluster, None, ask)

    async def features(self) -> Features:
        """The features that a broker supports, with the levels in force."""

        async def ask() -> Features:
            connection = await self._cluster.any()
            request = wire_versions.ApiVersionsRequest(
                client_software_name="barnabas", client_software_version="0"
            )
            answer = await connection.call(request, wire_versions.ApiVersionsResponse)
            levels = {row.name: row.max_version_level for row in answer.finalized_features}
            epoch = answer.finalized_features_epoch
            features = {
                row.name: Feature(row.name, row.min_version, row.max_version, levels.get(row.name, 0))
                for row in sorted(answer.supported_features, key=lambda row: str(row.name))
            }
            return Features(features, epoch if epoch >= 0 else None)

        return await self._cluster.retry(ask)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        kind: UpgradeKind = UpgradeKind.UPGRADE,
        validate_only: bool = False,
        timeout_s: float = 60.0,
    ) -> Results[str, None]:
        """Bring features to these levels; 0 disables one. Newer brokers change all of them or none."""

        async def ask(connection: AsyncConnection, batch: Sequence[str]) -> Mapping[str, ClientError | None]:
            typed = connection.version_for(wire_features.UpdateFeaturesRequest) >= UPGRADE_TYPE_VERSION
            if validate_only and not typed:  # it would change them
                raise UnsupportedByBroker(
                    f"{connection.address} cannot check a change of features alone (before Kafka 3.3)",
                    "UpdateFeatures",
                )
            rows = [
                wire_features.FeatureUpdateKey(
                    feature=name, max_version_level=levels[name], upgrade_type=int(kind)
                )
                if typed
                else wire_features.FeatureUpdateKey(
                    feature=name,
                    max_version_level=levels[name],
                    allow_downgrade=kind is not UpgradeKind.UPGRADE,
                )
                for name in batch
            ]
            request = wire_features.UpdateFeaturesRequest(
                feature_updates=rows,
                validate_only=validate_only,
                timeout_ms=int(timeout_s * 1000),
            )
            answer = await connection.call(request, wire_features.UpdateFeaturesResponse)
            if answer.error_code:
                return {
                    name: ResourceError(answer.error_code, "change", f"feature {name}", answer.error_message)
                    for name in batch
                }
            outcomes: dict[str, ClientError | None] = dict.fromkeys(batch)
            for row in answer.results:
                if row.error_code:
                    outcomes[row.feature] = ResourceError(
                        row.error_code, "change", f"feature {row.feature}", row.error_message
                    )
            return outcomes

        return await spread(
            self._cluster, levels, to_controller(self._cluster), ask, batch=max(len(levels), 1)
        )

    async def quorum(self) -> Quorum:
        """The state of a KRaft cluster's metadata quorum. Raises UnsupportedByBroker where there is none."""

        async def ask() -> Quorum:
            connection = await self._cluster.any()
            topic = wire_quorum.TopicData(
                topic_name=METADATA_TOPIC, partitions=[wire_quorum.PartitionData(partition_index=0)]
            )
            answer = await connection.call(
                wire_quorum.DescribeQuorumRequest(topics=[topic]), wire_quorum.DescribeQuorumResponse
            )
            if answer.error_code:
                raise ResourceError(answer.error_code, "describe", "the quorum", answer.error_message)
            row = answer.topics[0].partitions[0]
            if row.error_code:
                raise ResourceError(row.error_code, "describe", "the quorum", row.error_message)
            return Quorum(
                NodeId(row.leader_id),
                LeaderEpoch(row.leader_epoch),
                Offset(row.high_watermark),
                tuple(_replica(voter) for voter in row.current_voters),
                tuple(_replica(observer) for observer in row.observers),
                {
                    NodeId(node.node_id): tuple(
                        f"{listener.name}://{listener.host}:{listener.port}" for listener in node.listeners
                    )
                    for node in answer.nodes
                },
            )

        return await self._cluster.retry(ask)

    async def unregister(self, node_id: int) -> None:
        """Make the cluster forget a broker that has left for good. Raises ResourceError, UnsupportedByBroker."""

        async def ask() -> None:
            connection = await self._cluster.node(await self._cluster.controller())
            answer = await connection.call(
                UnregisterBrokerRequest(broker_id=node_id), UnregisterBrokerResponse
            )
            if answer.error_code:
                raise ResourceError(
                    answer.error_code, "unregister", f"broker {node_id}", answer.error_message
                )

        await self._cluster.retry(ask)


class ClusterAdmin(Family[AsyncClusterAdmin]):
    """`Admin.cluster`."""

    describe = blocking(AsyncClusterAdmin.describe)
    api_versions = blocking(AsyncClusterAdmin.api_versions)
    features = blocking(AsyncClusterAdmin.features)
    update_features = blocking(AsyncClusterAdmin.update_features)
    quorum = blocking(AsyncClusterAdmin.quorum)
    unregister = blocking(AsyncClusterAdmin.unregister)


def _replica(row: wire_quorum.ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        NodeId(row.replica_id),
        Offset(row.log_end_offset),
        TimestampMs(row.last_fetch_timestamp) if row.last_fetch_timestamp >= 0 else None,
        TimestampMs(row.last_caught_up_timestamp) if row.last_caught_up_timestamp >= 0 else None,
        row.replica_directory_id if row.replica_directory_id.int else None,
    )
