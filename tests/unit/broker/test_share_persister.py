"""What leaders ask of share coordinators on other brokers: order, merging, repetition, and what the requests carry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.coordinators.shares import persister as module
from barnabas.broker.coordinators.shares.persister import Persister
from barnabas.broker.coordinators.shares.state_requests import (
    FORMS,
    StateEvent,
    events_of,
    replies_of,
    request_of,
    response_of,
)
from barnabas.broker.net.peers import PeerLost
from barnabas.cores.group.share.partition import Delivery, StateBatch
from barnabas.cores.group.share.state import (
    DeleteState,
    InitializeState,
    ReadState,
    ShareKey,
    ShareState,
    ShareStateCore,
    StateReply,
    SummarizeState,
    WriteState,
)
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.schema import Message

KEY = ShareKey("g:with:colons", UUID(int=7), 3)
OTHER = KEY._replace(partition=4)
DONE = Delivery.ACKNOWLEDGED


class Coordinator:
    """The share coordinator on broker 2, reached through the protocol's own bytes. `refusals` come before it answers."""

    def __init__(self) -> None:
        self.core = ShareStateCore()
        self.requests: list[Message] = []
        self.refusals: list[ErrorCode | None] = []
        self.gate: asyncio.Event | None = None

    async def call(self, broker: int, request: Message, version: int, timeout_s: float) -> Any:
        assert broker == 2
        self.requests.append(request)
        if self.gate is not None:
            await self.gate.wait()
        refusal = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        if refusal is None:
            raise PeerLost("it was killed")
        read = type(request).decode(memoryview(request.encode(version)), version)
        replies = {
            key: StateReply(refusal) if refusal else self._step(event) for key, event in events_of(read)
        }
        response = response_of(read, replies)
        return type(response).decode(memoryview(response.encode(version)), version)

    def _step(self, event: StateEvent | ApiError) -> StateReply:
        if isinstance(event, ApiError):
            return StateReply(event.code, event.message)
        asked = FORMS[type(event)].event(event.key, FORMS[type(event)].row(event))
        decision = self.core.decide(SimpleStep.of(asked))
        self.core.apply(decision)
        reply = decision.replies[0][1]
        assert isinstance(reply, StateReply)
        return reply


class SimpleStep:
    """Gives an event the token without which a core answers nobody."""

    @staticmethod
    def of(event: StateEvent) -> StateEvent:
        import dataclasses

        return dataclasses.replace(event, token=object(), now_ms=1)


class Stage:
    def __init__(self, leader: int = 2) -> None:
        self.coordinator = Coordinator()
        self.leader = leader
        partition = SimpleNamespace(leader=leader)
        self.image = SimpleNamespace(
            topics={"__share_group_state": SimpleNamespace(partitions={0: partition})}
        )
        self.asked_here: list[StateEvent] = []
        states = SimpleNamespace(ask=self._here)
        loop = asyncio.get_running_loop()
        self.persister = Persister(loop, 1, lambda: self.image, states, self.coordinator)  # type: ignore[arg-type]

    def _here(self, event: StateEvent) -> asyncio.Future[StateReply]:
        self.asked_here.append(event)
        answer: asyncio.Future[StateReply] = asyncio.get_running_loop().create_future()
        answer.set_result(StateReply(ErrorCode.NOT_COORDINATOR))
        return answer

    def write(self, offset: int, key: ShareKey = KEY, epoch: int = 5) -> asyncio.Future[StateReply]:
        batch = StateBatch(offset, offset, DONE, 1)
        return self.persister.write(key, ShareState(1, epoch, 0), offset + 1, (batch,), 0)


def run(scenario: Callable[[Stage], Awaitable[None]], leader: int = 2) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(Stage(leader)), 30)

    asyncio.run(main())


def test_a_state_through_the_requests_of_the_protocol() -> None:
    async def scenario(on: Stage) -> None:
        assert await on.persister.read(KEY, 5) == StateReply()
        assert (await on.persister.initialize(KEY, 1)).error is ErrorCode.NONE
        assert (await on.persister.write(KEY, ShareState(1, 5, -1), 10, (), 0)).error is ErrorCode.NONE
        batch = StateBatch(12, 14, Delivery.AVAILABLE, 2)
        await on.persister.write(KEY, ShareState(1, 5, -1), 11, (batch,), 7)
        state = (await on.persister.read(KEY, 6)).state
        assert state is not None
        assert (state.state_epoch, state.start_offset, state.batches) == (1, 11, (batch,))
        summary = (await on.persister.summary(KEY)).state
        assert summary is not None
        assert (summary.leader_epoch, summary.start_offset, summary.delivery_complete_count) == (6, 11, 7)
        assert (
            await on.persister.write(KEY, ShareState(1, 5, -1), 12, (), 0)
        ).error is ErrorCode.FENCED_LEADER_EPOCH
        assert (await on.persister.initialize(KEY, 0)).error is ErrorCode.FENCED_STATE_EPOCH
        assert (await on.persister.delete(KEY)).error is ErrorCode.NONE
        assert await on.persister.summary(KEY) == StateReply()

    run(scenario)


def test_an_initialization_that_is_repeated_late_takes_nothing_back() -> None:
    async def scenario(on: Stage) -> None:
        await on.persister.initialize(KEY, 1)
        await on.write(9)
        await on.persister.initialize(KEY, 1)
        state = on.coordinator.core.states[KEY]
        assert state.start_offset == 10
        await on.persister.initialize(KEY, 1, 3)  # an administrator's
        assert on.coordinator.core.states[KEY].start_offset == 3

    run(scenario)


def test_writes_that_wait_go_as_one_and_in_their_order() -> None:
    async def scenario(on: Stage) -> None:
        await on.persister.initialize(KEY, 1)
        await on.persister.initialize(OTHER, 1)
        on.coordinator.requests.clear()
        on.coordinator.gate = asyncio.Event()
        answers = [on.write(offset) for offset in range(10)]
        late = on.persister.summary(KEY)
        answers += [on.write(3, OTHER), on.write(20)]
        await asyncio.sleep(0.01)
        assert len(on.coordinator.requests) == 1, "one request carries both share partitions"
        on.coordinator.gate.set()
        assert {(await answer).error for answer in answers} == {ErrorCode.NONE}
        summary = (await late).state
        assert summary is not None
        assert summary.start_offset == 10
        assert on.coordinator.core.states[KEY].start_offset == 21
        assert len(on.coordinator.requests) == 3, (
            "the ten writes and the other's, the summary, the last write"
        )

    run(scenario)


def test_a_moving_coordinator_is_asked_again_and_a_lost_answer_does_no_harm() -> None:
    async def scenario(on: Stage) -> None:
        await on.persister.initialize(KEY, 1)
        moves = [None, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        on.coordinator.refusals = [*moves, ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert (await on.write(4)).error is ErrorCode.NONE
        assert on.coordinator.core.states[KEY].start_offset == 5

    run(scenario)


def test_no_write_is_stored_behind_one_that_was_refused() -> None:
    async def scenario(on: Stage) -> None:
        await on.persister.initialize(KEY, 1)
        on.coordinator.gate = asyncio.Event()
        on.coordinator.refusals = [ErrorCode.FENCED_STATE_EPOCH]
        answers = [on.write(0), on.write(1), on.write(2)]
        read = on.persister.read(KEY, 6)
        behind = on.write(3, epoch=6)
        await asyncio.sleep(0.01)
        on.coordinator.gate.set()
        assert [(await answer).error for answer in answers] == [ErrorCode.FENCED_STATE_EPOCH] * 3
        state = (await read).state
        assert state is not None
        assert state.batches == ()
        assert (await behind).error is ErrorCode.NONE, "a later leader's"

    run(scenario)


def test_letters_come_before_the_write_that_gives_their_records_up() -> None:
    async def scenario(on: Stage) -> None:
        await on.persister.initialize(KEY, 1)
        on.coordinator.requests.clear()
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answer = on.persister.write(KEY, ShareState(1, 5, 0), 1, (), 0, written)
        behind = on.write(1)
        await asyncio.sleep(0.01)
        assert not on.coordinator.requests
        written.set_result(None)
        assert (await answer).error is (await behind).error is ErrorCode.NONE

    run(scenario)


def test_what_is_never_answered_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRY_S", 0.1)

    async def scenario(on: Stage) -> None:
        assert (await on.write(0)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        waiting = on.write(1)
        await asyncio.sleep(0)
        on.persister.close()
        assert (await waiting).error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario, leader=-1)


def test_a_coordinator_on_this_broker_that_is_not_one_yet_is_asked_again() -> None:
    async def scenario(on: Stage) -> None:
        answer = on.write(0)
        assert len(on.asked_here) == 1, "at once, and without a copy of it"
        on.image.topics["__share_group_state"].partitions[0].leader = 2
        assert (await answer).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "which broker 2 says"

    run(scenario, leader=1)


def test_malformed_rows_are_refused_one_by_one() -> None:
    good = WriteState(None, 0, KEY, 1, 1, 0, (StateBatch(3, 4, DONE, 1),), 0)
    bad = WriteState(None, 0, OTHER, 1, 1, 0, (StateBatch(4, 3, DONE, 1),), 0)
    request, _ = request_of([good, bad])
    events = dict(events_of(request))
    assert events[KEY] == good
    refused = events[OTHER]
    assert isinstance(refused, ApiError)
    assert refused.code is ErrorCode.INVALID_REQUEST
    request, _ = request_of([good, good])
    assert len(list(events_of(request))) == 1


@pytest.mark.parametrize(
    "event",
    [
        InitializeState(None, 0, KEY, 2, 5),
        ReadState(None, 0, KEY, 9),
        DeleteState(None, 0, KEY),
        SummarizeState(None, 0, KEY),
    ],
    ids=lambda event: type(event).__name__,
)
def test_events_keep_their_values(event: StateEvent) -> None:
    request, version = request_of([event])
    read = type(request).decode(memoryview(request.encode(version)), version)
    assert list(events_of(read)) == [(KEY, event)]
    refusal = StateReply(ErrorCode.NOT_COORDINATOR, "elsewhere")
    assert replies_of(type(event), KEY.group_id, response_of(read, {KEY: refusal})) == {KEY: refusal}
