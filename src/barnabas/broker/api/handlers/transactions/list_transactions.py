"""ListTransactions (key 66), versions 0 to 2: the transactional ids of this broker, filtered.

Since 1 filtered by a transaction's duration, since 2 by a regular expression (RE2) that must match the whole id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from barnabas.broker.api.context import Context
from barnabas.cores.acl import Operation, ResourceType
from barnabas.cores.group.consumer.topic_regex import InvalidRegex, compile_topic_regex
from barnabas.cores.transactions import Transaction, TxnState
from barnabas.runtime.pace import in_pieces
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

STATES: Final = {state.text: state for state in TxnState}


async def handle(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """The ids that match and that the client may describe; COORDINATOR_LOAD_IN_PROGRESS until all partitions are
    loaded, since an incomplete list would mislead.
    """
    runtime = context.services.transactions.runtime
    if runtime.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    unknown = [name for name in request.state_filters if name not in STATES]
    states = {STATES[name] for name in request.state_filters if name in STATES}
    matches = None
    if request.transactional_id_pattern:
        try:
            matches = compile_topic_regex(request.transactional_id_pattern).matches
        except InvalidRegex:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    producer_ids = set(request.producer_id_filters)
    now_ms = context.services.clock.now_ms()

    def is_wanted(known: Transaction) -> bool:
        if request.state_filters and known.state not in states:
            return False
        if producer_ids and known.producer_id not in producer_ids:
            return False
        if request.duration_filter >= 0 and not _runs_longer(known, now_ms, request.duration_filter):
            return False
        if matches is not None and not matches(known.transactional_id):
            return False
        return context.allows(
            Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, known.transactional_id, quietly=True
        )

    rows: list[TransactionState] = []
    cores = list(runtime.cores())

    def look() -> Iterator[None]:
        for _, core in cores:
            for known in list(core.transactions.values()):
                if is_wanted(known):
                    rows.append(
                        TransactionState(
                            transactional_id=known.transactional_id,
                            producer_id=known.producer_id,
                            transaction_state=known.state.text,
                        )
                    )
                yield

    await in_pieces(asyncio.get_running_loop(), context.services.clock, look())
    if any(proof.error for proof in await runtime.prove(index for index, _ in cores)):
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)


def _runs_longer(known: Transaction, now_ms: int, duration_ms: int) -> bool:
    running = known.state in (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
    return running and now_ms - known.started_ms > duration_ms
