"""The state of one partition besides its records: offsets, leader epochs, producers, and what consumers may see.

Invariants: log start <= high watermark <= log end; log start <= last stable offset <= high watermark.
`decide` only reads; `apply` receives what has been appended and is the only way to change the state. The log's
recovery replays batch headers through the same `apply`.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.cores.epochs import LeaderEpochs
from barnabas.cores.partition_offsets import PartitionOffsets
from barnabas.cores.producers import BatchSeen, CompletedTxn, Origin, Producers
from barnabas.records.batch import BatchHeader
from barnabas.records.control import EndTransactionMarker
from barnabas.records.units import LeaderEpoch, Offset
from barnabas.wire.errors import ApiError, ErrorCode

__all__ = ["BatchSeen", "CompletedTxn", "Origin", "PartitionCore"]

LOG_BEGINNING: Final = Offset(0)


class PartitionCore(PartitionOffsets):
    """See the module. All offsets count records."""

    __slots__ = ("_first_unstable",)

    def __init__(self, log_start_offset: Offset = LOG_BEGINNING, epochs: LeaderEpochs | None = None) -> None:
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_start_offset
        self.high_watermark = log_start_offset
        self.epochs = epochs if epochs is not None else LeaderEpochs()
        self.producers = Producers()
        self._first_unstable: Offset | None = None

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The newest epoch in the log, -1 if there is none."""
        return self.epochs.latest

    @property
    def last_stable_offset(self) -> Offset:
        """The end for read_committed consumers: the first record of an open transaction, at most the high watermark."""
        first = self._first_unstable
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, self.log_start_offset)

    # ------------------------------------------------------------------------------------------ decide

    def decide_append(
        self, header: BatchHeader, origin: Origin = Origin.CLIENT, *, must_start_at_zero: bool = False
    ) -> BatchSeen | None:
        """None if the batch may be appended, or the earlier append that it duplicates.

        A duplicate is not written but answered with the `first_offset` and `timestamp` of the earlier append.
        Raises ApiError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, and
        INVALID_RECORD for batches that no client may send.
        """
        if header.producer_id < 0:
            if header.attributes & 0x30 and origin is Origin.CLIENT:
                raise _invalid(header, "is transactional or control and names no producer id")
            return None
        if origin is Origin.CLIENT:
            if header.is_control:
                raise _invalid(header, "is a control batch, which only brokers write")
            if header.base_sequence < 0 or header.producer_epoch < 0:
                if header.base_sequence >= 0 and self.producers.get(header.producer_id) is not None:
                    self.producers.check(header, origin)  # an older epoch than this producer's
                raise _invalid(header, f"has producer id {header.producer_id} but no sequence or epoch")
            seen = self.producers.find_duplicate(header)
            if seen is not None:
                return seen
        self.producers.check(header, origin, must_start_at_zero=must_start_at_zero)
        return None

    def decide_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, *, transaction_version: int = 0
    ) -> None:
        """Raises ApiError unless the marker may be appended."""
        self.producers.check_marker(header, marker, transaction_version=transaction_version)

    def expired_producers(self, now_ms: int, expiration_ms: int) -> list[int]:
        """The producers to pass to `forget_producers`, according to `producer.id.expiration.ms`."""
        return self.producers.expired(now_ms, expiration_ms)

    # ------------------------------------------------------------------------------------------- apply

    def apply(self, header: BatchHeader, base_offset: Offset, leader_epoch: LeaderEpoch, now_ms: int) -> None:
        """A data batch has been written at `base_offset`; offset and epoch in the header are ignored.

        now_ms: time of the append; on replay, when it is unknown, the batch's max timestamp.
        """
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if header.producer_id >= 0:
            self.producers.apply(header, base_offset, now_ms)
            if header.is_transactional and self._first_unstable is None:
                self._first_unstable = self.producers.first_unstable_offset()
        end: Any = base_offset + header.last_offset_delta + 1  # an Offset, without the cost of a call
        self.log_end_offset = end

    def apply_marker(
        self,
        header: BatchHeader,
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
        marker: EndTransactionMarker | None,
        now_ms: int,
    ) -> CompletedTxn | None:
        """A control batch has been written at `base_offset`; `marker` is None if it does not end a transaction.

        If an aborted transaction is returned, it must be added to the transaction index.
        """
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        end: Any = base_offset + header.last_offset_delta + 1  # an Offset, without the cost of a call
        self.log_end_offset = end
        if marker is None or header.producer_id < 0:
            return None
        completed = self.producers.apply_marker(header, base_offset, marker, now_ms)
        self._first_unstable = self.producers.first_unstable_offset()
        return completed

    def assign_epoch(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """A leader of `epoch` starts writing at `start_offset`; True if the checkpoint must be written."""
        return self.epochs.assign(epoch, start_offset)

    def advance_high_watermark(self, high_watermark: Offset) -> bool:
        """Raise the high watermark, up to the log's end; True if it moved. It is never lowered here."""
        if high_watermark > self.log_end_offset:
            high_watermark = self.log_end_offset
        if high_watermark <= self.high_watermark:
            return False
        self.high_watermark = high_watermark
        if self.producers.unreplicated:
            self.producers.advance_high_watermark(high_watermark)
            self._first_unstable = self.producers.first_unstable_offset()
        return True

    def advance_log_start(self, log_start_offset: Offset) -> bool:
        """Records below `log_start_offset` are gone; True if the start has changed.

        Producers are kept: one whose records were all deleted continues with its next sequence (KIP-360).
        """
        if log_start_offset <= self.log_start_offset:
            return False
        self.log_start_offset = log_start_offset
        self.log_end_offset = max(self.log_end_offset, log_start_offset)
        self.high_watermark = max(self.high_watermark, log_start_offset)
        self.epochs.truncate_from_start(log_start_offset)
        if self.producers.unreplicated:
            self.producers.advance_high_watermark(log_start_offset)
            self._first_unstable = self.producers.first_unstable_offset()
        return True

    def forget_producers(self, producer_ids: list[int]) -> None:
        """Forget producers; their next batch is treated as their first."""
        self.producers.forget(producer_ids)

    def reset(self, log_start_offset: Offset, log_end_offset: Offset) -> None:
        """The log was truncated: set its ends, adjust epochs, and clear the producers until they are replayed."""
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = max(min(self.high_watermark, log_end_offset), log_start_offset)
        self.epochs.truncate_from_end(log_end_offset)
        self.epochs.truncate_from_start(log_start_offset)
        self.producers.clear()
        self._first_unstable = None

    def producers_loaded(self) -> None:
        """The producer table was loaded from a snapshot: recompute what depends on it."""
        self._first_unstable = self.producers.first_unstable_offset()

    def check(self) -> None:
        """Assert the invariants; for tests and the simulator."""
        assert self.log_start_offset <= self.high_watermark <= self.log_end_offset
        assert self.log_start_offset <= self.last_stable_offset <= self.high_watermark
        starts = [start for _, start in self.epochs.entries()]
        epochs = [epoch for epoch, _ in self.epochs.entries()]
        assert starts == sorted(set(starts))
        assert epochs == sorted(set(epochs))


def _invalid(header: BatchHeader, why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, f"a batch of {header.record_count} records {why}")
