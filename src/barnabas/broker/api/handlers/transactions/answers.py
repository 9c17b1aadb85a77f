"""Shared by the handlers of transactions: error codes by version, and requests that arrived too late."""

from __future__ import annotations

from typing import Final

from barnabas.broker.api.context import Context
from barnabas.cores.transactions import TxnReply
from barnabas.wire.errors import ErrorCode

FENCED_FROM: Final = 2
"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn know PRODUCER_FENCED since this version."""


def code_for(context: Context, error: ErrorCode) -> ErrorCode:
    """The error code, replaced by an older one if the client's version does not know it."""
    if error is ErrorCode.PRODUCER_FENCED and context.version < FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def closed_as_stale(context: Context, reply: TxnReply) -> bool:
    """Close the connection of a request that its client has given up; a client that still reads there reconnects.

    An answer would mislead, since the request may belong to an earlier transaction or to the current one.
    """
    if reply.is_stale:
        context.connection.close(
            "a request for a transaction came on a connection that its producer has left behind"
        )
    return reply.is_stale
