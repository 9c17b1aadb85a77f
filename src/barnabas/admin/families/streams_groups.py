"""Streams groups: describe. Listing and deleting them, and their offsets, are those of all groups (`groups`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import coordinating_brokers, spread, to_coordinators
from barnabas.admin.values import Broker, MemberEpoch, Operation, TopicPartition, rights_of
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError
from barnabas.wire.messages import streams_group_describe as wire

GROUPS_BATCH: Final = 50

StreamsTasks = Mapping[str, tuple[int, ...]]
"""Subtopology -> the numbers of its tasks."""


@dataclass(frozen=True, slots=True)
class StreamsAssignment:
    """The tasks of a member, by what it does with them."""

    active: StreamsTasks
    standby: StreamsTasks
    warmup: StreamsTasks


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition or changelog topic. partitions, replicas: 0 leaves them to the broker."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A connected part of the topology."""

    id: str
    sources: tuple[str, ...]
    repartition_sinks: tuple[str, ...]
    changelogs: tuple[InternalTopic, ...]
    repartition_sources: tuple[InternalTopic, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that its tasks read, without changelogs."""
        return (*self.sources, *(topic.name for topic in self.repartition_sources))


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """One member, that is, one thread of an instance. process: equal for the threads of an instance. endpoint: host and port
    for interactive queries."""

    id: str
    epoch: MemberEpoch
    client: str
    host: str
    process: str
    topology_epoch: int
    assigned: StreamsAssignment
    target: StreamsAssignment
    instance: str | None = None
    rack: str | None = None
    endpoint: tuple[str, int] | None = None
    tags: Mapping[str, str] | None = None
    is_classic: bool = False


@dataclass(frozen=True, slots=True)
class StreamsGroup:
    """A streams group. state: Kafka's word. rights: what the caller may do; None if not asked for."""

    name: str
    state: str
    epoch: MemberEpoch
    target_epoch: MemberEpoch
    topology_epoch: int
    subtopologies: tuple[Subtopology, ...]
    members: tuple[StreamsMember, ...]
    coordinator: Broker
    rights: frozenset[Operation] | None = None

    def partitions_of(self, tasks: StreamsTasks) -> tuple[TopicPartition, ...]:
        """The partitions that tasks read; some may be beyond the end of the smaller ones of several source topics."""
        topics = {part.id: part.topics for part in self.subtopologies}
        return tuple(
            TopicPartition(topic, number)
            for part, numbers in sorted(tasks.items())
            for topic in topics.get(part, ())
            for number in numbers
        )

    @property
    def internal_topics(self) -> tuple[str, ...]:
        """The names of the group's repartition and changelog topics."""
        names = {
            topic.name
            for part in self.subtopologies
            for topic in (*part.changelogs, *part.repartition_sources)
        }
        return tuple(sorted(names.difference(*(part.sources for part in self.subtopologies))))


class AsyncStreamsGroups:
    """`AsyncAdmin.streams_groups`. Since Kafka 4.1."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def describe(self, names: Iterable[str], *, rights: bool = False) -> Results[str, StreamsGroup]:
        """State, topology and members. Fails with GROUP_ID_NOT_FOUND where there is no streams group of the name."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[str]
        ) -> Mapping[str, StreamsGroup | ClientError]:
            request = wire.StreamsGroupDescribeRequest(
                group_ids=list(batch), include_authorized_operations=rights
            )
            answer = await connection.call(request, wire.StreamsGroupDescribeResponse)
            coordinators = await coordinating_brokers(self._cluster, batch)
            return {row.group_id: _described(row, coordinators[row.group_id]) for row in answer.groups}

        route = to_coordinators(self._cluster, "describe")
        return await spread(self._cluster, names, route, ask, batch=GROUPS_BATCH)


class StreamsGroups(Family[AsyncStreamsGroups]):
    """`Admin.streams_groups`."""

    describe = blocking(AsyncStreamsGroups.describe)


def _described(row: wire.DescribedGroup, coordinator: Broker) -> StreamsGroup | ResourceError:
    if row.error_code:
        return ResourceError(row.error_code, "describe", f"streams group {row.group_id}", row.error_message)
    topology = row.topology
    return StreamsGroup(
        row.group_id,
        row.group_state,
        MemberEpoch(row.group_epoch),
        MemberEpoch(row.assignment_epoch),
        -1 if topology is None else topology.epoch,
        () if topology is None else tuple(_subtopology(part) for part in topology.subtopologies or ()),
        tuple(_member(member) for member in row.members),
        coordinator,
        rights_of(row.authorized_operations),
    )


def _subtopology(row: wire.Subtopology) -> Subtopology:
    return Subtopology(
        row.subtopology_id,
        tuple(row.source_topics),
        tuple(row.repartition_sink_topics),
        tuple(_topic(topic) for topic in row.state_changelog_topics),
        tuple(_topic(topic) for topic in row.repartition_source_topics),
    )


def _topic(row: wire.TopicInfo) -> InternalTopic:
    configs = {config.key: config.value for config in row.topic_configs}
    return InternalTopic(row.name, row.partitions, row.replication_factor, configs)


def _member(row: wire.Member) -> StreamsMember:
    endpoint = row.user_endpoint
    return StreamsMember(
        row.member_id,
        MemberEpoch(row.member_epoch),
        row.client_id,
        row.client_host,
        row.process_id,
        row.topology_epoch,
        _assignment(row.assignment),
        _assignment(row.target_assignment),
        row.instance_id,
        row.rack_id,
        None if endpoint is None else (endpoint.host, endpoint.port),
        {tag.key: tag.value for tag in row.client_tags},
        row.is_classic,
    )


def _assignment(row: wire.Assignment) -> StreamsAssignment:
    return StreamsAssignment(
        *(_tasks(kind) for kind in (row.active_tasks, row.standby_tasks, row.warmup_tasks))
    )


def _tasks(rows: Iterable[wire.TaskIds]) -> StreamsTasks:
    return {row.subtopology_id: tuple(sorted(row.partitions)) for row in rows}
