"""AddPartitionsToTxn (key 24), versions 0 to 5: announces the partitions that a transaction will write to.

Versions up to 3 are sent by clients, for one transaction. Since 4 brokers send it for many transactions, and may only ask
whether partitions were added.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import by_topic
from barnabas.broker.api.handlers.transactions.answers import closed_as_stale, code_for
from barnabas.cores.acl import Operation
from barnabas.cores.decision import Producer
from barnabas.cores.links import link_of
from barnabas.cores.transactions.state import TV_0, TV_2, TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

MANY_FROM: Final = 4
ABORTABLE_FROM: Final = 5

Errors = dict[TopicPartition, ErrorCode]


def handle(
    context: Context, request: AddPartitionsToTxnRequest
) -> Awaitable[AddPartitionsToTxnResponse | None]:
    """If a partition of a client's request is refused, none is added. None if the request came late, on a connection
    that the producer has left, which is closed.
    """
    return _many(context, request) if context.version >= MANY_FROM else _one(context, request)


async def _one(context: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse | None:
    wanted = _partitions(request.v3_and_below_topics)
    errors = _unknown(context, wanted)
    if not errors:
        producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        name = request.v3_and_below_transactional_id
        if not name:
            errors = dict.fromkeys(wanted, ErrorCode.INVALID_REQUEST)
        else:
            reply = await context.services.transactions.add_partitions(
                name, producer, frozenset(wanted), TV_0, context.connection.serial
            )
            if closed_as_stale(context, reply):
                return None
            errors = dict.fromkeys(wanted, code_for(context, reply.error))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_rows(wanted, errors))


async def _many(context: Context, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    if not context.allows_cluster(Operation.CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return AddPartitionsToTxnResponse(
        error_code=ErrorCode.NONE,
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=await _answer(context, transaction),
            )
            for transaction in request.transactions
        ],
    )


async def _answer(
    context: Context, transaction: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    wanted = _partitions(transaction.topics)
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    transactions = context.services.transactions
    errors: Errors = {}
    if not transaction.verify_only:
        errors = _unknown(context, wanted)
    if not errors and transaction.verify_only:
        try:
            errors = transactions.check_for(transaction.transactional_id, producer, wanted)
        except ApiError as error:
            errors = dict.fromkeys(wanted, error.code)
        if context.version < ABORTABLE_FROM:
            errors = {
                partition: ErrorCode.INVALID_TXN_STATE if code is ErrorCode.TRANSACTION_ABORTABLE else code
                for partition, code in errors.items()
            }
    elif not errors:
        reply = await transactions.add_partitions(
            transaction.transactional_id, producer, frozenset(wanted), TV_2
        )
        errors = dict.fromkeys(wanted, reply.error)
    return _rows(wanted, errors)


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [
        (topic.name, index)
        for topic, indexes in by_topic(topics, lambda t: t.name, lambda t: t.partitions, lambda p: p)
        for index in indexes
    ]


def _unknown(context: Context, wanted: list[TopicPartition]) -> Errors:
    """Adding is all or nothing: one partition that does not exist, or is a read-only copy, keeps the others out."""
    topics = context.services.image.topics
    missing = {
        (name, index) for name, index in wanted if name not in topics or index not in topics[name].partitions
    }
    linked = {(name, index) for name, index in wanted if link_of(context.services.image, name) is not None}
    errors: Errors = {}
    for partition in wanted if missing or linked else ():
        if partition in missing:
            errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif partition in linked:
            errors[partition] = ErrorCode.POLICY_VIOLATION
        else:
            errors[partition] = ErrorCode.OPERATION_NOT_ATTEMPTED
    return errors


def _rows(wanted: list[TopicPartition], errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    by_name: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for partition in wanted:
        by_name.setdefault(partition[0], []).append(
            AddPartitionsToTxnPartitionResult(
                partition_index=partition[1], partition_error_code=errors[partition]
            )
        )
    return [
        AddPartitionsToTxnTopicResult(name=name, results_by_partition=rows) for name, rows in by_name.items()
    ]
