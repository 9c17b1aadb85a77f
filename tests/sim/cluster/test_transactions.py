"""Transactions in a cluster whose coordinator stands still, is replaced, and goes on without knowing it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from barnabas.broker.coordinators.transactions import Transactions
from barnabas.cores.decision import Producer
from barnabas.cores.transactions import TxnState
from barnabas.cores.transactions.state import TV_0
from barnabas.records.batch import Record, build_batch, read_header
from barnabas.sim.machine import EPOCH_MS
from barnabas.wire.errors import ApiError, ErrorCode
from tests.sim.broker.node import Node
from tests.sim.cluster.test_holes import StoryWorld, until
from tests.sim.cluster.world import BROKERS, SESSION_S, run_seed

PAUSE_S: Final = 6.0
NAME = "x"
WHERE = frozenset({("u", 0)})


class ReplacedCoordinatorWorld(StoryWorld):
    """A coordinator is stopped for longer than its session (SIGSTOP). Its producer finds the next one, and begins its next
    transaction there. Requests of that transaction wait in the sockets of the first when it goes on."""

    answers: asyncio.Future[dict[str, ErrorCode]]

    def _node(self, number: int, root: Path) -> Node:
        node = super()._node(number, root)
        node.options["transaction.state.log.num.partitions"] = "1"
        return node

    async def _live(self) -> None:
        self.answers = self.loop.create_future()
        await self._end_of_writing(await self._begin(0))
        await self._running()[0].services.controller.topics.create("u", 1, BROKERS, {}, {})
        await self._running()[0].services.transactions.prepare()
        await until(lambda: len(self._coordinators()) == 1)
        (first,) = self._coordinators()
        coordinator = transactions_of(first)
        begun = await coordinator.init_producer(NAME, 60_000, None)
        producer = Producer(begun.producer_id, begun.epoch)
        assert (await coordinator.add_partitions(NAME, producer, WHERE, TV_0)).error is ErrorCode.NONE
        assert (await coordinator.end(NAME, producer, True, TV_0, 1)).error is ErrorCode.NONE
        await until(lambda: state_at(first) is TxnState.COMPLETE_COMMIT)
        assert first.life is not None
        self.loop.pause(first.life, PAUSE_S)
        self.loop.spawn(first.life, self._late_requests(first, producer))  # its first turn when it goes on
        await asyncio.sleep(SESSION_S)
        self.expire(self.sessions[first.name])
        await until(lambda: len(self._coordinators()) == 2)
        (second,) = set(self._coordinators()) - {first}
        successor = transactions_of(second)
        assert (await successor.add_partitions(NAME, producer, WHERE, TV_0)).error is ErrorCode.NONE
        assert first.life.pauses
        assert await self.answers == {
            "records": ErrorCode.NOT_ENOUGH_REPLICAS,
            "another broker's records": ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "abort": ErrorCode.NOT_COORDINATOR,
            "commit": ErrorCode.NOT_COORDINATOR,
        }
        await until(lambda: self._coordinators() == [second])
        assert (await successor.end(NAME, producer, True, TV_0, 2)).error is ErrorCode.NONE
        await until(lambda: state_at(second) is TxnState.COMPLETE_COMMIT)

    def _coordinators(self) -> list[Node]:
        """The brokers that take themselves for the coordinator."""
        return [
            node
            for node in self.nodes
            if node.running is not None and transactions_of(node).runtime.core_of(NAME) is not None
        ]

    async def _late_requests(self, first: Node, producer: Producer) -> None:
        """What `first` answers while it takes itself for the coordinator and its last transaction for the newest."""
        assert state_at(first) is TxnState.COMPLETE_COMMIT
        transactions = transactions_of(first)
        assert first.running is not None
        answers: dict[str, ErrorCode] = {}
        batch = build_batch(
            [Record(0, EPOCH_MS, None, b"v")], producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch, base_sequence=1, transactional=True,
        )  # fmt: skip
        partition = first.running.services.partitions.require("u", 0)
        try:
            transactions.check(partition, read_header(memoryview(batch)))
        except ApiError as error:
            answers["records"] = error.code
        try:
            transactions.check_for(NAME, producer, WHERE)
        except ApiError as error:
            answers["another broker's records"] = error.code
        for what in ("abort", "commit"):
            reply = await transactions.end(NAME, producer, what == "commit", TV_0, 1)
            answers[what] = reply.error
        self.answers.set_result(answers)


def transactions_of(node: Node) -> Transactions:
    assert node.running is not None
    transactions: Transactions = node.running.services.transactions
    return transactions


def state_at(node: Node) -> TxnState:
    known = transactions_of(node).core_of(NAME).find(NAME)
    assert known is not None
    return known.state


def test_a_coordinator_that_was_replaced_while_it_stood_still_refuses_nothing_for_good() -> None:
    run_seed(1, world=ReplacedCoordinatorWorld)
