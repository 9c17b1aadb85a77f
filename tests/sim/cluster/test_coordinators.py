"""Every answer of a coordinator that stood still, was replaced, and goes on without knowing it.

The events are a generated list: whoever adds a request to a coordinator's core adds it here too, or the first test fails.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from barnabas.broker.coordinators.doubt import TO_BE_TRIED_AGAIN, Prove, is_harmless
from barnabas.broker.coordinators.runtime import CoordinatorRuntime
from barnabas.cores.decision import Producer
from barnabas.cores.group import events as group_events
from barnabas.cores.group.events import (
    CommitOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DescribeConsumerGroup,
    DescribeGroup,
    FetchedOffset,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetToCommit,
    SyncGroup,
)
from barnabas.cores.group.share import events as share_events
from barnabas.cores.group.share import state as share_states
from barnabas.cores.group.share.events import (
    AlterShareOffsets,
    DeleteShareOffsets,
    DescribeShareGroup,
    ShareHeartbeat,
)
from barnabas.cores.group.share.state import (
    DeleteState,
    InitializeState,
    ReadState,
    ShareKey,
    SummarizeState,
    WriteState,
)
from barnabas.cores.transactions import AddPartitions, EndTxn, InitProducer
from barnabas.cores.transactions import events as transaction_events
from barnabas.cores.transactions.state import TV_0
from barnabas.wire.errors import ErrorCode
from tests.sim.broker.node import Node
from tests.sim.cluster.test_holes import StoryWorld, until
from tests.sim.cluster.world import SESSION_S, run_seed

PAUSE_S: Final = 6.0
E = ErrorCode
TOPIC: Final = UUID(int=7)
STATE: Final = ShareKey("g", TOPIC, 0)
NOT_OF_CLIENTS: Final = {
    "EndTransaction", "ExpireOffsets", "ExpireTransactionalId", "ForgetOffsets", "MarkersWritten", "ShareInitialized",
    "ShareStatesLost", "AdoptState", "SnapshotState", "TopicsMatched",
}  # fmt: skip
"""Events by which parts of a broker tell a core what has happened; no client waits for an answer."""

MakeEvent = Callable[[Any, int], Any]

GROUPS: Final[tuple[MakeEvent, ...]] = (
    lambda t, now: FetchOffsets(t, now, "g", (("t", 0),)),
    lambda t, now: FetchOffsets(t, now, "g", None),
    lambda t, now: CommitOffsets(t, now, "g", (OffsetToCommit("t", 0, 9),)),
    lambda t, now: CommitOffsets(t, now, "unknown", (OffsetToCommit("t", 0, 9),), generation_id=3),
    lambda t, now: DeleteOffsets(t, now, "unknown", (("t", 0),)),
    lambda t, now: DescribeGroup(t, now, "g"),
    lambda t, now: DescribeConsumerGroup(t, now, "g"),
    lambda t, now: DescribeShareGroup(t, now, "g"),
    ListGroups,
    lambda t, now: DeleteGroup(t, now, "unknown"),
    lambda t, now: JoinGroup(t, now, "g", "nobody", "id", "c", "h", 10_000, 10_000, "consumer", (("range", b""),)),
    lambda t, now: SyncGroup(t, now, "g", 1, "nobody", {}),
    lambda t, now: Heartbeat(t, now, "g", 1, "nobody"),
    lambda t, now: LeaveGroup(t, now, "g", (LeavingMember("nobody"),)),
    lambda t, now: ConsumerHeartbeat(t, now, "g", "nobody", 3),
    lambda t, now: ShareHeartbeat(t, now, "g", "nobody", 3),
    lambda t, now: AlterShareOffsets(t, now, "g", {TOPIC: frozenset({0})}),
    lambda t, now: DeleteShareOffsets(t, now, "g", frozenset({TOPIC})),
)  # fmt: skip
STATES: Final[tuple[MakeEvent, ...]] = (
    lambda t, now: InitializeState(t, now, STATE, 0, 0),
    lambda t, now: ReadState(t, now, STATE, 0),
    lambda t, now: WriteState(t, now, STATE, 0, 0, 0, ()),
    lambda t, now: DeleteState(t, now, ShareKey("unknown", TOPIC, 0)),
    lambda t, now: SummarizeState(t, now, STATE),
)
WHO: Final = Producer(1, 7)
TRANSACTIONS: Final[tuple[MakeEvent, ...]] = (
    lambda t, now: AddPartitions(t, now, "g", WHO, frozenset({("t", 0)}), TV_0, 1),
    lambda t, now: EndTxn(t, now, "g", WHO, True, TV_0, -1, 1),
    lambda t, now: InitProducer(t, now, "g", 60_000, WHO, -1),
    Prove,
)
EVENTS: Final = {"group": GROUPS, "share": STATES, "transaction": TRANSACTIONS}
BEFORE: Final[dict[str, tuple[MakeEvent, ...]]] = {
    "group": (lambda t, now: CommitOffsets(t, now, "g", (OffsetToCommit("t", 0, 5),)),),
    "share": (lambda t, now: InitializeState(t, now, STATE, 2, 5), lambda t, now: ReadState(t, now, STATE, 3)),
    "transaction": (lambda t, now: InitProducer(t, now, "g", 60_000, None, 1),),
}  # fmt: skip
AFTER: Final[dict[str, MakeEvent]] = {
    "group": lambda t, now: CommitOffsets(t, now, "g", (OffsetToCommit("t", 0, 7),)),
    "share": lambda t, now: ReadState(t, now, STATE, 4),
    "transaction": lambda t, now: InitProducer(t, now, "g", 60_000, None, -1),
}


def test_every_request_to_a_core_is_in_the_lists() -> None:
    modules = (group_events, share_events, share_states, transaction_events)
    known = {
        name for module in modules for name, member in inspect.getmembers(module, inspect.isclass)
        if hasattr(member, "refused") and "token" in getattr(member, "__annotations__", {})
    }  # fmt: skip
    event_names = {type(make(None, 0)).__name__ for events in EVENTS.values() for make in events}
    assert known - NOT_OF_CLIENTS == event_names - {"Prove"}


class ReplacedWorld(StoryWorld):
    """The coordinator of `kind` stands still for longer than its session; requests wait in its sockets when it goes on."""

    kind = ""
    answers: asyncio.Future[list[Any]]

    def _node(self, number: int, root: Path) -> Node:
        node = super()._node(number, root)
        for option in (
            "offsets.topic.num.partitions",
            "transaction.state.log.num.partitions",
            "share.coordinator.state.topic.num.partitions",
        ):
            node.options[option] = "1"
        return node

    async def _live(self) -> None:
        self.answers = self.loop.create_future()
        await self._end_of_writing(await self._begin(0))
        await self.runtime(self.nodes[0]).prepare()
        await until(lambda: len(self._coordinators()) == 1)
        (first,) = self._coordinators()
        for make in BEFORE[self.kind]:
            assert (await self.runtime(first).request_at(0, make)).error is E.NONE
        assert first.life is not None
        self.loop.pause(first.life, PAUSE_S)
        self.loop.spawn(first.life, self._late_requests(first))  # its first turn when it goes on
        await asyncio.sleep(SESSION_S)
        self.expire(self.sessions[first.name])
        await until(lambda: len(self._coordinators()) == 2)
        (second,) = set(self._coordinators()) - {first}
        assert (await self.runtime(second).request_at(0, AFTER[self.kind])).error is E.NONE
        assert first.life.pauses
        for make, reply in zip(EVENTS[self.kind], await self.answers, strict=True):
            assert reply.error in TO_BE_TRIED_AGAIN, (type(make(None, 0)).__name__, reply)
        await until(lambda: self._coordinators() == [second])

    def runtime(self, node: Node) -> CoordinatorRuntime[Any]:
        assert node.running is not None
        services = node.running.services
        of: dict[str, Any] = {
            "group": services.groups,
            "share": services.shares.states,
            "transaction": services.transactions,
        }
        runtime: CoordinatorRuntime[Any] = of[self.kind].runtime
        return runtime

    def _coordinators(self) -> list[Node]:
        """The brokers that take themselves for the coordinator."""
        return [node for node in self.nodes if node.running is not None and [*self.runtime(node).cores()]]

    async def _late_requests(self, first: Node) -> None:
        asked = [self.runtime(first).request_at(0, make) for make in EVENTS[self.kind]]
        assert not any(one.done() and not is_harmless(one.result()) for one in asked)
        self.answers.set_result(await asyncio.gather(*asked))


@pytest.mark.parametrize("kind", EVENTS)
def test_a_coordinator_that_was_replaced_answers_nothing_from_before(kind: str) -> None:
    run_seed(1, world=type(f"Replaced{kind.title()}", (ReplacedWorld,), {"kind": kind}))


class AwayWorld(ReplacedWorld):
    """The metadata tree is away for longer than a session lasts: the coordinator proves its answers by its followers."""

    kind = "group"

    async def _live(self) -> None:
        await self._end_of_writing(await self._begin(0))
        await self.runtime(self.nodes[0]).prepare()
        await until(lambda: len(self._coordinators()) == 1)
        (only,) = self._coordinators()
        for make in BEFORE["group"]:
            assert (await self.runtime(only).request_at(0, make)).error is E.NONE
        assert only.running is not None
        controller = only.running.services.controller
        for tree in self.sessions.values():
            tree.cut()
        await until(lambda: not controller.is_certain)
        reply = await self.runtime(only).request_at(0, GROUPS[0])
        assert reply.offsets == (FetchedOffset("t", 0, 5),)
        described = await self.runtime(only).request_at(0, lambda t, now: DescribeGroup(t, now, "unknown"))
        assert described.error is E.GROUP_ID_NOT_FOUND


def test_a_coordinator_goes_on_answering_while_the_metadata_tree_is_away() -> None:
    run_seed(1, world=AwayWorld)
