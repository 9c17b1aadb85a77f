"""The states of a transactional id as a table, and what is known of one.

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
"""The last epoch that a client may have: the one above is left to whoever fences it."""

TV_0: Final = 0
"""Transactions as before KIP-890: clients name partitions, and an epoch lasts for many transactions."""
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
    """Between two steps of one event, and never written: the epoch is raised, the abort not yet begun."""

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
"""What may follow each state. PrepareAbort without a transaction under way is for clients of KIP-890 alone."""

ENDING: Final = frozenset({TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT})
AT_REST: Final = frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT})


class Transaction(NamedTuple):
    """What is known of a transactional id. A change makes a new one.

    previous_producer_id: whose epochs were exhausted. next_producer_id: what takes over once an exhausted producer's
    markers are written. last_epoch: the one before, while a repeated request may still name it; not stored.
    client_version: TV_0 or TV_2, how the transaction is spoken of.
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
        """The transactional id in its next state. A transition that the table lacks is a bug."""
        assert state in TXN_NEXT[self.state], (
            f"{self.transactional_id!r} cannot go from {self.state.text} to {state.text}"
        )
        return self._replace(state=state, **changes)
