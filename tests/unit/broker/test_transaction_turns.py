"""Requests about very many transactions leave every turn of the broker's loop short."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.api.handlers.transactions import (
    describe_transactions,
    list_transactions,
    write_txn_markers,
)
from barnabas.cores.transactions.state import Transaction, TxnState
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.turns import measured

MANY = 30_000
GOAL_MS = 2 * 20
"""As in test_coordinator_turns.py."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    gc.disable()
    with Broker() as broker:
        yield broker
    gc.enable()


def ask(broker: Broker, handler: Any, request: Any) -> Any:
    context = SimpleNamespace(
        services=broker.inside.server.services,
        version=0,
        allows=lambda *_, **__: True,
        allows_cluster=lambda *_, **__: True,
        sees_topic=lambda _: True,
    )
    with measured(broker) as turns:
        answer = broker.inside.wait_for(handler.handle(context, request))
    assert turns.longest_cpu_ms < GOAL_MS
    return answer


def test_listing_transactional_ids(broker: Broker) -> None:
    transactions = broker.inside.server.services.transactions
    broker.inside.wait_for(transactions.prepare())
    _, core = next(transactions.runtime.cores())
    for number in range(MANY):
        name = f"id-{number}"
        core.transactions[name] = Transaction(name, number, 0, 60_000, TxnState.EMPTY, 0)
    request = ListTransactionsRequest(transactional_id_pattern="id-.*7")
    assert len(ask(broker, list_transactions, request).transaction_states) == MANY / 10


def test_describing_transactional_ids(broker: Broker) -> None:
    request = DescribeTransactionsRequest(transactional_ids=[f"id-{number}" for number in range(MANY)])
    assert len(ask(broker, describe_transactions, request).transaction_states) == MANY


def test_writing_markers(broker: Broker) -> None:
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=list(range(MANY)))
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=False, topics=[topic], coordinator_epoch=0
    )
    (result,) = ask(broker, write_txn_markers, WriteTxnMarkersRequest(markers=[marker])).markers
    rows = result.topics[0].partitions
    assert len(rows) == MANY
    assert {row.error_code for row in rows} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
