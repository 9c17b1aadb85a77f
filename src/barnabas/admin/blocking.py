"""`Admin`: the same as `AsyncAdmin` for callers without an event loop. Each method runs its asynchronous twin.

A thread of its own runs the requests; several threads may use one admin. It does not survive a fork: make it where it is
used.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from barnabas.admin.asynchronous import AsyncAdmin, Where
from barnabas.admin.looping import LoopThread
from barnabas.client.options import ClientOptions

if TYPE_CHECKING:
    from barnabas.admin.families.acls import Acls
    from barnabas.admin.families.cluster import ClusterAdmin
    from barnabas.admin.families.configs import Configs
    from barnabas.admin.families.groups import Groups
    from barnabas.admin.families.inspection import Inspection
    from barnabas.admin.families.links import Links
    from barnabas.admin.families.log_dirs import LogDirs
    from barnabas.admin.families.quotas import Quotas
    from barnabas.admin.families.records import Records
    from barnabas.admin.families.replicas import Replicas
    from barnabas.admin.families.share_groups import ShareGroups
    from barnabas.admin.families.streams_groups import StreamsGroups
    from barnabas.admin.families.tokens import Tokens
    from barnabas.admin.families.topic_bin import TopicBin
    from barnabas.admin.families.topics import Topics
    from barnabas.admin.families.transactions import Transactions
    from barnabas.admin.families.users import Users


class Admin:
    """Administers one cluster.

        with Admin("localhost:9092") as admin:
            admin.topics.create([NewTopic("orders", partitions=6)])

    The first request opens the first connection.
    """

    def __init__(self, where: Where) -> None:
        self.asynchronous = AsyncAdmin(where)
        self.thread = LoopThread()

    @property
    def options(self) -> ClientOptions:
        return self.asynchronous.connections.options

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and end the thread. The admin may be used again, and then connects again."""
        if self.thread.is_running:
            self.thread.run(self.asynchronous.close())
        self.thread.close()

    @cached_property
    def topics(self) -> Topics:
        from barnabas.admin.families.topics import Topics

        return Topics(self.thread, self.asynchronous.topics)

    @cached_property
    def configs(self) -> Configs:
        from barnabas.admin.families.configs import Configs

        return Configs(self.thread, self.asynchronous.configs)

    @cached_property
    def cluster(self) -> ClusterAdmin:
        from barnabas.admin.families.cluster import ClusterAdmin

        return ClusterAdmin(self.thread, self.asynchronous.cluster)

    @cached_property
    def records(self) -> Records:
        from barnabas.admin.families.records import Records

        return Records(self.thread, self.asynchronous.records)

    @cached_property
    def groups(self) -> Groups:
        from barnabas.admin.families.groups import Groups

        return Groups(self.thread, self.asynchronous.groups)

    @cached_property
    def share_groups(self) -> ShareGroups:
        from barnabas.admin.families.share_groups import ShareGroups

        return ShareGroups(self.thread, self.asynchronous.share_groups)

    @cached_property
    def streams_groups(self) -> StreamsGroups:
        from barnabas.admin.families.streams_groups import StreamsGroups

        return StreamsGroups(self.thread, self.asynchronous.streams_groups)

    @cached_property
    def acls(self) -> Acls:
        from barnabas.admin.families.acls import Acls

        return Acls(self.thread, self.asynchronous.acls)

    @cached_property
    def quotas(self) -> Quotas:
        from barnabas.admin.families.quotas import Quotas

        return Quotas(self.thread, self.asynchronous.quotas)

    @cached_property
    def users(self) -> Users:
        from barnabas.admin.families.users import Users

        return Users(self.thread, self.asynchronous.users)

    @cached_property
    def tokens(self) -> Tokens:
        from barnabas.admin.families.tokens import Tokens

        return Tokens(self.thread, self.asynchronous.tokens)

    @cached_property
    def replicas(self) -> Replicas:
        from barnabas.admin.families.replicas import Replicas

        return Replicas(self.thread, self.asynchronous.replicas)

    @cached_property
    def log_dirs(self) -> LogDirs:
        from barnabas.admin.families.log_dirs import LogDirs

        return LogDirs(self.thread, self.asynchronous.log_dirs)

    @cached_property
    def transactions(self) -> Transactions:
        from barnabas.admin.families.transactions import Transactions

        return Transactions(self.thread, self.asynchronous.transactions)

    @cached_property
    def inspection(self) -> Inspection:
        from barnabas.admin.families.inspection import Inspection

        return Inspection(self.thread, self.asynchronous.inspection)

    @cached_property
    def links(self) -> Links:
        from barnabas.admin.families.links import Links

        return Links(self.thread, self.asynchronous.links)

    @cached_property
    def topic_bin(self) -> TopicBin:
        from barnabas.admin.families.topic_bin import TopicBin

        return TopicBin(self.thread, self.asynchronous.topic_bin)
