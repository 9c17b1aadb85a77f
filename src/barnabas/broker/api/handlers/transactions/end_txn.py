"""EndTxn (key 26), versions 0 to 5: commit or abort. Since 5 each one raises the producer epoch, and returns it."""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.transactions.answers import closed_as_stale, code_for
from barnabas.cores.decision import Producer
from barnabas.cores.transactions.state import TV_0, TV_2
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

NEW_EPOCH_FROM: Final = 5


async def handle(context: Context, request: EndTxnRequest) -> EndTxnResponse | None:
    """Answers once the decision is stored; the markers are written afterwards. None if the request came late, on a
    connection that the producer has left, which is closed.
    """
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    reply = await context.services.transactions.end(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        request.committed,
        TV_2 if context.version >= NEW_EPOCH_FROM else TV_0,
        context.connection.serial,
    )
    if closed_as_stale(context, reply):
        return None
    if reply.error:
        return EndTxnResponse(error_code=code_for(context, reply.error))
    return EndTxnResponse(producer_id=reply.producer_id, producer_epoch=reply.epoch)
