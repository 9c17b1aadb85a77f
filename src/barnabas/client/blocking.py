"""A small blocking client for pipelines and tools, with leader routing and retries.

    with BlockingClient("localhost:9092") as client:
        client.create_topics([NewTopic("events", partitions=3)])
        client.produce_raw("events", 0, batch)
        for piece in client.read("events", 0, start=0, end=100):
            decode(piece.records, piece.start, 100)

Records go in and out as raw v2 batches; `records.columnar` turns them into columns. Errors are those of
`client.errors`; temporary ones are retried until the deadline. Not thread-safe: each thread needs its own client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.client.cluster import Cluster, TopicView
from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import BrokerError, BrokerUnavailable, UnknownTopic
from barnabas.client.fetching import Fetched, Reader
from barnabas.client.options import ClientOptions, parse_bootstrap
from barnabas.client.producing import BytesLike, produce_one
from barnabas.records.units import Offset, ProducerEpoch, TimestampMs
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from barnabas.wire.schema import Message

T = TypeVar("T")
TopicPartition = tuple[str, int]

LATEST: Final = -1
EARLIEST: Final = -2
GROUP: Final = 0
TRANSACTION: Final = 1
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. partitions and replication: -1 for the broker's default."""

    name: str
    partitions: int = -1
    replication: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class TimedOffset(NamedTuple):
    """The result of an offset look-up. offset -1: there is no record at or after the time."""

    offset: Offset
    timestamp_ms: TimestampMs


class BlockingClient:
    """bootstrap: `host:port,...`, or ClientOptions. The first request opens the first connection."""

    def __init__(self, bootstrap: str | ClientOptions, *, client_id: str = "barnabas") -> None:
        if isinstance(bootstrap, str):
            bootstrap = ClientOptions(parse_bootstrap(bootstrap), client_id=client_id)
        self.options = bootstrap
        self.cluster = Cluster(bootstrap)
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.cluster.close()

    # --- topics -----------------------------------------------------------------------------------

    def topics(self) -> dict[str, TopicView]:
        """All topics that this client may see."""
        self.cluster.retry(lambda: self.cluster.refresh(None))
        return dict(self.cluster.topics)

    def describe(self, names: Iterable[str]) -> dict[str, TopicView]:
        """The current state of these topics; those that do not exist are left out."""
        wanted = list(names)
        self.cluster.retry(lambda: self.cluster.refresh(wanted))
        return {name: self.cluster.topics[name] for name in wanted if name in self.cluster.topics}

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises UnknownTopic."""
        return list(self.cluster.retry(lambda: self.cluster.topic(topic)).partitions)

    def create_topics(self, topics: Sequence[NewTopic], *, exist_ok: bool = False) -> list[str]:
        """Create topics and wait until the brokers know their leaders; returns the names of those that were created.

        Raises BrokerError.
        """
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication,
                    configs=[CreatableTopicConfig(name=k, value=v) for k, v in topic.configs.items()],
                )
                for topic in topics
            ],
            timeout_ms=int(self.options.request_timeout_s * 1000),
        )
        answer = self._on_controller(lambda version: request, CreateTopicsResponse, CreateTopicsRequest)
        names = []
        for result in answer.topics:
            if result.error_code == 0:
                names.append(result.name)
            elif not (exist_ok and result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(result.error_code, f"creating topic {result.name}", result.error_message)
        self.cluster.await_leaders(names)
        return names

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics. Raises BrokerError, for example with UNKNOWN_TOPIC_OR_PARTITION."""
        timeout_ms = int(self.options.request_timeout_s * 1000)

        def request(version: int) -> DeleteTopicsRequest:
            if version < 6:
                return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
            return DeleteTopicsRequest(
                topics=[DeleteTopicState(name=n) for n in names], timeout_ms=timeout_ms
            )

        for result in self._on_controller(request, DeleteTopicsResponse, DeleteTopicsRequest).responses:
            if result.error_code:
                raise BrokerError(result.error_code, f"deleting topic {result.name}")

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        """Every option of a topic with its effective value. Raises BrokerError, UnknownTopic."""
        resource = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
        )
        request = DescribeConfigsRequest(resources=[resource])

        def attempt() -> dict[str, str | None]:
            result = self.call(self.cluster.any(), request, DescribeConfigsResponse).results[0]
            if result.error_code:
                raise BrokerError(result.error_code, f"describing topic {topic}", result.error_message)
            return {entry.name: entry.value for entry in result.configs}

        # A broker may not have heard of a new topic yet, which others know.
        return self.cluster.retry(attempt, [topic])

    # --- offsets ----------------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, TimedOffset]:
        """The first offset at or after each time in milliseconds; LATEST and EARLIEST are also valid times."""
        if not wanted:
            return {}
        topics = {topic for topic, _ in wanted}
        return self.cluster.retry(lambda: self._list_offsets(wanted, read_committed), topics)

    def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, TimedOffset]:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        self.cluster.refresh({topic for topic, _ in wanted} - self.cluster.topics.keys())
        for topic, partition in wanted:
            by_leader[self.cluster.leader(topic, partition)].append((topic, partition))
        offsets: dict[TopicPartition, TimedOffset] = {}
        for leader, pairs in by_leader.items():
            topics = [
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=p, timestamp=wanted[(name, p)])
                        for p in partitions
                    ],
                )
                for name, partitions in _by_topic(pairs).items()
            ]
            request = ListOffsetsRequest(
                replica_id=-1, isolation_level=int(read_committed), topics=topics, timeout_ms=30_000
            )
            answer = self.call(self.cluster.node(leader), request, ListOffsetsResponse)
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.error_code:
                        where = f"{topic.name}-{row.partition_index}"
                        raise BrokerError(row.error_code, f"asking for offsets of {where}")
                    offsets[topic.name, row.partition_index] = TimedOffset(row.offset, row.timestamp)
        return offsets

    def committed(
        self, group: str, topics: Mapping[str, Iterable[int]] | None = None
    ) -> dict[TopicPartition, Offset]:
        """The offsets that a group has committed for these partitions, or (None) for all; others are left out."""
        wanted = None if topics is None else {name: list(parts) for name, parts in topics.items()}

        def attempt() -> dict[TopicPartition, Offset]:
            connection = self.coordinator(group)
            request = _offset_fetch(connection.version_for(OffsetFetchRequest), group, wanted)
            answer = self.call(connection, request, OffsetFetchResponse)
            groups = answer.groups or [answer]
            self._check_group(groups[0].error_code, group, "reading offsets of group")
            offsets = {}
            for topic in groups[0].topics:
                for row in topic.partitions:
                    self._check_group(row.error_code, group, "reading offsets of group")
                    if row.committed_offset >= 0:
                        offsets[topic.name, row.partition_index] = row.committed_offset
            return offsets

        return self.cluster.retry(attempt)

    def commit(self, group: str, offsets: Mapping[TopicPartition, Offset], metadata: str = "") -> None:
        """Commit offsets for a group without members. Raises BrokerError UNKNOWN_MEMBER_ID if it has members."""
        if not offsets:
            return
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=p, committed_offset=offsets[name, p], committed_metadata=metadata
                    )
                    for p in partitions
                ],
            )
            for name, partitions in _by_topic(offsets).items()
        ]
        request = OffsetCommitRequest(group_id=group, topics=topics)

        def attempt() -> None:
            answer = self.call(self.coordinator(group), request, OffsetCommitResponse)
            for topic in answer.topics:
                for row in topic.partitions:
                    if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        raise UnknownTopic(f"{topic.name}-{row.partition_index} does not exist any more")
                    self._check_group(row.error_code, group, "committing offsets of group")

        self.cluster.retry(attempt)

    def _check_group(self, code: int, group: str, doing: str) -> None:
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinators.pop((GROUP, group), None)
        if code:
            raise BrokerError(code, f"{doing} {group}")

    def coordinator(self, key: str, kind: int = GROUP) -> BrokerConnection:
        """A connection to the coordinator of a group or of a transactional id."""
        address = self._coordinators.get((kind, key))
        if address is None:
            connection = self.cluster.any()
            version = connection.version_for(FindCoordinatorRequest)
            request = (
                FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                if version >= 4
                else FindCoordinatorRequest(key=key, key_type=kind)
            )
            answer = self.call(connection, request, FindCoordinatorResponse)
            row = answer.coordinators[0] if answer.coordinators else answer
            if row.error_code:
                raise BrokerError(row.error_code, f"looking for the coordinator of {key}", row.error_message)
            address = self._coordinators[kind, key] = (row.host, row.port)
        return self.cluster.connect(address)

    def coordinator_address(self, key: str, kind: int = GROUP) -> tuple[str, int] | None:
        """The address that `coordinator` found last."""
        return self._coordinators.get((kind, key))

    def forget_coordinator(self, key: str, kind: int = GROUP) -> None:
        """Look up the coordinator again next time."""
        self._coordinators.pop((kind, key), None)

    # --- records ----------------------------------------------------------------------------------

    def read(
        self,
        topic: str,
        partition: int,
        start: Offset,
        end: Offset,
        *,
        read_committed: bool = False,
        max_bytes: int = 8 << 20,
    ) -> Iterator[Fetched]:
        """Raw batches from `start` until offset `end` (exclusive) is reached. The next piece is being fetched while the
        caller processes the current one. Raises OffsetOutOfRange when the log begins after `start`."""
        reader = Reader(self.cluster, topic, partition, read_committed=read_committed, max_bytes=max_bytes)
        return reader.read(start, end)

    def fetch_raw(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        *,
        max_bytes: int = 8 << 20,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        read_committed: bool = False,
    ) -> Fetched:
        """One fetch; `records` may be empty. Waits up to max_wait_ms for min_bytes."""
        reader = Reader(self.cluster, topic, partition, read_committed=read_committed, max_bytes=max_bytes)
        return reader.fetch(offset, max_wait_ms=max_wait_ms, min_bytes=min_bytes)

    def produce_raw(
        self, topic: str, partition: int, batch: BytesLike, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> int:
        """Send one v2 batch and wait; returns its base offset (-1 with acks 0).

        Repeated until the deadline if it may not have arrived. Unless the batch's header has a producer id, this can write
        it twice.
        """
        return produce_one(self.cluster, topic, partition, batch, acks, timeout_ms)

    def init_producer_id(
        self, transactional_id: str | None = None, timeout_ms: int = 60_000
    ) -> tuple[int, ProducerEpoch]:
        """A new (producer id, epoch)."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

        def attempt() -> tuple[int, ProducerEpoch]:
            if transactional_id is None:
                connection = self.cluster.any()
            else:
                connection = self.coordinator(transactional_id, TRANSACTION)
            answer = self.call(connection, request, InitProducerIdResponse)
            if answer.error_code:
                self._coordinators.pop((TRANSACTION, transactional_id or ""), None)
                raise BrokerError(answer.error_code, "asking for a producer id")
            return answer.producer_id, ProducerEpoch(answer.producer_epoch)

        return self.cluster.retry(attempt)

    # --- requests ---------------------------------------------------------------------------------

    def call(self, connection: BrokerConnection, request: Message, response: type[Message]) -> Any:
        """One request on a connection, which is closed if the request fails."""
        try:
            return connection.call(request, response)
        except BrokerUnavailable:
            self.cluster.forget(connection)
            raise

    def _retry_on(
        self, choose: Callable[[], BrokerConnection], request: Message, response: type[Message]
    ) -> Any:
        return self.cluster.retry(lambda: self.call(choose(), request, response))

    def _on_controller(
        self, build: Callable[[int], Message], response: type[Message], kind: type[Message]
    ) -> Any:
        def attempt() -> Any:
            self.cluster.refresh()
            controller = self.cluster.controller
            connection = self.cluster.node(controller) if controller >= 0 else self.cluster.any()
            answer = self.call(connection, build(connection.version_for(kind)), response)
            rows = getattr(answer, "topics", None) or getattr(answer, "responses", None) or ()
            if any(row.error_code == ErrorCode.NOT_CONTROLLER for row in rows):
                raise BrokerError(ErrorCode.NOT_CONTROLLER, "asking the controller")
            return answer

        return self.cluster.retry(attempt)


def _offset_fetch(version: int, group: str, wanted: Mapping[str, list[int]] | None) -> OffsetFetchRequest:
    """Since version 8 a request names several groups; before, one."""
    if version < 8:
        topics = (
            None
            if wanted is None
            else [OffsetFetchRequestTopic(name=n, partition_indexes=p) for n, p in wanted.items()]
        )
        return OffsetFetchRequest(group_id=group, topics=topics)
    named = (
        None
        if wanted is None
        else [OffsetFetchRequestTopics(name=n, partition_indexes=p) for n, p in wanted.items()]
    )
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=named)])


def _by_topic(pairs: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = defaultdict(list)
    for topic, partition in pairs:
        grouped[topic].append(partition)
    return dict(grouped)


__all__ = [
    "EARLIEST",
    "LATEST",
    "BlockingClient",
    "NewTopic",
    "TimedOffset",
    "TopicPartition",
    "UnknownTopic",
]
