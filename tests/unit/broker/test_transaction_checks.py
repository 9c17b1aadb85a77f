"""What a broker says of a transactional batch whose coordinator is another broker, or none, or may have been replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.api.handlers.records.implicit import as_produce_knows_it
from barnabas.broker.coordinators.runtime import CoordinatorRuntime
from barnabas.broker.coordinators.transactions import Transactions
from barnabas.broker.partitions.registry import Partitions
from barnabas.coordination.local import LocalTree
from barnabas.cores.decision import Producer
from barnabas.cores.transactions import TxnState
from barnabas.cores.transactions.state import TV_0
from barnabas.wire.errors import ApiError, ErrorCode
from tests.unit.broker.test_transactions import WHERE, becomes, begin, broker, produce

E = ErrorCode


def test_a_broker_without_a_session_refuses_nothing_for_good_and_promises_nothing_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, unless an entry of its own is committed with the answer."""

    async def main() -> None:
        async with broker(tmp_path) as server:
            who = await begin(server)
            transactions = server.services.transactions
            await transactions.end("x", who, True, TV_0, 1)
            await becomes(server, TxnState.COMPLETE_COMMIT)
            older, stranger = Producer(who.producer_id, 7), Producer(who.producer_id + 1, 0)
            with monkeypatch.context() as patch:
                patch.setattr(LocalTree, "safe_until_s", property(lambda tree: -1.0))
                for producer in (who, older, stranger):
                    with pytest.raises(ApiError) as refused:
                        produce(server, producer, 1 if producer == who else 0)
                    assert refused.value.code is E.NOT_ENOUGH_REPLICAS
                    with pytest.raises(ApiError) as refused:
                        transactions.check_for("x", producer, WHERE)
                    assert refused.value.code is E.COORDINATOR_NOT_AVAILABLE
                # An entry that changes nothing proves these answers: all in-sync replicas, this broker alone, have it.
                for producer, commit, error in (
                    (who, True, E.NONE),
                    (who, False, E.INVALID_TXN_STATE),
                    (older, True, E.PRODUCER_FENCED),
                    (stranger, True, E.INVALID_PRODUCER_ID_MAPPING),
                ):
                    reply = await transactions.end("x", producer, commit, TV_0, 1)
                    assert reply.error is error
                # What is written proves itself: a broker that was replaced cannot commit it.
                assert (await transactions.add_partitions("x", who, WHERE, TV_0)).error is E.NONE
                produce(server, who, 1)
                assert (await transactions.end("x", who, True, TV_0, 1)).error is E.NONE
                await becomes(server, TxnState.COMPLETE_COMMIT)
                assert (await transactions.init_producer("y", 60_000, None)).error is E.NONE
            assert (await transactions.end("x", who, True, TV_0, 1)).error is E.NONE
            assert (await transactions.end("x", who, False, TV_0, 1)).error is E.INVALID_TXN_STATE
            with pytest.raises(ApiError) as refused:
                transactions.check_for("x", older, WHERE)
            assert refused.value.code is E.PRODUCER_FENCED

    asyncio.run(main())


def test_while_nobody_is_known_to_be_the_coordinator_records_are_to_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with broker(tmp_path) as server:
            who = await begin(server)
            transactions = server.services.transactions
            assert transactions.is_checked_here("x")
            monkeypatch.setattr(CoordinatorRuntime, "core_of", lambda runtime, name: None)
            assert not transactions.is_checked_here("x")
            reply = await transactions.verify_elsewhere("x", who, WHERE)
            assert reply.error is E.COORDINATOR_NOT_AVAILABLE

    asyncio.run(main())


def test_a_permission_is_of_one_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another broker's coordinator has allowed the newest producer to write: an older one cannot take that away."""

    async def main() -> None:
        async with broker(tmp_path) as server:
            transactions = server.services.transactions
            await transactions.prepare()
            monkeypatch.setattr(CoordinatorRuntime, "is_whole", False)
            transactions.verified[7, "t", 0] = 4
            for epoch in (3, 4, 4):
                allowed = epoch == 4
                if allowed:
                    produce(server, Producer(7, 4), 0)  # the second time: a duplicate
                else:
                    with pytest.raises(ApiError) as refused:
                        produce(server, Producer(7, epoch), 0)
                    assert refused.value.code is E.INVALID_TXN_STATE
            assert not transactions.verified

    asyncio.run(main())


def test_offsets_are_not_stored_after_their_transaction_s_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator on another broker has allowed them, and then ended the transaction."""

    async def main() -> None:
        async with broker(tmp_path) as server:
            transactions = server.services.transactions
            await server.services.groups.prepare()
            where = ("__consumer_offsets", 0)
            monkeypatch.setattr(Transactions, "coordinator_elsewhere", lambda self, name: 2)
            transactions.verified[(7, *where)] = 4
            transactions.check_added("x", Producer(7, 4), where)
            transactions.verified[(7, *where)] = 4
            transactions.on_marker(*where, 7)
            with pytest.raises(ApiError) as refused:
                transactions.check_added("x", Producer(7, 4), where)
            assert refused.value.code is E.COORDINATOR_NOT_AVAILABLE

    asyncio.run(main())


def test_a_broker_that_holds_no_transactional_ids_does_not_take_itself_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic was created while it ran, all on other brokers: it was told of no role, and so of no count."""

    async def main() -> None:
        async with broker(tmp_path) as server:
            runtime = server.services.transactions.runtime
            assert (runtime.partition_count, runtime.is_whole) == (0, True)
            real = Partitions.count

            def count(self: Partitions, topic: str) -> int:
                return 2 if topic == "__transaction_state" else real(self, topic)

            monkeypatch.setattr(Partitions, "count", count)
            assert not runtime.is_whole

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "codes_by_version"),
    [
        (E.CONCURRENT_TRANSACTIONS, {3: E.NOT_ENOUGH_REPLICAS, 11: E.NOT_ENOUGH_REPLICAS, 12: None}),
        (E.TRANSACTION_ABORTABLE, {3: E.INVALID_TXN_STATE, 10: E.INVALID_TXN_STATE, 11: None, 12: None}),
        (E.NOT_COORDINATOR, {3: E.NOT_ENOUGH_REPLICAS, 12: E.NOT_ENOUGH_REPLICAS}),
        (E.COORDINATOR_NOT_AVAILABLE, {3: E.NOT_ENOUGH_REPLICAS, 12: E.NOT_ENOUGH_REPLICAS}),
        (E.PRODUCER_FENCED, {3: E.INVALID_PRODUCER_EPOCH, 12: E.INVALID_PRODUCER_EPOCH}),
        (E.INVALID_PRODUCER_ID_MAPPING, {3: None, 12: None}),
    ],
)
def test_producers_are_told_what_their_version_knows(
    error: ErrorCode, codes_by_version: dict[int, Any]
) -> None:
    """As Kafka's ReplicaManager does."""
    for version, wanted in codes_by_version.items():
        assert as_produce_knows_it(error, version) is (wanted or error)
