"""Topics: list, describe, create, delete, add partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import spread, to_any, to_controller
from barnabas.admin.values import NO_NODE, LeaderEpoch, NodeId, Operation, rights_of
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import BrokerUnavailable, ClientError
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import create_partitions as wire_partitions
from barnabas.wire.messages import create_topics as wire_create
from barnabas.wire.messages import delete_topics as wire_delete
from barnabas.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

DEFAULT: Final = -1
"""As a number of partitions or replicas: what the broker's options say."""
BY_ID_VERSION: Final = 6
DEFAULTS_VERSION: Final = 4
READY_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. partitions, replication: DEFAULT for what the broker's options say. replicas: the brokers of each
    partition in place of both, the preferred leader first."""

    name: str
    partitions: int = DEFAULT
    replication: int = DEFAULT
    configs: Mapping[str, str | None] = field(default_factory=dict)
    replicas: Sequence[Sequence[int]] = ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """What a new topic got. id, partitions, replication and configs: None where the broker is too old to say, or the caller
    may not describe configs."""

    name: str
    id: UUID | None = None
    partitions: int | None = None
    replication: int | None = None
    configs: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. leader: NO_NODE if it has none. offline: replicas whose broker or log dir is away."""

    number: int
    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    in_sync: tuple[NodeId, ...]
    offline: tuple[NodeId, ...] = ()

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)

    @property
    def preferred_leader(self) -> NodeId:
        return self.replicas[0] if self.replicas else NO_NODE


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its partitions in order. id: None where the broker knows no topic ids. rights: what the caller may do;
    None if not asked for."""

    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[Partition, ...]
    rights: frozenset[Operation] | None = None

    @property
    def replication(self) -> int:
        """The replicas of the partition that has most."""
        return max((len(partition.replicas) for partition in self.partitions), default=0)


class AsyncTopics:
    """`AsyncAdmin.topics`."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def list(self, *, internal: bool = True, rights: bool = False) -> Mapping[str, Topic]:
        """All topics that the caller may see, by name in order, with their partitions.

        internal: those of the brokers as well. One request, whatever the number of topics.
        """
        answer: MetadataResponse = await self._cluster.retry(
            lambda: self._cluster.metadata(None, rights=rights)
        )
        topics = [topic_of(row) for row in answer.topics if row.error_code == 0 and row.name is not None]
        topics.sort(key=lambda topic: topic.name)
        return {topic.name: topic for topic in topics if internal or not topic.is_internal}

    async def describe(self, names: Iterable[str], *, rights: bool = False) -> Results[str, Topic]:
        """The partitions of these topics, with their leaders and replicas."""

        async def ask(_: AsyncConnection, batch: Sequence[str]) -> Mapping[str, Topic | ClientError]:
            answer = await self._cluster.metadata(batch, rights=rights)
            return {row.name: _described(row) for row in answer.topics if row.name is not None}

        return await spread(self._cluster, names, to_any(self._cluster), ask)

    async def create(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        wait: bool = True,
        timeout_s: float = 30.0,
    ) -> Results[str, CreatedTopic]:
        """Create topics. validate_only: let the broker check the request, and create nothing.

        wait: return only when a broker knows a leader for every partition: the controller answers before all brokers know
        the topic. timeout_s: how long the controller may take.
        """
        by_name = {topic.name: topic for topic in topics}
        lost: set[str] = set()

        async def ask(
            connection: AsyncConnection, batch: Sequence[str]
        ) -> Mapping[str, CreatedTopic | ClientError]:
            version = connection.version_for(wire_create.CreateTopicsRequest)
            request = wire_create.CreateTopicsRequest(
                topics=[_creatable(by_name[name], version) for name in batch],
                timeout_ms=int(timeout_s * 1000),
                validate_only=validate_only,
            )
            try:
                answer = await connection.call(request, wire_create.CreateTopicsResponse)
            except BrokerUnavailable:
                lost.update(batch)
                raise
            return {row.name: _created(row, lost) for row in answer.topics}

        results = await spread(self._cluster, by_name, to_controller(self._cluster), ask)
        if wait and not validate_only:
            await self._await_leaders(list(results.done))
        return results

    async def delete(
        self, topics: Iterable[str | UUID], *, timeout_s: float = 30.0
    ) -> Results[str | UUID, None]:
        """Delete topics, given by name or (since Kafka 2.8) by id, with all their records."""
        lost: set[str | UUID] = set()

        async def ask(
            connection: AsyncConnection, batch: Sequence[str | UUID]
        ) -> Mapping[str | UUID, ClientError | None]:
            request = _deletion(batch, connection, int(timeout_s * 1000))
            try:
                answer = await connection.call(request, wire_delete.DeleteTopicsResponse)
            except BrokerUnavailable:
                lost.update(batch)
                raise
            asked_by_id = {key for key in batch if isinstance(key, UUID)}
            outcomes: dict[str | UUID, ClientError | None] = {}
            for row in answer.responses:
                key = row.topic_id if row.topic_id in asked_by_id else row.name
                code = row.error_code
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and key in lost:
                    code = 0  # deleted by the request whose answer was lost
                outcomes[key] = _error(code, "delete", str(key), row.error_message)
            return outcomes

        return await spread(self._cluster, topics, to_controller(self._cluster), ask)

    async def add_partitions(
        self,
        counts: Mapping[str, int],
        *,
        replicas: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_s: float = 30.0,
    ) -> Results[str, None]:
        """Raise topics to these numbers of partitions. replicas: the brokers of each new partition, by topic."""
        chosen = replicas or {}

        async def ask(connection: AsyncConnection, batch: Sequence[str]) -> Mapping[str, ClientError | None]:
            rows = [
                wire_partitions.CreatePartitionsTopic(
                    name=name,
                    count=counts[name],
                    assignments=[
                        wire_partitions.CreatePartitionsAssignment(broker_ids=list(brokers))
                        for brokers in chosen[name]
                    ]
                    if name in chosen
                    else None,
                )
                for name in batch
            ]
            request = wire_partitions.CreatePartitionsRequest(
                topics=rows, timeout_ms=int(timeout_s * 1000), validate_only=validate_only
            )
            answer = await connection.call(request, wire_partitions.CreatePartitionsResponse)
            return {
                row.name: _error(row.error_code, "add partitions to", row.name, row.error_message)
                for row in answer.results
            }

        return await spread(self._cluster, counts, to_controller(self._cluster), ask)

    async def _await_leaders(self, names: Sequence[str]) -> None:
        """Wait until every partition has a leader, at most until the deadline.

        Errors end the wait: the topics are there, and who may create them is not always allowed to describe them.
        """
        patience = self._cluster.patience()
        missing = list(names)
        while missing:
            try:
                described = await self.describe(missing)
            except ClientError:
                return
            settled = {
                name
                for name, error in described.failed.items()
                if getattr(error, "code", 0) != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
            settled |= {
                name
                for name, topic in described.done.items()
                if all(partition.leader >= 0 for partition in topic.partitions)
            }
            missing = [name for name in missing if name not in settled]
            if missing and not await patience.pause():
                return


class Topics(Family[AsyncTopics]):
    """`Admin.topics`."""

    list = blocking(AsyncTopics.list)
    describe = blocking(AsyncTopics.describe)
    create = blocking(AsyncTopics.create)
    delete = blocking(AsyncTopics.delete)
    add_partitions = blocking(AsyncTopics.add_partitions)


def _error(code: int, action: str, topic: str, reason: str | None = None) -> ResourceError | None:
    return ResourceError(code, action, f"topic {topic}", reason) if code else None


def topic_of(row: MetadataResponseTopic) -> Topic:
    """One topic of a metadata answer."""
    partitions = sorted((_partition(part) for part in row.partitions), key=lambda part: part.number)
    return Topic(
        row.name or "",
        row.topic_id if row.topic_id.int else None,
        row.is_internal,
        tuple(partitions),
        rights_of(row.topic_authorized_operations),
    )


def _partition(row: MetadataResponsePartition) -> Partition:
    return Partition(
        row.partition_index,
        NodeId(row.leader_id),
        LeaderEpoch(row.leader_epoch),
        tuple(map(NodeId, row.replica_nodes)),
        tuple(map(NodeId, row.isr_nodes)),
        tuple(map(NodeId, row.offline_replicas)),
    )


def _described(row: MetadataResponseTopic) -> Topic | ResourceError:
    # A partition without a leader is a finding, not a failure: only the topic's own code counts.
    if row.error_code and row.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
        return ResourceError(row.error_code, "describe", f"topic {row.name}")
    return topic_of(row)


def _creatable(topic: NewTopic, version: int) -> wire_create.CreatableTopic:
    partitions, replication = topic.partitions, topic.replication
    if topic.replicas:
        partitions = replication = DEFAULT
    elif version < DEFAULTS_VERSION:  # which has no defaults: one of each is what brokers of that age have
        partitions, replication = max(partitions, 1), max(replication, 1)
    return wire_create.CreatableTopic(
        name=topic.name,
        num_partitions=partitions,
        replication_factor=replication,
        assignments=[
            wire_create.CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in enumerate(topic.replicas)
        ],
        configs=[
            wire_create.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ],
    )


def _created(row: wire_create.CreatableTopicResult, lost: set[str]) -> CreatedTopic | ResourceError:
    if row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and row.name in lost:
        return CreatedTopic(row.name)  # created by the request whose answer was lost
    if row.error_code:
        return ResourceError(row.error_code, "create", f"topic {row.name}", row.error_message)
    is_described = row.topic_config_error_code == 0 and row.num_partitions >= 0
    return CreatedTopic(
        row.name,
        row.topic_id if row.topic_id.int else None,
        row.num_partitions if is_described else None,
        row.replication_factor if is_described else None,
        {config.name: config.value for config in row.configs or ()} if is_described else None,
    )


def _deletion(
    batch: Sequence[str | UUID], connection: AsyncConnection, timeout_ms: int
) -> wire_delete.DeleteTopicsRequest:
    """Raises ClientError for ids where the broker deletes by name only."""
    version = connection.version_for(wire_delete.DeleteTopicsRequest)
    if version < BY_ID_VERSION:
        names = [key for key in batch if isinstance(key, str)]
        if len(names) < len(batch):
            raise ClientError(f"{connection.address} deletes topics by name only: it is older than Kafka 2.8")
        return wire_delete.DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)
    rows = [
        wire_delete.DeleteTopicState(topic_id=key)
        if isinstance(key, UUID)
        else wire_delete.DeleteTopicState(name=key)
        for key in batch
    ]
    return wire_delete.DeleteTopicsRequest(topics=rows, timeout_ms=timeout_ms)
