"""TxnOffsetCommit (key 28), versions 0 to 5: offsets that become visible when the transaction commits.

Since 3 it names the member that commits; since 5 it also adds the group's offsets to the transaction.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import by_topic
from barnabas.broker.cluster.internal_topics import OFFSETS_TOPIC
from barnabas.cores.decision import Producer
from barnabas.cores.group.events import CommitOffsets, CommitReply, OffsetToCommit
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ABORTABLE_FROM: Final = 4
IMPLICIT_FROM: Final = 5
LOADING_FROM: Final = 2
"""The first version that knows COORDINATOR_LOAD_IN_PROGRESS."""

Errors = dict[tuple[str, int], ErrorCode]


async def handle(context: Context, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """An error code for each partition; UNKNOWN_TOPIC_OR_PARTITION for those that do not exist, while the others are
    stored.
    """
    asked = by_topic(request.topics, lambda t: t.name, lambda t: t.partitions, lambda p: p.partition_index)
    partitions = context.services.partitions
    known = tuple(
        OffsetToCommit(
            topic.name,
            row.partition_index,
            row.committed_offset,
            row.committed_leader_epoch,
            row.committed_metadata,
            -1,
        )
        for topic, rows in asked
        for row in rows
        if partitions.exists(topic.name, row.partition_index)
    )
    errors: Errors = {}
    if known:
        try:
            errors = await _commit(context, request, known)
        except ApiError as error:
            code = _code_for(context, error.code)
            errors = {(row.topic, row.partition): code for row in known}
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index,
                        error_code=errors.get(
                            (topic.name, row.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    )
                    for row in rows
                ],
            )
            for topic, rows in asked
        ]
    )


async def _commit(
    context: Context, request: TxnOffsetCommitRequest, known: tuple[OffsetToCommit, ...]
) -> Errors:
    """Hold the offsets back until the transaction ends. Raises ApiError when all are refused."""
    if not request.transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "offsets of a transaction need a transactional id")
    services = context.services
    await services.groups.prepare()
    producer = Producer(request.producer_id, request.producer_epoch)
    offsets = (OFFSETS_TOPIC, services.groups.runtime.index_of(request.group_id))
    if context.version >= IMPLICIT_FROM:
        added = await services.transactions.add_partitions_anywhere(
            request.transactional_id, producer, frozenset({offsets})
        )
    else:
        added = await services.transactions.verify_elsewhere(
            request.transactional_id, producer, frozenset({offsets})
        )
    if added.error:
        raise ApiError(added.error, added.message or "")

    def make_event(token: object, now_ms: int) -> CommitOffsets:
        # Checked in the same turn in which the offsets are stored: nothing can end the transaction in between.
        services.transactions.check_added(request.transactional_id, producer, offsets)
        return CommitOffsets(
            token=token,
            now_ms=now_ms,
            group_id=request.group_id,
            offsets=known,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            producer=producer,
        )

    reply: CommitReply = await services.groups.ask(make_event, request.group_id)
    if reply.error:
        raise ApiError(reply.error)
    return {(row.topic, row.partition): row.error for row in reply.partitions}


def _code_for(context: Context, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and context.version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.version < LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
