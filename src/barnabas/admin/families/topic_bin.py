"""The bin of deleted topics, which only Barnabas's own brokers have: list, restore, remove for good."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.spread import each_node, spread, to_controller
from barnabas.admin.values import TimestampMs
from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError
from barnabas.wire.messages import topic_bin as wire


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic in the bin. until_ms: when it goes for good. size_bytes: on all brokers that answer."""

    name: str
    id: UUID
    deleted_ms: TimestampMs
    until_ms: TimestampMs
    partitions: int
    size_bytes: int


class AsyncTopicBin:
    """`AsyncAdmin.topic_bin`. Brokers other than Barnabas fail with UnsupportedByBroker: they delete topics at once."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def list(self) -> Sequence[DeletedTopic]:
        """The deleted topics that can be restored, the oldest first. Raises ClientError if no broker answers."""

        async def ask(connection: AsyncConnection) -> Sequence[DeletedTopic]:
            answer = await connection.call(
                wire.DescribeDeletedTopicsRequest(), wire.DescribeDeletedTopicsResponse
            )
            if answer.error_code:
                raise ResourceError(answer.error_code, "list", "deleted topics", answer.error_message)
            return [
                DeletedTopic(
                    row.name, row.topic_id, TimestampMs(row.deleted_ms), TimestampMs(row.until_ms), row.partitions,
                    row.size_bytes,
                )
                for row in answer.topics
            ]  # fmt: skip

        results = await each_node(self._cluster, None, ask)
        if not results.done:
            for error in results.failed.values():
                raise error
        topics: dict[UUID, DeletedTopic] = {}
        for rows in results.done.values():
            for row in rows:
                before = topics.get(row.id)
                size = row.size_bytes + (before.size_bytes if before is not None else 0)
                topics[row.id] = replace(row, size_bytes=size)
        return sorted(topics.values(), key=lambda topic: (topic.deleted_ms, topic.name))

    async def restore(self, topic_id: UUID, name: str) -> None:
        """Bring a topic back with its records, its id, its options and the groups' offsets, under this name.

        Raises ResourceError: UNKNOWN_TOPIC_ID, TOPIC_ALREADY_EXISTS and others.
        """

        async def ask(connection: AsyncConnection, batch: Sequence[UUID]) -> dict[UUID, ClientError | None]:
            request = wire.RestoreTopicRequest(topic_id=topic_id, name=name)
            answer = await connection.call(request, wire.RestoreTopicResponse)
            error = None
            if answer.error_code:
                error = ResourceError(answer.error_code, "restore", f"topic {name}", answer.error_message)
            return dict.fromkeys(batch, error)

        (await spread(self._cluster, [topic_id], to_controller(self._cluster), ask)).require()

    async def purge(self, topic_ids: Iterable[UUID]) -> None:
        """Remove topics from the bin for good, all of them or none. Raises ResourceError."""

        async def ask(connection: AsyncConnection, batch: Sequence[UUID]) -> dict[UUID, ClientError | None]:
            answer = await connection.call(
                wire.PurgeTopicsRequest(topic_ids=list(batch)), wire.PurgeTopicsResponse
            )
            error = None
            if answer.error_code:
                error = ResourceError(answer.error_code, "remove", "deleted topics", answer.error_message)
            return dict.fromkeys(batch, error)

        (await spread(self._cluster, topic_ids, to_controller(self._cluster), ask)).require()


class TopicBin(Family[AsyncTopicBin]):
    """`Admin.topic_bin`."""

    list = blocking(AsyncTopicBin.list)
    restore = blocking(AsyncTopicBin.restore)
    purge = blocking(AsyncTopicBin.purge)
