"""The brokers of a cluster, the leaders of partitions, and connections to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID

from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import BrokerError, BrokerUnavailable, ClientError, UnknownTopic
from barnabas.client.options import ClientOptions
from barnabas.records.units import LeaderEpoch
from barnabas.wire.errors import RETRIABLE, ErrorCode
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

BACKOFF_MAX_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PartitionView:
    """leader: node id, -1 if there is none at the moment."""

    leader: int
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class TopicView:
    """topic_id: all zero if the broker does not know topic ids."""

    name: str
    topic_id: UUID
    internal: bool
    partitions: dict[int, PartitionView] = field(default_factory=dict)


class Cluster:
    """A cache of metadata, and connections by node id. Not thread-safe."""

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self.brokers: dict[int, tuple[str, int]] = {}
        self.topics: dict[str, TopicView] = {}
        self.controller = -1
        self.cluster_id: str | None = None
        self._connections: dict[tuple[str, int], list[BrokerConnection]] = {}
        self._met = False

    def close(self) -> None:
        for connections in self._connections.values():
            for connection in connections:
                connection.close()
        self._connections.clear()

    def connect(self, address: tuple[str, int]) -> BrokerConnection:
        """A connection to an address without a request in flight; kept open between requests."""
        connections = self._connections.setdefault(address, [])
        for connection in connections:
            if not connection.pending:
                return connection
        connections.append(BrokerConnection(*address, self.options))
        return connections[-1]

    def forget(self, connection: BrokerConnection) -> None:
        """Close a connection whose state is unknown."""
        connection.close()
        for connections in self._connections.values():
            if connection in connections:
                connections.remove(connection)

    def any(self) -> BrokerConnection:
        """A connection to any broker: an open one, otherwise one to the first that answers.

        Raises BrokerUnavailable that names every address tried.
        """
        for connections in self._connections.values():
            for connection in connections:
                if not connection.pending:
                    return connection
        give_up = time.monotonic() + (0 if self._met else self.options.contact_timeout_s)
        while True:
            failures = []
            for address in dict.fromkeys([*self.options.bootstrap, *self.brokers.values()]):
                try:
                    connection = self.connect(address)
                except BrokerUnavailable as error:
                    failures.append(str(error))
                    continue
                self._met = True
                return connection
            if time.monotonic() >= give_up:
                raise BrokerUnavailable("; ".join(failures))
            time.sleep(0.2)

    def node(self, node_id: int) -> BrokerConnection:
        """A connection to this broker; raises BrokerUnavailable if it is not known."""
        address = self.brokers.get(node_id)
        if address is None:
            raise BrokerUnavailable(f"broker {node_id} is not among the live ones")
        return self.connect(address)

    def refresh(self, topics: Iterable[str] | None = ()) -> None:
        """Request the brokers and these topics (None: all). Topics that do not exist are removed from the cache."""
        names = None if topics is None else list(dict.fromkeys(topics))
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        connection = self.any()
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        try:
            answer = connection.call(request, MetadataResponse)
        except BrokerUnavailable:
            self.forget(connection)
            raise
        self.brokers = {b.node_id: (b.host, b.port) for b in answer.brokers}
        self.controller = answer.controller_id
        self.cluster_id = answer.cluster_id
        for name in names or ():
            self.topics.pop(name, None)
        if names is None:
            self.topics.clear()
        for topic in answer.topics:
            if topic.error_code in (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            ):
                raise BrokerError(topic.error_code, f"looking up topic {topic.name}")
            if topic.error_code == 0 and topic.name is not None:
                views = {
                    p.partition_index: PartitionView(p.leader_id, p.leader_epoch) for p in topic.partitions
                }
                self.topics[topic.name] = TopicView(
                    topic.name, topic.topic_id, topic.is_internal, dict(sorted(views.items()))
                )

    def topic(self, name: str, *, refresh: bool = False) -> TopicView:
        """The metadata of a topic. Raises UnknownTopic."""
        if refresh or name not in self.topics:
            self.refresh([name])
        if name not in self.topics:
            raise UnknownTopic(f"topic {name} does not exist")
        return self.topics[name]

    def leader(self, topic: str, partition: int) -> int:
        """The leader's node id. Raises UnknownTopic, and BrokerError LEADER_NOT_AVAILABLE to try again."""
        view = self.topic(topic)
        if partition not in view.partitions:
            view = self.topic(topic, refresh=True)  # it may have been added meanwhile
        if partition not in view.partitions:
            count = len(view.partitions)
            raise UnknownTopic(f"topic {topic} has no partition {partition}; it has {count}")
        leader = view.partitions[partition].leader
        if leader < 0:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {topic}-{partition} has no leader")
        return leader

    def await_leaders(self, topics: Iterable[str]) -> None:
        """Wait until every partition of these new topics has a leader, at most until the deadline.

        The controller acknowledges a topic before all brokers know it. Raises nothing: the topics have been created, and a
        caller that may create topics is not necessarily allowed to describe them.
        """
        give_up = time.monotonic() + self.options.deadline_s
        pause_s = self.options.backoff_s
        missing = list(topics)
        while missing:
            try:
                self.refresh(missing)
            except ClientError:
                return
            missing = [name for name in missing if not self._is_led(name)]
            if missing and time.monotonic() + pause_s >= give_up:
                return
            if missing:
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, BACKOFF_MAX_S)

    def _is_led(self, topic: str) -> bool:
        view = self.topics.get(topic)
        return view is not None and all(partition.leader >= 0 for partition in view.partitions.values())

    def retry(self, attempt: Callable[[], T], topics: Iterable[str] = ()) -> T:
        """Repeat `attempt` while it fails with temporary errors, with growing pauses, until the deadline (or as often as the
        options allow).

        The metadata of `topics` is refreshed between attempts. At the end the last error is raised.
        """
        give_up = time.monotonic() + self.options.deadline_s
        pause_s = self.options.backoff_s
        names = list(topics)
        left = self.options.retries_max
        while True:
            try:
                return attempt()
            except BrokerUnavailable as error:
                if not self._met:
                    raise
                last: ClientError = error
            except BrokerError as error:
                if error.code not in RETRIABLE:
                    raise
                last = error
            if time.monotonic() + pause_s >= give_up or left == 0:
                raise last
            left = None if left is None else left - 1
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, BACKOFF_MAX_S)
            self._drop_broken()
            try:
                self.refresh(names)
            except BrokerUnavailable:
                continue  # the next attempt fails the same way and counts against the deadline
            for name in names:
                if name not in self.topics:
                    raise UnknownTopic(f"topic {name} does not exist") from last

    def _drop_broken(self) -> None:
        """After a failure, open requests cannot be trusted: close all connections, to open new ones."""
        self.close()
