"""Reads one partition as raw batches; the next fetch is in flight while the last one is processed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import BrokerError, BrokerUnavailable, ClientError
from barnabas.records.columnar import scan
from barnabas.records.units import Offset
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

WAIT_MS = 500
UNKNOWN: Final = Offset(-1)
"""An offset that the broker did not say."""


class OffsetOutOfRange(ClientError):
    """The log begins after the requested offset, or ends before it.

    log_start, log_end: where it begins and ends now (-1 if the broker did not say).
    """

    def __init__(
        self, topic: str, partition: int, offset: Offset, log_start: Offset, log_end: Offset
    ) -> None:
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end
        super().__init__(
            f"offset {offset} of {topic}-{partition} is not there: the log holds {log_start} to {log_end}"
        )


@dataclass(frozen=True, slots=True)
class Fetched:
    """records: raw batches from `start` on (the first may begin before it), a view of newly allocated memory.
    next_offset: after the last whole batch; `start` if there is none. aborted: (producer id, first offset).
    high_watermark and the offsets after it: -1 if the broker did not say."""

    start: Offset
    next_offset: Offset
    records: memoryview
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: tuple[tuple[int, int], ...]


def fetched_of(answer: FetchResponse, topic: str, partition: int, offset: Offset, max_bytes: int) -> Fetched:
    """What the answer to a fetch of one partition holds. Raises OffsetOutOfRange, BrokerError, ClientError."""
    if answer.error_code:
        raise BrokerError(answer.error_code, f"fetching {topic}-{partition} from offset {offset}")
    if not answer.responses:  # Apache Kafka's answer to a client that has used up its quota
        return Fetched(offset, offset, memoryview(b""), UNKNOWN, UNKNOWN, UNKNOWN, ())
    return fetched_partition(answer.responses[0].partitions[0], topic, partition, offset, max_bytes)


def fetched_partition(
    row: PartitionData, topic: str, partition: int, offset: Offset, max_bytes: int
) -> Fetched:
    """One partition of an answer. Raises OffsetOutOfRange, BrokerError, ClientError."""
    doing = f"fetching {topic}-{partition} from offset {offset}"
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRange(
            topic, partition, offset, Offset(row.log_start_offset), Offset(row.high_watermark)
        )
    if row.error_code:
        raise BrokerError(row.error_code, doing)
    records = memoryview(b"") if row.records is None else memoryview(row.records)
    after, _ = scan(records)
    if after < 0 and len(records) >= max_bytes:
        # One batch is larger than a fetch. Brokers since 0.10.1 send it whole, so this is an older one.
        raise ClientError(f"{doing}: the next batch is over {max_bytes} bytes; raise fetch.max.bytes")
    return Fetched(
        offset,
        Offset(max(after, offset)),
        records,
        Offset(row.high_watermark),
        Offset(row.last_stable_offset),
        Offset(row.log_start_offset),
        tuple((a.producer_id, a.first_offset) for a in row.aborted_transactions or ()),
    )


class Reader:
    """Fetches from the leader of one partition, with retries after a change of leader."""

    def __init__(
        self, cluster: Cluster, topic: str, partition: int, *, read_committed: bool, max_bytes: int
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.partition = partition
        self.read_committed = read_committed
        self.max_bytes = max_bytes

    def _request(self, offset: Offset, max_wait_ms: int, min_bytes: int, max_bytes: int) -> FetchRequest:
        partition = FetchPartition(
            partition=self.partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=int(self.read_committed),
            session_epoch=-1,
            topics=[FetchTopic(topic=self.topic, partitions=[partition])],
        )

    def _send(self, offset: Offset, max_wait_ms: int = WAIT_MS, min_bytes: int = 1) -> BrokerConnection:
        connection = self.cluster.node(self.cluster.leader(self.topic, self.partition))
        request = self._request(offset, max_wait_ms, min_bytes, self.max_bytes)
        try:
            connection.send(request, FetchResponse)
        except BrokerUnavailable:
            self.cluster.forget(connection)
            raise
        return connection

    def _receive(self, connection: BrokerConnection, offset: Offset) -> Fetched:
        try:
            answer = connection.receive()
        except BrokerUnavailable:
            self.cluster.forget(connection)
            raise
        return fetched_of(answer, self.topic, self.partition, offset, self.max_bytes)

    def fetch(self, offset: Offset, *, max_wait_ms: int = WAIT_MS, min_bytes: int = 1) -> Fetched:
        """One fetch at `offset`. Raises OffsetOutOfRange and what `Cluster.retry` raises."""

        def attempt() -> Fetched:
            return self._receive(self._send(offset, max_wait_ms, min_bytes), offset)

        return self.cluster.retry(attempt, [self.topic])

    def read(self, start: Offset, end: Offset) -> Iterator[Fetched]:
        """Pieces that together contain start..end-1; `end` must be at or below the high watermark."""
        offset = start
        under_way: BrokerConnection | None = None
        try:
            while offset < end:
                piece: Fetched | None = None
                if under_way is not None:
                    try:
                        piece = self._receive(under_way, offset)
                    except (BrokerUnavailable, BrokerError):
                        self.cluster.forget(under_way)
                    under_way = None
                if piece is None:
                    piece = self.fetch(offset)
                offset = piece.next_offset
                if offset < end:
                    try:
                        under_way = self._send(offset)
                    except (BrokerUnavailable, BrokerError):
                        under_way = None  # requested again, with retries, after this piece
                yield piece
        finally:
            if under_way is not None:  # the caller stopped early: no later request may get this answer
                self.cluster.forget(under_way)
