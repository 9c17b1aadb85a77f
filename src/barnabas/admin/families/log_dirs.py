"""Log dirs of brokers: what they hold, and moving replicas between those of one broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import Route, each_node, spread, to_nodes
from barnabas.admin.values import NodeId, TopicPartition, by_topic
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import alter_replica_log_dirs as wire_alter
from barnabas.wire.messages import describe_log_dirs as wire_describe

YET_TO_BE_CREATED: Final = frozenset({ErrorCode.REPLICA_NOT_AVAILABLE})


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A replica's log. lag: offsets behind the high watermark (of a future log: behind the present one). is_future: it is
    being copied here from another log dir."""

    partition: TopicPartition
    size_bytes: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """One log dir. error: what is wrong with it, None if it is in use. total_bytes, usable_bytes: of its file system; None
    where the broker does not say (before Kafka 3.3)."""

    path: str
    replicas: tuple[ReplicaLog, ...]
    error: ResourceError | None = field(default=None, compare=False)
    total_bytes: int | None = None
    usable_bytes: int | None = None
    is_cordoned: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(replica.size_bytes for replica in self.replicas)


class Replica(NamedTuple):
    """A replica of a partition on a broker."""

    topic: str
    partition: int
    node: int

    def __str__(self) -> str:
        return f"replica {self.topic}-{self.partition} of broker {self.node}"


class AsyncLogDirs:
    """`AsyncAdmin.log_dirs`. Since Kafka 1.0."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def describe(
        self,
        nodes: Iterable[int] | None = None,
        *,
        partitions: Iterable[tuple[str, int]] | None = None,
    ) -> Results[NodeId, Sequence[LogDir]]:
        """The log dirs of these brokers (None: of all). partitions: only their replicas are listed."""
        topics = (
            None
            if partitions is None
            else [
                wire_describe.DescribableLogDirTopic(topic=name, partitions=numbers)
                for name, numbers in by_topic(partitions).items()
            ]
        )

        async def ask(connection: AsyncConnection) -> Sequence[LogDir]:
            request = wire_describe.DescribeLogDirsRequest(topics=topics)
            answer = await connection.call(request, wire_describe.DescribeLogDirsResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "describe", f"the log dirs of {connection.address}")
            return [_log_dir(row, connection.address) for row in answer.results]

        return await each_node(self._cluster, nodes, ask)

    async def move(self, paths: Mapping[Replica, str]) -> Results[Replica, None]:
        """Start copying replicas to other log dirs of their brokers.

        A replica that is yet to be created fails with REPLICA_NOT_AVAILABLE, and will be created there.
        """

        async def ask(
            connection: AsyncConnection, batch: Sequence[Replica]
        ) -> Mapping[Replica, ClientError | None]:
            by_path: dict[str, list[Replica]] = {}
            for replica in batch:
                by_path.setdefault(paths[replica], []).append(replica)
            dirs = [
                wire_alter.AlterReplicaLogDir(
                    path=path,
                    topics=[
                        wire_alter.AlterReplicaLogDirTopic(name=name, partitions=numbers)
                        for name, numbers in by_topic((r.topic, r.partition) for r in replicas).items()
                    ],
                )
                for path, replicas in by_path.items()
            ]
            request = wire_alter.AlterReplicaLogDirsRequest(dirs=dirs)
            answer = await connection.call(request, wire_alter.AlterReplicaLogDirsResponse)
            node = batch[0].node
            return {
                key: ResourceError(row.error_code, "move", str(key)) if row.error_code else None
                for topic in answer.results
                for row in topic.partitions
                for key in [Replica(topic.topic_name, row.partition_index, node)]
            }

        route: Route[Replica] = to_nodes(self._cluster, lambda key: key.node)
        return await spread(self._cluster, paths, route, ask, final=YET_TO_BE_CREATED)


class LogDirs(Family[AsyncLogDirs]):
    """`Admin.log_dirs`."""

    describe = blocking(AsyncLogDirs.describe)
    move = blocking(AsyncLogDirs.move)


def _log_dir(row: wire_describe.DescribeLogDirsResult, address: str) -> LogDir:
    return LogDir(
        row.log_dir,
        tuple(
            ReplicaLog(
                TopicPartition(topic.name, part.partition_index),
                part.partition_size,
                part.offset_lag,
                part.is_future_key,
            )
            for topic in row.topics
            for part in topic.partitions
        ),
        ResourceError(row.error_code, "use", f"log dir {row.log_dir} of {address}")
        if row.error_code
        else None,
        row.total_bytes if row.total_bytes >= 0 else None,
        row.usable_bytes if row.usable_bytes >= 0 else None,
        row.is_cordoned,
    )
