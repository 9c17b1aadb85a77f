"""What the handlers of transactions have in common: error codes by version, and requests that came too late."""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.context import Context
from barnabas.cores.transactions import TxnReply
from barnabas.wire.errors import ErrorCode

FENCED_FROM: Final = 2
"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn know PRODUCER_FENCED since this version."""


def code_for(context: Context, error: ErrorCode) -> ErrorCode:
    """The error as the client's version knows it."""
    if error is ErrorCode.PRODUCER_FENCED and context.version < FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def closed_as_stale(context: Context, reply: TxnReply) -> bool:
    """Close the connection of a request that its client has given up; whoever still reads there connects again.

    An answer would mislead: the request may be one of an earlier transaction, or of this one.
    """
    if reply.is_stale:
        context.connection.close(
            "a request for a transaction came on a connection that its producer has left behind"
        )
    return reply.is_stale
