"""InitProducerId (key 22), versions 0 to 5: an id under which a producer's sequences are checked.

With a transactional id, the answer is that id's producer id with a new epoch, which fences earlier producers. Since 3 a
producer may ask to continue with its current id and epoch (KIP-360).
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation, ResourceType
from barnabas.cores.decision import Producer
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

FENCED_FROM: Final = 4
"""The first version that knows PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH."""


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Producer id and epoch; PRODUCER_FENCED if a newer producer has taken over the transactional id (before version 4
    INVALID_PRODUCER_EPOCH).
    """
    goes_on = request.producer_id != -1
    if request.transactional_id == "" or goes_on != (request.producer_epoch != -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            if not _may_write(context):
                return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            producer_id = await context.services.producer_ids.next_id()
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
        reply = await context.services.transactions.init_producer(
            request.transactional_id,
            request.transaction_timeout_ms,
            Producer(request.producer_id, request.producer_epoch) if goes_on else None,
        )
    except ApiError as error:
        return _refused(error.code)
    if reply.error is ErrorCode.PRODUCER_FENCED and context.version < FENCED_FROM:
        return _refused(ErrorCode.INVALID_PRODUCER_EPOCH)
    if reply.error:
        return _refused(reply.error)
    return InitProducerIdResponse(producer_id=reply.producer_id, producer_epoch=reply.epoch)


def _may_write(context: Context) -> bool:
    """An idempotent producer needs the right to be one, or to write to some topic (KIP-679)."""
    authorizer = context.services.authorizer
    return (
        authorizer is None
        or authorizer.allows_some(context.connection, Operation.WRITE, ResourceType.TOPIC)
        or context.allows_cluster(Operation.IDEMPOTENT_WRITE)
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
