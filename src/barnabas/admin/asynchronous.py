"""`AsyncAdmin`: all families of administration on one connection to a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from barnabas.client.async_cluster import AsyncCluster
from barnabas.client.options import ClientOptions, parse_bootstrap

if TYPE_CHECKING:
    from barnabas.admin.families.acls import AsyncAcls
    from barnabas.admin.families.cluster import AsyncClusterAdmin
    from barnabas.admin.families.configs import AsyncConfigs
    from barnabas.admin.families.groups import AsyncGroups
    from barnabas.admin.families.inspection import AsyncInspection
    from barnabas.admin.families.links import AsyncLinks
    from barnabas.admin.families.log_dirs import AsyncLogDirs
    from barnabas.admin.families.quotas import AsyncQuotas
    from barnabas.admin.families.records import AsyncRecords
    from barnabas.admin.families.replicas import AsyncReplicas
    from barnabas.admin.families.share_groups import AsyncShareGroups
    from barnabas.admin.families.streams_groups import AsyncStreamsGroups
    from barnabas.admin.families.tokens import AsyncTokens
    from barnabas.admin.families.topic_bin import AsyncTopicBin
    from barnabas.admin.families.topics import AsyncTopics
    from barnabas.admin.families.transactions import AsyncTransactions
    from barnabas.admin.families.users import AsyncUsers

Where: TypeAlias = str | Mapping[str, str] | ClientOptions
"""How to reach a cluster: `host:port,...`, Kafka's client options, or options that are parsed already."""


def options_of(where: Where) -> ClientOptions:
    """Raises ClientError naming the option, its value and what is allowed."""
    if isinstance(where, ClientOptions):
        return where
    if isinstance(where, str):
        return ClientOptions(parse_bootstrap(where))
    return ClientOptions.from_kafka(where)


class AsyncAdmin:
    """Administers one cluster from one event loop.

        async with AsyncAdmin("localhost:9092") as admin:
            await admin.topics.create([NewTopic("orders", partitions=6)])

    The first request opens the first connection. Each family is imported on first use: commands pay for what they need.
    """

    def __init__(self, where: Where) -> None:
        self.connections = AsyncCluster(options_of(where))

    async def __aenter__(self) -> AsyncAdmin:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; requests under way fail."""
        await self.connections.close()

    @cached_property
    def topics(self) -> AsyncTopics:
        from barnabas.admin.families.topics import AsyncTopics

        return AsyncTopics(self.connections)

    @cached_property
    def configs(self) -> AsyncConfigs:
        from barnabas.admin.families.configs import AsyncConfigs

        return AsyncConfigs(self.connections)

    @cached_property
    def cluster(self) -> AsyncClusterAdmin:
        from barnabas.admin.families.cluster import AsyncClusterAdmin

        return AsyncClusterAdmin(self.connections)

    @cached_property
    def records(self) -> AsyncRecords:
        from barnabas.admin.families.records import AsyncRecords

        return AsyncRecords(self.connections)

    @cached_property
    def groups(self) -> AsyncGroups:
        from barnabas.admin.families.groups import AsyncGroups

        return AsyncGroups(self.connections)

    @cached_property
    def share_groups(self) -> AsyncShareGroups:
        from barnabas.admin.families.share_groups import AsyncShareGroups

        return AsyncShareGroups(self.connections)

    @cached_property
    def streams_groups(self) -> AsyncStreamsGroups:
        from barnabas.admin.families.streams_groups import AsyncStreamsGroups

        return AsyncStreamsGroups(self.connections)

    @cached_property
    def acls(self) -> AsyncAcls:
        from barnabas.admin.families.acls import AsyncAcls

        return AsyncAcls(self.connections)

    @cached_property
    def quotas(self) -> AsyncQuotas:
        from barnabas.admin.families.quotas import AsyncQuotas

        return AsyncQuotas(self.connections)

    @cached_property
    def users(self) -> AsyncUsers:
        from barnabas.admin.families.users import AsyncUsers

        return AsyncUsers(self.connections)

    @cached_property
    def tokens(self) -> AsyncTokens:
        from barnabas.admin.families.tokens import AsyncTokens

        return AsyncTokens(self.connections)

    @cached_property
    def replicas(self) -> AsyncReplicas:
        from barnabas.admin.families.replicas import AsyncReplicas

        return AsyncReplicas(self.connections)

    @cached_property
    def log_dirs(self) -> AsyncLogDirs:
        from barnabas.admin.families.log_dirs import AsyncLogDirs

        return AsyncLogDirs(self.connections)

    @cached_property
    def transactions(self) -> AsyncTransactions:
        from barnabas.admin.families.transactions import AsyncTransactions

        return AsyncTransactions(self.connections)

    @cached_property
    def inspection(self) -> AsyncInspection:
        from barnabas.admin.families.inspection import AsyncInspection

        return AsyncInspection(self.connections)

    @cached_property
    def links(self) -> AsyncLinks:
        from barnabas.admin.families.links import AsyncLinks

        return AsyncLinks(self.connections)

    @cached_property
    def topic_bin(self) -> AsyncTopicBin:
        from barnabas.admin.families.topic_bin import AsyncTopicBin

        return AsyncTopicBin(self.connections)
