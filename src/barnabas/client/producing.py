"""Writing raw batches: one at a time, or a pipelined, idempotent stream of them.

A broker accepts a producer's batches for a partition only in the order of their sequences, and answers a batch that it
already has with its first offset. So a batch whose outcome is unknown may be sent again. After a failure, the batches in
flight are sent again one by one, in order: the first repetition of each either fills the gap or is recognized as a
duplicate.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeAlias

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import BrokerError, BrokerUnavailable
from barnabas.records.columnar import Buffer
from barnabas.records.columnar_encoder import EncodedBatch
from barnabas.records.units import Offset
from barnabas.wire.errors import RETRIABLE, ErrorCode
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BytesLike: TypeAlias = bytes | bytearray | memoryview | Buffer

ACKS_ALL: Final = -1
IN_FLIGHT_MAX: Final = 4
"""Maximum number of requests in flight per connection; a broker remembers a producer's last five batches."""
REQUEST_BYTES_MAX: Final = 4 << 20
_REFUSED_FOR_ORDER: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,)


def produce_request(
    topic: str,
    parts: Iterable[tuple[int, BytesLike]],
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """One request with a batch for each of these partitions."""
    data = [PartitionProduceData(index=partition, records=memoryview(batch)) for partition, batch in parts]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


def _check(row: PartitionProduceResponse, topic: str) -> int:
    """The base offset in the answer for a batch. Raises BrokerError."""
    if row.error_code and row.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        raise BrokerError(row.error_code, f"producing to {topic}-{row.index}", row.error_message)
    return row.base_offset


def produce_one(
    cluster: Cluster,
    topic: str,
    partition: int,
    batch: BytesLike,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> int:
    """Send one batch to its leader and wait, with retries; returns the base offset."""
    request = produce_request(topic, [(partition, batch)], acks, timeout_ms, transactional_id)

    def attempt() -> int:
        connection = cluster.node(cluster.leader(topic, partition))
        try:
            if acks == 0:
                connection.send(request, ProduceResponse, expect_answer=False)
                return -1
            answer = connection.call(request, ProduceResponse)
        except BrokerUnavailable:
            cluster.forget(connection)
            raise
        return _check(answer.responses[0].partition_responses[0], topic)

    return cluster.retry(attempt, [topic])


class Membership(Protocol):
    """The transaction that a stream of batches belongs to."""

    @property
    def transactional_id(self) -> str:
        """Of the transaction's producer."""

    def add(self, topic: str, partitions: Iterable[int]) -> None:
        """Called before batches for these partitions are sent."""


@dataclass(slots=True)
class _InFlight:
    connection: BrokerConnection
    topic: str
    batches: list[EncodedBatch]


class ProduceStream:
    """Sends batches of one idempotent producer with acks=all, with several requests in flight.

    records, bytes: what has been acknowledged so far. ends: the offset after the last acknowledged batch of each partition.
    Each partition gets its batches in the order of `send`. A permanent error is raised by `send` or `flush`; nothing may be
    sent afterwards. joined: the transaction that the batches belong to.
    """

    def __init__(
        self, cluster: Cluster, *, timeout_ms: int = 30_000, joined: Membership | None = None
    ) -> None:
        self.cluster = cluster
        self.timeout_ms = timeout_ms
        self.joined = joined
        self.records = 0
        self.bytes = 0
        self.ends: dict[tuple[str, int], Offset] = {}
        self._transactional_id = None if joined is None else joined.transactional_id
        self._in_flight: deque[_InFlight] = deque()
        self._lanes: dict[int, BrokerConnection] = {}

    def send(self, topic: str, batches: Iterable[EncodedBatch]) -> None:
        """Send complete batches, at most one per partition in a request; waits while many are in flight."""
        if self.joined is not None:
            batches = list(batches)
            self.joined.add(topic, (batch.partition for batch in batches))
        group: list[EncodedBatch] = []
        leader = -1
        size = 0
        for batch in batches:
            target = self.cluster.retry(partial(self.cluster.leader, topic, batch.partition), [topic])
            repeated = any(other.partition == batch.partition for other in group)
            if group and (target != leader or repeated or size + len(batch.data) > REQUEST_BYTES_MAX):
                self._send(leader, topic, group)
                group, size = [], 0
            leader = target
            group.append(batch)
            size += len(batch.data)
        if group:
            self._send(leader, topic, group)

    def flush(self) -> None:
        """Wait until everything sent has been acknowledged."""
        while self._in_flight:
            self._receive()

    def _send(self, leader: int, topic: str, batches: list[EncodedBatch]) -> None:
        while len(self._in_flight) >= IN_FLIGHT_MAX:
            self._receive()
        parts = [(b.partition, b.data) for b in batches]
        request = produce_request(topic, parts, ACKS_ALL, self.timeout_ms, self._transactional_id)
        try:
            # Use one connection per broker for the whole stream: requests on two connections could overtake each other.
            connection = self._lanes.get(leader)
            if connection is None:
                connection = self._lanes[leader] = self.cluster.node(leader)
            connection.send(request, ProduceResponse)
        except BrokerUnavailable:
            self._recover([*self._take_all(), (topic, batches)])
            return
        self._in_flight.append(_InFlight(connection, topic, batches))

    def _take_all(self) -> list[tuple[str, list[EncodedBatch]]]:
        unanswered = [(flight.topic, flight.batches) for flight in self._in_flight]
        self._in_flight.clear()
        return unanswered

    def _receive(self) -> None:
        """Receive the oldest answer; after a temporary failure everything in flight is sent again."""
        oldest = self._in_flight[0]
        try:
            answer = oldest.connection.receive()
        except BrokerUnavailable:
            self._recover(self._take_all())
            return
        rows = {row.index: row for row in answer.responses[0].partition_responses}
        failed = []
        for batch in oldest.batches:
            row = rows[batch.partition]
            if row.error_code in RETRIABLE or row.error_code in _REFUSED_FOR_ORDER:
                failed.append(batch)
            else:
                self._acknowledged(oldest.topic, batch, _check(row, oldest.topic))
        self._in_flight.popleft()
        if failed:
            self._recover([(oldest.topic, failed), *self._take_all()])

    def _acknowledged(self, topic: str, batch: EncodedBatch, base_offset: int) -> None:
        self.records += batch.records
        self.bytes += len(batch.data)
        # A repeated batch that its broker already has may be answered without its offset.
        end = max(base_offset, 0) + batch.records
        self.ends[topic, batch.partition] = Offset(
            max(end, self.ends.get((topic, batch.partition), Offset(0)))
        )

    def _recover(self, unanswered: list[tuple[str, list[EncodedBatch]]]) -> None:
        """Send these batches again one by one, in order, each until it is acknowledged or the deadline passes."""
        self.cluster.close()
        self._lanes.clear()
        time.sleep(self.cluster.options.backoff_s)
        for topic, batches in unanswered:
            for batch in batches:
                base_offset = produce_one(
                    self.cluster,
                    topic,
                    batch.partition,
                    batch.data,
                    ACKS_ALL,
                    self.timeout_ms,
                    self._transactional_id,
                )
                self._acknowledged(topic, batch, base_offset)
