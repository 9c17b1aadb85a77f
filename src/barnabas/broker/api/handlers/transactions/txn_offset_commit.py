"""TxnOffsetCommit (key 28), versions 0 to 5: offsets that become visible when the transaction commits.

Since 3 it names the member that commits; since 5 it also adds the group's offsets to the transaction.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.once import OFFSETS_PER_STEP, by_topic_in_turns
from barnabas.broker.cluster.internal_topics import OFFSETS_TOPIC
from barnabas.cores.decision import Producer
from barnabas.cores.group.events import CommitOffsets, CommitReply, OffsetToCommit
from barnabas.runtime.pace import Pace
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
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
    pace = Pace(context.services.clock)
    asked = await by_topic_in_turns(
        pace, request.topics, lambda t: t.name, lambda t: t.partitions, lambda p: p.partition_index
    )
    partitions = context.services.partitions
    named = (
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
    known = [piece async for piece in pace.pieces(named, OFFSETS_PER_STEP)]
    errors: Errors = {}
    if known:
        try:
            errors = await _commit(context, request, pace, known)
        except ApiError as error:
            code = _code_for(context, error.code)
            errors = {(row.topic, row.partition): code for piece in known for row in piece}

    def row_of(topic: str, row: TxnOffsetCommitRequestPartition) -> TxnOffsetCommitResponsePartition:
        code = errors.get((topic, row.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return TxnOffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)

    answer = TxnOffsetCommitResponse()
    for topic, rows in asked:
        rows_made = await pace.map(partial(row_of, topic.name), rows)
        answer.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows_made))
    return answer


async def _commit(
    context: Context, request: TxnOffsetCommitRequest, pace: Pace, known: list[tuple[OffsetToCommit, ...]]
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

    def make_event(piece: tuple[OffsetToCommit, ...], token: object, now_ms: int) -> CommitOffsets:
        # Checked in the same turn in which the offsets are stored: nothing can end the transaction in between.
        services.transactions.check_added(request.transactional_id, producer, offsets)
        return CommitOffsets(
            token=token,
            now_ms=now_ms,
            group_id=request.group_id,
            offsets=piece,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            producer=producer,
        )

    errors: Errors = {}
    for piece in known:
        reply: CommitReply = await services.groups.ask(partial(make_event, piece), request.group_id)
        if (
            reply.error
        ):  # what was stored before will be dropped with the transaction, which the client has to abort
            raise ApiError(reply.error)
        errors.update(((row.topic, row.partition), row.error) for row in reply.partitions)
        await pace.rest()
    return errors


def _code_for(context: Context, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and context.version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.version < LOADING_FROM:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
