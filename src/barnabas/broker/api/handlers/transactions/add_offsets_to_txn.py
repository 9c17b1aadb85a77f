"""AddOffsetsToTxn (key 25), versions 0 to 4: announces that the transaction will commit offsets of a group."""

from __future__ import annotations

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.transactions.answers import closed_as_stale, code_for
from barnabas.broker.cluster.internal_topics import OFFSETS_TOPIC
from barnabas.cores.decision import Producer
from barnabas.cores.transactions.state import TV_0
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


async def handle(context: Context, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse | None:
    """The coordinator's error code. None if the request came late, on a connection that the producer has left, which is
    closed.
    """
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    groups = context.services.groups
    try:
        await groups.prepare()
    except ApiError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    reply = await context.services.transactions.add_partitions(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        frozenset({(OFFSETS_TOPIC, groups.runtime.index_of(request.group_id))}),
        TV_0,
        context.connection.serial,
    )
    if closed_as_stale(context, reply):
        return None
    return AddOffsetsToTxnResponse(error_code=code_for(context, reply.error))
