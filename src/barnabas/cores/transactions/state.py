"""The states of a transactional id as a table, and the value stored for each id.

Numbers, names and transitions are Kafka's (TransactionState, TransactionMetadata).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

TopicPartition = tuple[str, int]

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
EPOCH_MAX: Final = 0x7FFF
EPOCH_EXHAUSTED: Final = EPOCH_MAX - 1
"""The last epoch that a client may get: the one above it is reserved for fencing."""

TV_0: Final = 0
"""Transactions before KIP-890: clients name the partitions, and an epoch lasts for many transactions."""
TV_2: Final = 2
"""KIP-890: writing adds the partition, and every end of a transaction raises the epoch."""


class TxnState(IntEnum):
    """`transaction_status` of a record in __transaction_state."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7
    """Between two steps of one event, never stored: the epoch has been raised, the abort has not begun."""

    @property
    def text(self) -> str:
        """As ListTransactions and DescribeTransactions name it: "PrepareCommit"."""
        return self.name.title().replace("_", "")


TXN_NEXT: Final[Mapping[TxnState, frozenset[TxnState]]] = {
    TxnState.EMPTY: frozenset(
        {TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD},
    ),
    TxnState.ONGOING: frozenset(
        {TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT, TxnState.PREPARE_EPOCH_FENCE},
    ),
    TxnState.PREPARE_COMMIT: frozenset({TxnState.COMPLETE_COMMIT}),
    TxnState.PREPARE_ABORT: frozenset({TxnState.COMPLETE_ABORT}),
    TxnState.COMPLETE_COMMIT: frozenset(
        {TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD}
    ),
    TxnState.COMPLETE_ABORT: frozenset(
        {TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD}
    ),
    TxnState.DEAD: frozenset(),
    TxnState.PREPARE_EPOCH_FENCE: frozenset({TxnState.PREPARE_ABORT}),
}
"""The states that may follow each state. PrepareAbort without an ongoing transaction is only for clients of KIP-890."""

ENDING: Final = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})
AT_REST: Final = frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})


class Transaction(NamedTuple):
    """The state of a transactional id. A change creates a new value.

    previous_producer_id: one whose epochs were exhausted. next_producer_id: will be used once an exhausted producer's
    markers are written. last_epoch: the previous one, as long as a repeated request may still name it; not stored.
    client_version: TV_0 or TV_2, the protocol that the client uses for the transaction.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TxnState
    updated_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH
    client_version: int = TV_0

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left for a client."""
        return self.epoch >= EPOCH_EXHAUSTED

    def become(self, state: TxnState, **changes: Any) -> Transaction:
        """The transactional id in its next state. A transition that is not in the table is a bug."""
        assert state in TXN_NEXT[self.state], (
            f"{self.transactional_id!r} cannot go from {self.state.text} to {state.text}"
        )
        return self._replace(state=state, **changes)
