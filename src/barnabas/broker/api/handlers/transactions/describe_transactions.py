"""DescribeTransactions (key 65), version 0: the state of transactional ids."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from barnabas.broker.api.context import Context
from barnabas.cores.transactions import Transaction
from barnabas.runtime.pace import in_pieces
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


async def handle(context: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """A row for each id, TRANSACTIONAL_ID_NOT_FOUND if it was never used. Times are in ms, the start -1 without a
    transaction; topics that the client may not see are left out.
    """
    rows: list[TransactionState] = []

    def describe() -> Iterator[None]:
        for name in dict.fromkeys(request.transactional_ids):
            rows.append(_described(context, name))
            yield

    await in_pieces(asyncio.get_running_loop(), context.services.clock, describe())
    await _prove(context, rows)
    return DescribeTransactionsResponse(transaction_states=rows)


async def _prove(context: Context, rows: list[TransactionState]) -> None:
    """Refuse what another broker may know better by now."""
    runtime = context.services.transactions.runtime
    if not runtime.partition_count:
        return
    homes = {row.transactional_id: runtime.index_of(row.transactional_id) for row in rows}
    led_here = sorted({*homes.values()} & {index for index, _ in runtime.cores()})
    errors = dict(zip(led_here, (proof.error for proof in await runtime.prove(led_here)), strict=True))
    for number, row in enumerate(rows):
        error = errors.get(homes[row.transactional_id])
        if error:
            rows[number] = _refused(row.transactional_id, error)


def _described(context: Context, name: str) -> TransactionState:
    try:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
        transactions = context.services.transactions
        known = None
        if transactions.runtime.partition_count:
            known = transactions.core_of(name).find(name)
        if known is None:
            raise ApiError(
                ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {name!r} was never used here"
            )
    except ApiError as error:
        return _refused(name, error.code)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=name,
        transaction_state=known.state.text,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms if known.partitions else -1,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=[topic for topic in _topics(known) if context.sees_topic(topic.topic)],
    )


def _refused(name: str, code: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=code,
        transactional_id=name,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=-1,
        producer_id=-1,
        producer_epoch=-1,
    )


def _topics(known: Transaction) -> list[TopicData]:
    by_name: dict[str, list[int]] = {}
    for name, index in sorted(known.partitions):
        by_name.setdefault(name, []).append(index)
    return [TopicData(topic=name, partitions=indexes) for name, indexes in by_name.items()]
