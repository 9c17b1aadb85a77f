"""Produce since version 12: the first write to a partition adds it to the producer's transaction (KIP-890).

The coordinator answers before the records are appended; on a single node it does so in the same turn of the loop. Partitions
in which the transaction is already open need not be added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.api.context import Context
from barnabas.cores.decision import Producer
from barnabas.cores.transactions.state import TopicPartition
from barnabas.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, BatchHeader, read_header
from barnabas.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.partitions.partition import Partition
    from barnabas.cores.transactions import TxnReply

AS_PRODUCE_KNOWS_IT: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
}
"""Producers retry when replicas are missing, but do not understand the coordinator's own errors."""

ABORTABLE_FROM: Final = 11
IMPLICIT_FROM: Final = 12


def as_produce_knows_it(error: ErrorCode, version: int) -> ErrorCode:
    """A coordinator's error as Kafka tells it to producers of a version of Produce."""
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and version < IMPLICIT_FROM:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return AS_PRODUCE_KNOWS_IT.get(error, error)


Refusals = dict[TopicPartition, ApiError]


class Adding:
    """The partitions of one produce request that are not yet in its transaction."""

    def __init__(self, context: Context, transactional_id: str, *, verify_only: bool = False) -> None:
        """verify_only: the producer adds partitions by itself; the coordinator is only asked whether it did."""
        self._verify_only = verify_only
        self._transactions = context.services.transactions
        self._transactional_id = transactional_id
        self._missing: dict[Producer, set[TopicPartition]] = {}

    def look_at(self, partition: Partition, records: memoryview | None) -> None:
        """Note the partition, unless the batch is not transactional or its transaction is already open there."""
        header = transactional_header(records)
        if header is None:
            return
        producer = partition.log.core.producers.get(header.producer_id)
        is_open = producer is not None and producer.txn_first_offset >= 0
        if not (is_open and producer is not None and producer.epoch == header.producer_epoch):
            wanted = self._missing.setdefault(Producer(header.producer_id, header.producer_epoch), set())
            wanted.add((partition.topic, partition.index))

    def _ask(self, producer: Producer, partitions: frozenset[TopicPartition]) -> asyncio.Future[TxnReply]:
        if self._verify_only:
            verifying = self._transactions.verify_elsewhere(self._transactional_id, producer, partitions)
            return asyncio.ensure_future(verifying)
        return self._transactions.add_partitions_anywhere(self._transactional_id, producer, partitions)

    def ask(self) -> asyncio.Future[Refusals] | Refusals:
        """The refusals, empty when all partitions were added; a future if a coordinator needs time."""
        asked = [
            (partitions, self._ask(producer, frozenset(partitions)))
            for producer, partitions in self._missing.items()
        ]  # fmt: skip
        if all(reply.done() for _, reply in asked):
            return _refusals((partitions, reply.result()) for partitions, reply in asked)
        return asyncio.ensure_future(_answered(asked))


def transactional_header(records: memoryview | None) -> BatchHeader | None:
    """The header of a transactional batch; None for other batches and for unreadable ones."""
    if records is None or len(records) < HEADER_BYTES:
        return None
    header = read_header(records)
    return header if header.attributes & TRANSACTIONAL_BIT and header.producer_id >= 0 else None


async def _answered(asked: Iterable[tuple[set[TopicPartition], asyncio.Future[Any]]]) -> Refusals:
    return _refusals([(partitions, await reply) for partitions, reply in asked])


def _refusals(answers: Iterable[tuple[set[TopicPartition], TxnReply]]) -> Refusals:
    return {
        partition: ApiError(reply.error, reply.message or "")
        for partitions, reply in answers
        if reply.error
        for partition in partitions
    }
