"""Replicas: moving them between brokers, and elections of leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import Route, spread, to_controller
from barnabas.admin.values import NodeId, TopicPartition, by_topic, values_by_topic
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError, UnsupportedByBroker
from barnabas.wire.messages import alter_partition_reassignments as wire_alter
from barnabas.wire.messages import elect_leaders as wire_elect
from barnabas.wire.messages import list_partition_reassignments as wire_list

PARTITIONS_BATCH: Final = 2_000


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A move under way. replicas: all that the partition has now, with those that are added and removed."""

    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]


class Election(IntEnum):
    """Which leader; the numbers are the protocol's. UNCLEAN may lose records: it takes a replica that is not in sync."""

    PREFERRED = 0
    UNCLEAN = 1


class AsyncReplicas:
    """`AsyncAdmin.replicas`."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def reassign(
        self,
        moves: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_change: bool = True,
        timeout_s: float = 60.0,
    ) -> Results[TopicPartition, None]:
        """Start moving each partition to these brokers, the preferred leader first; None cancels a move. Since Kafka 2.4.

        allow_replication_change: False refuses another number of replicas, where the broker can (since Kafka 4.1).
        """
        wanted = {TopicPartition(*key): value for key, value in moves.items()}

        async def ask(
            connection: AsyncConnection, batch: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, ClientError | None]:
            topics = [
                wire_alter.ReassignableTopic(
                    name=name,
                    partitions=[
                        wire_alter.ReassignablePartition(
                            partition_index=number, replicas=None if brokers is None else list(brokers)
                        )
                        for number, brokers in rows.items()
                    ],
                )
                for name, rows in values_by_topic({key: wanted[key] for key in batch}).items()
            ]
            request = wire_alter.AlterPartitionReassignmentsRequest(
                topics=topics, timeout_ms=int(timeout_s * 1000)
            )
            if connection.version_for(wire_alter.AlterPartitionReassignmentsRequest) >= 1:
                request.allow_replication_factor_change = allow_replication_change
            answer = await connection.call(request, wire_alter.AlterPartitionReassignmentsResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "reassign", "partitions", answer.error_message)
            return {
                key: ResourceError(row.error_code, "reassign", f"partition {key}", row.error_message)
                if row.error_code
                else None
                for topic in answer.responses
                for row in topic.partitions
                for key in [TopicPartition(topic.name, row.partition_index)]
            }

        route: Route[TopicPartition] = to_controller(self._cluster)
        return await spread(self._cluster, wanted, route, ask, batch=PARTITIONS_BATCH)

    async def reassignments(
        self, partitions: Iterable[tuple[str, int]] | None = None, *, timeout_s: float = 60.0
    ) -> Mapping[TopicPartition, Reassignment]:
        """The moves under way of these partitions (None: of all). Raises ResourceError."""
        topics = (
            None
            if partitions is None
            else [
                wire_list.ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(partitions).items()
            ]
        )

        async def ask() -> Mapping[TopicPartition, Reassignment]:
            connection = await self._cluster.node(await self._cluster.controller())
            request = wire_list.ListPartitionReassignmentsRequest(
                topics=topics, timeout_ms=int(timeout_s * 1000)
            )
            answer = await connection.call(request, wire_list.ListPartitionReassignmentsResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "list", "reassignments", answer.error_message)
            return {
                TopicPartition(topic.name, row.partition_index): Reassignment(
                    tuple(map(NodeId, row.replicas)),
                    tuple(map(NodeId, row.adding_replicas)),
                    tuple(map(NodeId, row.removing_replicas)),
                )
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self._cluster.retry(ask)

    async def elect(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        election: Election = Election.PREFERRED,
        timeout_s: float = 60.0,
    ) -> Results[TopicPartition, None]:
        """Elect leaders of these partitions (None: of all that need it). Since Kafka 2.2, UNCLEAN since 2.4.

        A partition whose leader is the right one already fails with ELECTION_NOT_NEEDED.
        """

        async def ask(
            connection: AsyncConnection, batch: Sequence[TopicPartition] | None
        ) -> Mapping[TopicPartition, ClientError | None]:
            kinds = connection.version_for(wire_elect.ElectLeadersRequest) >= 1
            if election is Election.UNCLEAN and not kinds:
                raise UnsupportedByBroker(
                    f"{connection.address} elects preferred leaders only (before Kafka 2.4)", "ElectLeaders"
                )
            rows = (
                None
                if batch is None
                else [
                    wire_elect.TopicPartitions(topic=name, partitions=numbers)
                    for name, numbers in by_topic(batch).items()
                ]
            )
            request = wire_elect.ElectLeadersRequest(
                election_type=election, topic_partitions=rows, timeout_ms=int(timeout_s * 1000)
            )
            answer = await connection.call(request, wire_elect.ElectLeadersResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "elect leaders of", "partitions")
            return {
                key: ResourceError(row.error_code, "elect a leader of", f"partition {key}", row.error_message)
                if row.error_code
                else None
                for topic in answer.replica_election_results
                for row in topic.partition_result
                for key in [TopicPartition(topic.topic, row.partition_id)]
            }

        if partitions is not None:
            keys = [TopicPartition(*key) for key in partitions]
            route: Route[TopicPartition] = to_controller(self._cluster)
            return await spread(self._cluster, keys, route, ask, batch=PARTITIONS_BATCH)

        async def ask_all() -> Mapping[TopicPartition, ClientError | None]:
            return await ask(await self._cluster.node(await self._cluster.controller()), None)

        outcomes = await self._cluster.retry(ask_all)
        return Results(
            {key: None for key, outcome in outcomes.items() if outcome is None},
            {key: outcome for key, outcome in outcomes.items() if outcome is not None},
        )


class Replicas(Family[AsyncReplicas]):
    """`Admin.replicas`."""

    reassign = blocking(AsyncReplicas.reassign)
    reassignments = blocking(AsyncReplicas.reassignments)
    elect = blocking(AsyncReplicas.elect)
