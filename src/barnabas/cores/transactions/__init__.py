"""PURE: the transaction coordinator, which knows of every transactional id its producer, epoch and transaction.

    from barnabas.cores.transactions import TransactionCore, AddPartitions, EndTxn, ...

`state` is the table of states and the value that is kept per transactional id; `events` what can be asked and
answered; `records` the bytes in `__transaction_state`; `core` decides. Rules that hold throughout:

* What is decided is one record. Memory changes with it; a failed append takes the change back (cores/decision.py).
* Markers are an effect of the record that says Prepare: they are written once it is committed, as often as it takes.
* A producer's epoch only grows. Whoever ends a transaction for its producer (a new producer of the same
  transactional id, a time-out) raises it, so that the producer cannot write any more.
"""

from barnabas.cores.transactions.core import TransactionCore
from barnabas.cores.transactions.events import (
    AddPartitions,
    EndTxn,
    ExpireTransactionalId,
    InitProducer,
    InitReply,
    MarkersWritten,
    TxnReply,
    WriteMarkers,
)
from barnabas.cores.transactions.state import Transaction, TxnState

__all__ = [
    "AddPartitions",
    "EndTxn",
    "ExpireTransactionalId",
    "InitProducer",
    "InitReply",
    "MarkersWritten",
    "Transaction",
    "TransactionCore",
    "TxnReply",
    "TxnState",
    "WriteMarkers",
]
