"""What one partition knows of producers that number their batches: epochs, sequences, transactions.

An idempotent producer numbers its records per partition. A batch is accepted if its first number follows the last accepted
one; a duplicate of an accepted batch gets the same answer as the original; everything else is out of order. The last five
batches of a producer are remembered, because that is how many it may have in flight.
Source: KIP-98, KIP-360, KIP-890 and Kafka's producer state manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from barnabas.records.batch import NO_SEQUENCE, BatchHeader
from barnabas.records.control import EndTransactionMarker
from barnabas.records.units import CoordinatorEpoch, Offset, ProducerEpoch
from barnabas.wire.errors import ApiError, ErrorCode

BATCHES_KEPT: Final = 5
RETRIED_MS: Final = 600_000
"""For how long a producer may try a batch again: longer than its delivery.timeout.ms is likely to be."""
NO_EPOCH: Final = ProducerEpoch(-1)
NO_OFFSET: Final = Offset(-1)
NO_COORDINATOR: Final = CoordinatorEpoch(-1)
SEQUENCE_MAX: Final = 0x7FFFFFFF


class Origin(Enum):
    """Where a batch comes from, which determines how much is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"  # offset commits and markers carry no sequence numbers
    REPLICATION = "replication"  # already checked by the leader
    REPLAY = "replay"  # our own log, being replayed


class BatchSeen(NamedTuple):
    """One batch of a producer: its sequence numbers, its offsets, and the timestamp that it was answered with."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerSnapshot(NamedTuple):
    """A producer with one of its batches, as a row of a `.snapshot` file stores it. Names are Kafka's."""

    producer_id: int
    producer_epoch: ProducerEpoch
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: CoordinatorEpoch
    current_txn_first_offset: Offset


class CompletedTxn(NamedTuple):
    """A transaction whose marker is at `last_offset`; `last_stable_offset` is the one after it has ended.

    Aborted transactions are stored in the transaction index with these four numbers.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    aborted: bool


class Producer:
    """One producer id in one partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "txn_first_offset")

    def __init__(self, producer_id: int, epoch: ProducerEpoch = NO_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR
        self.last_timestamp = -1
        self.txn_first_offset = NO_OFFSET
        self.batches: list[BatchSeen] = []

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record that was appended; -1 before the first."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The offset of the last record that was appended; -1 before the first."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


class Producers:
    """The producers of one partition, with the transactions that are open in it.

    `ongoing` maps first offset -> producer id, in offset order: transactions begin at the log's end.
    `unreplicated` maps first offset -> marker offset, for transactions that ended above the high watermark;
    they hold the last stable offset down until the marker is replicated.
    """

    __slots__ = ("_table", "ongoing", "unreplicated")

    def __init__(self) -> None:
        self._table: dict[int, Producer] = {}
        self.ongoing: dict[Offset, int] = {}
        self.unreplicated: dict[Offset, Offset] = {}

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._table.values())

    def get(self, producer_id: int) -> Producer | None:
        """A producer by its id, or None."""
        return self._table.get(producer_id)

    # ------------------------------------------------------------------------------------------ decide

    def find_duplicate(self, header: BatchHeader) -> BatchSeen | None:
        """The earlier append of the same batch, if it is among the last five."""
        producer = self._table.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for seen in producer.batches:
            if seen.first_sequence == first and seen.last_sequence == last:
                return seen
        return None

    def check(self, header: BatchHeader, origin: Origin, *, must_start_at_zero: bool = False) -> None:
        """Raises ApiError unless a data batch of a producer with sequence numbers may be appended next.

        must_start_at_zero: the producer's epoch increases by itself (transactions v2), so that a producer without state here
        must begin at sequence 0.
        """
        producer = self._table.get(header.producer_id)
        if producer is None:
            if must_start_at_zero and origin is Origin.CLIENT and header.base_sequence != 0:
                raise _out_of_order(header, "a producer without state here must start at 0")
            return
        if header.producer_epoch < producer.epoch:
            raise _old_epoch(header, producer)
        if origin is Origin.CLIENT:
            self._check_sequence(header, producer, must_start_at_zero)
        if producer.txn_first_offset != NO_OFFSET and not header.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has a transaction open here and wrote outside it",
            )

    def _check_sequence(self, header: BatchHeader, producer: Producer, must_start_at_zero: bool) -> None:
        first = header.base_sequence
        if must_start_at_zero and first != 0 and not producer.batches:
            raise _out_of_order(header, "a producer without batches here must start at 0")
        if header.producer_epoch != producer.epoch:
            if first != 0 and producer.epoch != NO_EPOCH:
                raise _out_of_order(header, f"epoch {header.producer_epoch} is new and must start at 0")
            return
        last = producer.last_sequence
        if first != last + 1 and not (first == 0 and last == SEQUENCE_MAX):
            raise _out_of_order(header, f"the last one here is {last}")

    def check_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, *, transaction_version: int = 0
    ) -> None:
        """Raises ApiError unless a transaction marker may be appended.

        Since transactions v2 the coordinator raises the epoch before each marker. A marker with an unchanged epoch is late,
        unless the transaction is already over; then it is a harmless repetition.
        """
        producer = self._table.get(header.producer_id)
        if producer is None:
            return
        epoch = header.producer_epoch
        late = epoch <= producer.epoch if transaction_version >= 2 else epoch < producer.epoch
        repeated = epoch == producer.epoch and producer.txn_first_offset == NO_OFFSET
        if late and not (transaction_version >= 2 and repeated):
            raise _old_epoch(header, producer)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} for producer {header.producer_id} is older "
                f"than {producer.coordinator_epoch}",
            )

    # ------------------------------------------------------------------------------------------- apply

    def apply(self, header: BatchHeader, base_offset: Offset, seen_ms: int) -> None:
        """A data batch has been written at `base_offset`."""
        producer = self._table.get(header.producer_id)
        if producer is None:
            producer = self._table[header.producer_id] = Producer(header.producer_id)
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.batches.append(
            BatchSeen(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                header.max_timestamp,
            )
        )
        if len(producer.batches) > BATCHES_KEPT:
            del producer.batches[0]
        producer.last_timestamp = seen_ms
        if header.is_transactional and producer.txn_first_offset == NO_OFFSET:
            producer.txn_first_offset = base_offset
            self.ongoing[base_offset] = header.producer_id

    def apply_marker(
        self, header: BatchHeader, base_offset: Offset, marker: EndTransactionMarker, seen_ms: int
    ) -> CompletedTxn | None:
        """End a producer's transaction; None if it had none open here."""
        producer = self._table.get(header.producer_id)
        if producer is None:
            producer = self._table[header.producer_id] = Producer(header.producer_id)
        if producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = seen_ms
        first, producer.txn_first_offset = producer.txn_first_offset, NO_OFFSET
        if first == NO_OFFSET:
            return None
        self.ongoing.pop(first, None)
        self.unreplicated[first] = base_offset
        # What becomes stable once this marker is replicated: everything up to the next open transaction.
        stable = next(iter(self.ongoing), base_offset + 1)
        return CompletedTxn(header.producer_id, first, base_offset, stable, not marker.commit)

    def first_unstable_offset(self) -> Offset | None:
        """The first record of the oldest transaction that is open or whose marker is not yet replicated."""
        first = next(iter(self.ongoing), None)
        if self.unreplicated:
            oldest = min(self.unreplicated)
            return oldest if first is None else min(first, oldest)
        return first

    def advance_high_watermark(self, high_watermark: Offset) -> None:
        """Drop the ended transactions whose markers are below `high_watermark`."""
        for first in [first for first, last in self.unreplicated.items() if last < high_watermark]:
            del self.unreplicated[first]

    def expired(self, now_ms: int, expiration_ms: int) -> list[int]:
        """The producers without an open transaction that have written nothing for `expiration_ms`."""
        return [
            producer.producer_id
            for producer in self._table.values()
            if producer.txn_first_offset == NO_OFFSET and now_ms - producer.last_timestamp >= expiration_ms
        ]

    def forget(self, producer_ids: Iterable[int]) -> None:
        """Drop producers by their ids."""
        for producer_id in producer_ids:
            self._table.pop(producer_id, None)

    def clear(self) -> None:
        """Drop all producers and transactions."""
        self._table.clear()
        self.ongoing.clear()
        self.unreplicated.clear()

    # ---------------------------------------------------------------------------------------- snapshots

    def snapshot(self) -> list[ProducerSnapshot]:
        """The table as stored in a `.snapshot` file: the last batch of each producer, after its earlier ones.

        Kafka writes the last one only: there, a producer that retries another one after a restart gets
        OUT_OF_ORDER_SEQUENCE_NUMBER, and may write it again under a new epoch. Kafka takes the last of several rows of a
        producer, so it can read these files too.
        """
        rows = []
        recent_ms = (
            max((producer.last_timestamp for producer in self._table.values()), default=0) - RETRIED_MS
        )
        for producer in self._table.values():
            if len(producer.batches) > 1 and producer.last_timestamp >= recent_ms:
                rows += [_row(producer, seen, seen.timestamp) for seen in producer.batches[:-1]]
            last = producer.batches[-1] if producer.batches else None
            rows.append(_row(producer, last, producer.last_timestamp, producer.txn_first_offset))
        return rows

    def load(self, rows: Iterable[ProducerSnapshot]) -> None:
        """Replace the table with the rows of a snapshot."""
        self.clear()
        for row in rows:
            producer = self._table.get(row.producer_id)
            if producer is None or producer.epoch != row.producer_epoch:
                producer = self._table[row.producer_id] = Producer(row.producer_id, row.producer_epoch)
            producer.coordinator_epoch = row.coordinator_epoch
            producer.last_timestamp = row.timestamp
            producer.txn_first_offset = row.current_txn_first_offset
            if row.last_offset >= 0:
                first_sequence = NO_SEQUENCE
                if row.last_sequence != NO_SEQUENCE:
                    first_sequence = (row.last_sequence - row.offset_delta) & SEQUENCE_MAX
                producer.batches.append(
                    BatchSeen(
                        first_sequence,
                        row.last_sequence,
                        row.last_offset - row.offset_delta,
                        row.last_offset,
                        row.timestamp,
                    )
                )
        opened = [p for p in self._table.values() if p.txn_first_offset != NO_OFFSET]
        for producer in sorted(opened, key=lambda p: p.txn_first_offset):
            self.ongoing[producer.txn_first_offset] = producer.producer_id


def _row(
    producer: Producer, batch: BatchSeen | None, timestamp: int, txn_first_offset: Offset = NO_OFFSET
) -> ProducerSnapshot:
    return ProducerSnapshot(
        producer.producer_id,
        producer.epoch,
        batch.last_sequence if batch else NO_SEQUENCE,
        batch.last_offset if batch else NO_OFFSET,
        batch.last_offset - batch.first_offset if batch else 0,
        timestamp,
        producer.coordinator_epoch,
        txn_first_offset,
    )


def _out_of_order(header: BatchHeader, why: str) -> ApiError:
    return ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {header.base_sequence} of producer {header.producer_id} is out of order: {why}",
    )


def _old_epoch(header: BatchHeader, producer: Producer) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {header.producer_epoch} of producer {header.producer_id} is older than {producer.epoch}",
    )
