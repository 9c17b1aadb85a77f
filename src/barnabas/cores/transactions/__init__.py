"""PURE: the transaction coordinator, which stores the producer, epoch and transaction of every transactional id.

    from barnabas.cores.transactions import TransactionCore, AddPartitions, EndTxn, ...

`state` has the table of states and the value stored per transactional id; `events` the requests and answers; `records` the
format in `__transaction_state`; `core` decides. Rules for all of them:

* A decision is one entry. Memory changes when it is replayed, after it was appended (cores/decision.py).
* Markers are an effect of the entry with state Prepare: they are written once it is committed, with as many retries as
  needed.
* A producer's epoch only grows. Whatever ends a transaction in place of its producer (a new producer with the same
  transactional id, a time-out) raises it, so that the producer can no longer write.
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
