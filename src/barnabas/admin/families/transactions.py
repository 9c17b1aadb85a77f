"""Transactions and producers: list, describe, find what hangs, abort, fence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.admin.errors import ResourceError
from barnabas.admin.looping import Family, blocking
from barnabas.admin.results import Results
from barnabas.admin.spread import (
    NEW_TOPICS,
    Route,
    coordinating_brokers,
    each_node,
    spread,
    to_coordinators,
    to_leaders,
    to_nodes,
)
from barnabas.admin.values import (
    Broker,
    CoordinatorEpoch,
    NodeId,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
    by_topic,
)
from barnabas.client.async_cluster import TRANSACTION, AsyncCluster
from barnabas.client.async_connection import AsyncConnection
from barnabas.client.errors import ClientError, UnsupportedByBroker
from barnabas.wire.messages import describe_producers as wire_producers
from barnabas.wire.messages import describe_transactions as wire_describe
from barnabas.wire.messages import list_transactions as wire_list
from barnabas.wire.messages import write_txn_markers as wire_markers
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

IDS_BATCH: Final = 200
PARTITIONS_BATCH: Final = 500
DURATION_VERSION: Final = 1
PATTERN_VERSION: Final = 2
FENCE_TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list. state: Kafka's word (`Ongoing`)."""

    transactional_id: str
    producer_id: ProducerId
    state: str
    coordinator: NodeId


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id. start_ms: None while no transaction is open. partitions: those of the open transaction."""

    transactional_id: str
    state: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: int
    start_ms: TimestampMs | None
    partitions: tuple[TopicPartition, ...]
    coordinator: Broker


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that a partition remembers. last_sequence, last_timestamp_ms: -1 if it has written nothing but markers.
    transaction_start: the first offset of its open transaction; None if it has none. coordinator_epoch: -1 if unknown."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int
    last_timestamp_ms: TimestampMs
    coordinator_epoch: CoordinatorEpoch
    transaction_start: Offset | None


class HangingTransaction(NamedTuple):
    """An open transaction in a partition that its coordinator knows nothing of: it holds back read_committed readers."""

    partition: TopicPartition
    producer: ProducerState


class Fenced(NamedTuple):
    """What a transactional id has now: producers with older epochs are refused."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch


class AsyncTransactions:
    """`AsyncAdmin.transactions`. Describing and listing since Kafka 3.0."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster

    async def list(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_for_ms: int | None = None,
        pattern: str | None = None,
    ) -> Results[NodeId, Sequence[TransactionListing]]:
        """The transactional ids of each coordinator.

        open_for_ms: only transactions open for longer (since Kafka 3.8). pattern: a regular expression of ids (since 4.1).
        """
        wanted_states, wanted_ids = list(states), list(producer_ids)

        async def ask(connection: AsyncConnection) -> Sequence[TransactionListing]:
            version = connection.version_for(wire_list.ListTransactionsRequest)
            if (open_for_ms is not None and version < DURATION_VERSION) or (
                pattern is not None and version < PATTERN_VERSION
            ):
                raise UnsupportedByBroker(
                    f"{connection.address} cannot filter transactions by duration or pattern",
                    "ListTransactions",
                )
            request = wire_list.ListTransactionsRequest(
                state_filters=wanted_states,
                producer_id_filters=wanted_ids,
                duration_filter=-1 if open_for_ms is None else open_for_ms,
                transactional_id_pattern=pattern,
            )
            answer = await connection.call(request, wire_list.ListTransactionsResponse)
            if answer.error_code:
                raise ResourceError(answer.error_code, "list", f"the transactions of {connection.address}")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise ClientError(f"{connection.address} knows no transactions in state {unknown}")
            return [
                TransactionListing(
                    row.transactional_id, ProducerId(row.producer_id), row.transaction_state, NodeId(-1)
                )
                for row in answer.transaction_states
            ]

        results = await each_node(self._cluster, None, ask)
        done = {
            node: [
                TransactionListing(row.transactional_id, row.producer_id, row.state, node) for row in listings
            ]
            for node, listings in results.done.items()
        }
        return Results(done, results.failed)

    async def describe(self, transactional_ids: Iterable[str]) -> Results[str, Transaction]:
        """The state of each transactional id, with its coordinator."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[str]
        ) -> Mapping[str, Transaction | ClientError]:
            request = wire_describe.DescribeTransactionsRequest(transactional_ids=list(batch))
            answer = await connection.call(request, wire_describe.DescribeTransactionsResponse)
            coordinators = await coordinating_brokers(self._cluster, batch, TRANSACTION)
            return {
                row.transactional_id: _described(row, coordinators[row.transactional_id])
                for row in answer.transaction_states
            }

        route = to_coordinators(self._cluster, "describe", TRANSACTION)
        return await spread(self._cluster, transactional_ids, route, ask, batch=IDS_BATCH)

    async def producers(
        self, partitions: Iterable[tuple[str, int]], *, node: int | None = None
    ) -> Results[TopicPartition, Sequence[ProducerState]]:
        """The producers that each partition's leader remembers, or this broker's replica. Since Kafka 2.8."""

        async def ask(
            connection: AsyncConnection, batch: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, Sequence[ProducerState] | ClientError]:
            topics = [
                wire_producers.TopicRequest(name=name, partition_indexes=numbers)
                for name, numbers in by_topic(batch).items()
            ]
            request = wire_producers.DescribeProducersRequest(topics=topics)
            answer = await connection.call(request, wire_producers.DescribeProducersResponse)
            action = "describe the producers of"
            return {
                key: ResourceError(row.error_code, action, f"partition {key}", row.error_message)
                if row.error_code
                else [_producer(producer) for producer in row.active_producers]
                for topic in answer.topics
                for row in topic.partitions
                for key in [TopicPartition(topic.name, row.partition_index)]
            }

        keys = [TopicPartition(*key) for key in partitions]
        route: Route[TopicPartition] = (
            to_leaders(self._cluster, "describe the producers of")
            if node is None
            else to_nodes(self._cluster, lambda _: node)
        )
        return await spread(self._cluster, keys, route, ask, batch=PARTITIONS_BATCH, also_passing=NEW_TOPICS)

    async def hanging(
        self, partitions: Iterable[tuple[str, int]], *, now_ms: int, open_for_ms: int = 900_000
    ) -> Sequence[HangingTransaction]:
        """Transactions in these partitions that their coordinator knows nothing of, and whose producer has written nothing
        for longer than open_for_ms. Raises the first error: what cannot be asked must not look healthy.
        """
        transactions = [
            HangingTransaction(key, producer)
            for key, producers in (await self.producers(partitions)).require().items()
            for producer in producers
            if producer.transaction_start is not None and now_ms - producer.last_timestamp_ms > open_for_ms
        ]
        if not transactions:
            return []
        ids = sorted({item.producer.producer_id for item in transactions})
        listed = (await self.list(producer_ids=ids)).require()
        names = {row.producer_id: row.transactional_id for rows in listed.values() for row in rows}
        known = (await self.describe(names.values())).require()
        hanging = []
        for item in transactions:
            name = names.get(item.producer.producer_id)
            if name is None or item.partition not in known[name].partitions:
                hanging.append(item)
        return hanging

    async def abort(
        self, partition: tuple[str, int], producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Write an abort marker into one partition, for a transaction that hangs there. Raises ResourceError.

        `producers` tells the three numbers. A transaction that its coordinator knows is fenced instead.
        """
        key = TopicPartition(*partition)

        async def ask(
            connection: AsyncConnection, _: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, ClientError | None]:
            marker = wire_markers.WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=[
                    wire_markers.WritableTxnMarkerTopic(name=key.topic, partition_indexes=[key.partition])
                ],
                coordinator_epoch=max(coordinator_epoch, 0),
            )
            request = wire_markers.WriteTxnMarkersRequest(markers=[marker])
            answer = await connection.call(request, wire_markers.WriteTxnMarkersResponse)
            code = answer.markers[0].topics[0].partitions[0].error_code
            return {
                key: ResourceError(code, "abort the transaction in", f"partition {key}") if code else None
            }

        route = to_leaders(self._cluster, "abort the transaction in")
        (await spread(self._cluster, [key], route, ask)).require()

    async def fence(
        self, transactional_ids: Iterable[str], *, timeout_ms: int = FENCE_TIMEOUT_MS
    ) -> Results[str, Fenced]:
        """Refuse all running producers with these transactional ids; an open transaction is aborted.

        timeout_ms: the transaction timeout that the id has from now on, as with a new producer.
        """

        async def ask(
            connection: AsyncConnection, batch: Sequence[str]
        ) -> Mapping[str, Fenced | ClientError]:
            request = InitProducerIdRequest(transactional_id=batch[0], transaction_timeout_ms=timeout_ms)
            answer = await connection.call(request, InitProducerIdResponse)
            if answer.error_code:
                error = ResourceError(answer.error_code, "fence", f"transactional id {batch[0]}")
                return {batch[0]: error}
            return {batch[0]: Fenced(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))}

        route = to_coordinators(self._cluster, "fence", TRANSACTION)
        return await spread(self._cluster, transactional_ids, route, ask, batch=1)


class Transactions(Family[AsyncTransactions]):
    """`Admin.transactions`."""

    list = blocking(AsyncTransactions.list)
    describe = blocking(AsyncTransactions.describe)
    producers = blocking(AsyncTransactions.producers)
    hanging = blocking(AsyncTransactions.hanging)
    abort = blocking(AsyncTransactions.abort)
    fence = blocking(AsyncTransactions.fence)


def _described(row: wire_describe.TransactionState, coordinator: Broker) -> Transaction | ResourceError:
    if row.error_code:
        return ResourceError(row.error_code, "describe", f"transactional id {row.transactional_id}")
    start = row.transaction_start_time_ms
    return Transaction(
        row.transactional_id,
        row.transaction_state,
        ProducerId(row.producer_id),
        ProducerEpoch(row.producer_epoch),
        row.transaction_timeout_ms,
        TimestampMs(start) if start >= 0 else None,
        tuple(TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions),
        coordinator,
    )


def _producer(row: wire_producers.ProducerState) -> ProducerState:
    start = row.current_txn_start_offset
    return ProducerState(
        ProducerId(row.producer_id),
        ProducerEpoch(row.producer_epoch),
        row.last_sequence,
        TimestampMs(row.last_timestamp),
        CoordinatorEpoch(row.coordinator_epoch),
        Offset(start) if start >= 0 else None,
    )
