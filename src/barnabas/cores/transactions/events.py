"""The transaction coordinator's requests, answers and effects."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.cores.decision import DoneReply, Producer
from barnabas.cores.transactions.state import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    TV_0,
    TopicPartition,
)
from barnabas.wire.errors import ErrorCode


def _sentence(error: ErrorCode) -> str:
    return f"the transaction coordinator answers {error.name}: try again"


@dataclass(frozen=True, slots=True)
class InitReply:
    """needs_id: nothing was decided; repeat the request with a `fresh_id`."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    needs_id: bool = False


@dataclass(frozen=True, slots=True)
class TxnReply:
    """producer_id, epoch: those to continue with, if the client is told (EndTxn since version 5).

    needs_id: as in InitReply. is_stale: the request came on a connection that its producer no longer uses; a client that
    still reads there must reconnect.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    needs_id: bool = False
    is_stale: bool = False


@dataclass(frozen=True, slots=True)
class InitProducer:
    """InitProducerId with a transactional id.

    expected: the producer that asks to continue (KIP-360), None for a new one. fresh_id: an unused producer id, if one may
    be needed; -1 otherwise.
    """

    token: object
    now_ms: int
    transactional_id: str
    timeout_ms: int
    expected: Producer | None = None
    fresh_id: int = NO_PRODUCER_ID

    def refused(self, error: ErrorCode) -> InitReply:
        """The answer that carries nothing but an error."""
        return InitReply(error, _sentence(error))


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """AddPartitionsToTxn and AddOffsetsToTxn, or the first write to a partition (version TV_2).

    connection: the serial number of the connection on which it came; -1 if that does not matter.
    """

    token: object
    now_ms: int
    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    version: int = TV_0
    connection: int = -1

    def refused(self, error: ErrorCode) -> TxnReply:
        """The answer that carries nothing but an error."""
        return TxnReply(error, _sentence(error))


@dataclass(frozen=True, slots=True)
class EndTxn:
    """EndTxn. version: TV_2 since version 5 of the request. fresh_id, connection: as above."""

    token: object
    now_ms: int
    transactional_id: str
    producer: Producer
    commit: bool
    version: int = TV_0
    fresh_id: int = NO_PRODUCER_ID
    connection: int = -1

    def refused(self, error: ErrorCode) -> TxnReply:
        """The answer that carries nothing but an error."""
        return TxnReply(error, _sentence(error))


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """The marker of the transaction that `producer` ended has been written to every partition."""

    token: object
    now_ms: int
    transactional_id: str
    producer: Producer

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


@dataclass(frozen=True, slots=True)
class ExpireTransactionalId:
    """Remove a transactional id that has not been used for transactional.id.expiration.ms."""

    token: object
    now_ms: int
    transactional_id: str

    def refused(self, error: ErrorCode) -> DoneReply:
        """The answer that carries nothing but an error."""
        return DoneReply(error)


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """An effect: write the end of a transaction to its partitions, then step MarkersWritten.

    producer: with the epoch to be written to the markers.
    """

    transactional_id: str
    producer: Producer
    commit: bool
    partitions: frozenset[TopicPartition]
    version: int
