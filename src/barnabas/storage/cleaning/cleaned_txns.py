"""The transactions met by a compaction: which batches were aborted, and which markers are no longer needed."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.cores.producers import CompletedTxn
from barnabas.records.batch import BatchHeader, records_of
from barnabas.records.control import ControlType, control_type


class CleanedTxns:
    """Must be called for the log's batches in order.

    Records of aborted transactions are removed. The marker of a transaction, aborted or committed, may be removed once none
    of its batches is left. Source: Kafka's CleanedTransactionMetadata.
    """

    def __init__(self, aborted: Iterable[CompletedTxn]) -> None:
        self._coming = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
        self._aborted: dict[int, CompletedTxn] = {}
        self._aborted_with_batches: set[int] = set()
        self._committed: set[int] = set()
        self.retained: list[CompletedTxn] = []
        """Aborted transactions that still have batches: entries for the new segment's index."""

    def on_batch(self, header: BatchHeader) -> bool:
        """A data batch; returns whether it belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted_with_batches.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control(self, header: BatchHeader, view: memoryview) -> bool:
        """A control batch; returns whether it is no longer needed. Raises CorruptBatch."""
        self._begin_up_to(header.last_offset)
        record = next(records_of(view, 0, header), None)
        if record is None:
            return True
        kind = control_type(record)
        producer_id = header.producer_id
        if kind is ControlType.ABORT:
            txn = self._aborted.pop(producer_id, None)
            if txn is not None and producer_id in self._aborted_with_batches:
                self._aborted_with_batches.discard(producer_id)
                self.retained.append(txn)
                return False
            return True
        if kind is ControlType.COMMIT:
            had_batches = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_batches
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            txn = self._coming.pop()
            self._aborted.setdefault(txn.producer_id, txn)
