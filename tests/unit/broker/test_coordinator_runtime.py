"""One fault costs one partition of a coordinator: it is loaded again from its log, and the other groups go on."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators import runtime as module
from barnabas.broker.coordinators.loading import replay_log
from barnabas.broker.coordinators.seats import Seat
from barnabas.broker.server import BrokerServer
from barnabas.config.loader import load
from barnabas.cores.decision import Decision
from barnabas.cores.group import (
    CommitOffsets,
    CommitReply,
    FetchOffsets,
    GroupCoordinatorCore,
    JoinGroup,
    OffsetToCommit,
)
from barnabas.runtime.clock import ManualClock
from barnabas.runtime.machine import Machine
from barnabas.sim.coordinators import check_follows_log
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.header import encode_request
from barnabas.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest

HURT, FINE, WAITS = "my-group", "fine", "waits"
"""The first and the last lie in one partition of the offsets topic, FINE in another."""


@asynccontextmanager
async def broker(data: Path, clock: ManualClock | None = None) -> AsyncIterator[BrokerServer]:
    texts = {
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions": "3",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    server = BrokerServer(load(None, texts), machine=Machine(clock=clock or ManualClock()))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def commit(server: BrokerServer, group_id: str, offset: int) -> ErrorCode:
    offsets = (OffsetToCommit("t", 0, offset),)
    reply = await server.services.groups.ask(
        lambda token, now_ms: CommitOffsets(token, now_ms, group_id, offsets), group_id
    )
    code: ErrorCode = reply.error
    return code


async def committed(server: BrokerServer, group_id: str) -> int:
    deadline_s = time.monotonic() + 60
    while True:
        reply = await server.services.groups.ask(
            lambda token, now_ms: FetchOffsets(token, now_ms, group_id, (("t", 0),)), group_id
        )
        if reply.error is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS or time.monotonic() > deadline_s:
            break
        await asyncio.sleep(0.001)
    assert reply.error is ErrorCode.NONE
    offset: int = reply.offsets[0].offset
    return offset


def seat_of(server: BrokerServer, group_id: str) -> Seat[GroupCoordinatorCore]:
    return server.services.groups.runtime.seats[server.services.groups.runtime.index_of(group_id)]


def fail_once(holder: Any, method: str, *, after: bool = False) -> None:
    """The next call of `method` raises, before or after it did its work."""
    real: Callable[..., Any] = getattr(holder, method)

    def failing(*args: Any, **options: Any) -> Any:
        setattr(holder, method, real)
        if after:
            real(*args, **options)
        raise ZeroDivisionError("a bug")

    setattr(holder, method, failing)


def join(token: Any, now_ms: int) -> JoinGroup:
    return JoinGroup(
        token, now_ms, WAITS, "", "1", "c", "/h", 10_000, 10_000, "x", (("p", b""),), requires_member_id=False
    )


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("place", ["decide", "apply", "append", "timer", "on_loaded", "sweep"])
def test_a_bug_costs_one_partition(
    tmp_path: Path, place: str, after: bool, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with broker(tmp_path, clock) as server:
            assert await commit(server, HURT, 5) is ErrorCode.NONE
            assert await commit(server, FINE, 6) is ErrorCode.NONE
            hurt, fine = seat_of(server, HURT), seat_of(server, FINE)
            assert hurt is not fine
            assert hurt is seat_of(server, WAITS)
            # A rebalance that waits: its request must not wait for ever.
            waiting = server.services.groups.runtime.request(WAITS, join)
            if waiting.done():  # the first member's rebalance ends at once
                waiting = server.services.groups.runtime.request(WAITS, join)
            if place == "append":
                hurt.partition = Failing(hurt.partition, after)  # type: ignore[assignment]
                answer = await commit(server, HURT, 7)
                assert answer is ErrorCode.UNKNOWN_SERVER_ERROR
            elif place in ("decide", "apply"):
                fail_once(hurt.core, place, after=after)
                assert await commit(server, HURT, 7) is ErrorCode.UNKNOWN_SERVER_ERROR
            elif place == "timer":
                fail_once(hurt.core, "decide", after=after)
                clock.advance(60_000)
                server.services.groups.poll_timers()
            elif place == "sweep":
                fail_once(hurt.core, "decide", after=after)
                await server.services.groups.expire_offsets()
            else:
                fail_once(hurt.core, "on_loaded", after=after)
                server.services.groups.runtime._begin(hurt)
            assert seat_of(server, FINE) is fine
            assert await commit(server, FINE, 8) is ErrorCode.NONE
            if not waiting.done():
                raise AssertionError("a request waits for ever")
            assert seat_of(server, HURT) is not hurt
            # What was not acknowledged may have been written; what was is there.
            is_written = place == "apply" or (place == "append" and after)
            assert await committed(server, HURT) == (7 if is_written else 5)
            for _ in range(1_000):
                if await commit(server, HURT, 9) is ErrorCode.NONE:
                    break
            assert await committed(server, HURT) == 9
            assert await committed(server, FINE) == 8

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    bugs = [record for record in caplog.records if "met a bug" in record.message]
    assert len(bugs) == 1
    assert bugs[0].exc_info is not None


class Failing:
    """A partition whose next append meets a bug, before or after it wrote."""

    def __init__(self, partition: Any, after: bool) -> None:
        self._partition = partition
        self._after = after
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)

    def append_built(self, batch: bytes) -> Any:
        if self._failed:
            return self._partition.append_built(batch)
        self._failed = True
        if self._after:
            self._partition.append_built(batch)
        raise ZeroDivisionError("a bug")


def test_a_partition_that_cannot_be_loaded_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.coordinators.runtime.RELOAD_DELAY_S", 0.001)

    async def main() -> None:
        async with broker(tmp_path) as server:
            await commit(server, HURT, 5)
            hurt = seat_of(server, HURT)
            fails = 3

            def replay_log(*args: Any) -> Any:
                nonlocal fails
                if fails:
                    fails -= 1
                    raise ZeroDivisionError("a bug")
                return real(*args)

            real = module.replay_log
            monkeypatch.setattr(module, "replay_log", replay_log)
            fail_once(hurt.core, "decide")
            assert await commit(server, HURT, 6) is ErrorCode.UNKNOWN_SERVER_ERROR
            assert await commit(server, HURT, 6) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            while fails:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert await committed(server, HURT) == 5

    asyncio.run(main())


def test_one_record_that_meets_a_bug_costs_that_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with broker(tmp_path) as server:
            await commit(server, HURT, 5)
            await commit(server, HURT, 6)
            real = GroupCoordinatorCore.replay
            count = 0

            def replay(core: GroupCoordinatorCore, *args: Any, **options: Any) -> None:
                nonlocal count
                count += 1
                if count == 2:
                    raise ZeroDivisionError("a bug")
                real(core, *args, **options)

            monkeypatch.setattr(GroupCoordinatorCore, "replay", replay)
            hurt = seat_of(server, HURT)
            server.services.groups.runtime.reload(hurt)
            assert await committed(server, HURT) == 5

    asyncio.run(main())
    assert [
        record
        for record in caplog.records
        if record.message == "a coordinator's record met a bug; it is left out"
    ]


def test_an_answer_waits_for_the_high_watermark(tmp_path: Path) -> None:
    """Also one that was read from what is not acknowledged yet; a lost append loads the partition again."""

    class Unready:
        def __init__(self) -> None:
            self.is_ready, self.error, self.base_offset = False, None, 0
            self.listeners: list[Any] = []

        def when_ready(self, listener: Any) -> None:
            self.listeners.append(listener)

    class Replicated(Failing):
        def append_built(self, batch: bytes) -> Any:
            coordinators.append(Unready())
            return coordinators[-1]

    coordinators: list[Unready] = []

    async def main() -> None:
        async with broker(tmp_path) as server:
            await commit(server, HURT, 5)
            seat = seat_of(server, HURT)
            real = seat.partition
            seat.partition = Replicated(real, False)  # type: ignore[assignment]
            first = asyncio.ensure_future(commit(server, HURT, 6))
            read = asyncio.ensure_future(committed(server, HURT))
            second = asyncio.ensure_future(commit(server, HURT, 7))
            for _ in range(5):
                await asyncio.sleep(0)
            assert not first.done()
            assert not read.done()
            coordinators[0].is_ready = True
            for listener in coordinators[0].listeners:
                listener(coordinators[0])
            assert await first is ErrorCode.NONE
            assert await read == 6
            assert not second.done()
            seat.partition = real
            coordinators[1].is_ready = True
            coordinators[1].error = type("Lost", (), {"message": "another broker leads now"})()  # type: ignore[assignment]
            for listener in coordinators[1].listeners:
                listener(coordinators[1])
            assert await second is ErrorCode.NOT_COORDINATOR
            assert await committed(server, HURT) == 5

    asyncio.run(main())


@pytest.mark.parametrize(
    "refusal",
    [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.REQUEST_TIMED_OUT],
    ids=lambda code: code.name,
)
@pytest.mark.parametrize("kind", ["groups", "transactions", "shares"])
def test_while_its_topic_is_refused_a_coordinator_is_not_available(
    tmp_path: Path, kind: str, refusal: ErrorCode
) -> None:
    async def refuse(name: str) -> int:
        raise ApiError(refusal, "no broker has heard of it")

    async def main() -> None:
        async with broker(tmp_path) as server:
            services = server.services
            coordinators: dict[str, Any] = {
                "groups": services.groups,
                "transactions": services.transactions,
                "shares": services.shares.states,
            }
            runtime: Any = coordinators[kind].runtime
            ensure, runtime.ensure_topic = runtime.ensure_topic, refuse
            for _ in range(2):  # the second request finds nothing left of the first
                with pytest.raises(
                    ApiError, match=r"cannot be used yet.*no broker has heard of it"
                ) as refused:
                    await runtime.prepare()
                assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            runtime.ensure_topic = ensure
            await runtime.prepare()
            assert runtime.partition_count > 0

    asyncio.run(main())


@pytest.mark.parametrize("is_bug", [False, True], ids=["refusal", "bug"])
def test_a_client_that_goes_before_its_request_fails_leaves_no_unread_exception(
    tmp_path: Path, is_bug: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> list[dict[str, Any]]:
        unread: list[dict[str, Any]] = []
        begun, fails = asyncio.Event(), asyncio.Event()

        async def refuse(name: str) -> int:
            begun.set()
            await fails.wait()
            raise (
                ZeroDivisionError("a bug") if is_bug else ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "not yet")
            )

        async with broker(tmp_path) as server:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
            server.services.shares.states.runtime.ensure_topic = refuse
            _, writer = await asyncio.open_connection("127.0.0.1", next(iter(server.ports.values())))
            request = AlterShareGroupOffsetsRequest(group_id="g", topics=[])
            writer.write(encode_request(request, 0, 1, "c"))
            await begun.wait()
            [connection] = server.services.listeners.connections
            closed = asyncio.Event()
            connection.call_when_closed("test", closed.set)
            writer.close()
            await closed.wait()
            waiting = list(server.dispatcher._tasks)
            fails.set()
            await asyncio.wait(waiting)
            del waiting
            await asyncio.sleep(0)
            gc.collect()
        return unread

    with caplog.at_level(logging.ERROR):
        assert asyncio.run(main()) == []
    failures = [record for record in caplog.records if record.message == "a request failed inside the broker"]
    assert len(failures) == is_bug


def test_what_an_append_releases_comes_after_the_decision_that_is_being_appended(tmp_path: Path) -> None:
    """Appending can raise the high watermark. The effect of an earlier decision then comes back to the same core."""

    class Releases(Failing):
        """The first append commits what was appended before it."""

        def append_built(self, batch: bytes) -> Any:
            appended = self._partition.append_built(batch)
            if not earlier.is_ready:
                earlier.is_ready = True
                earlier.listener(earlier)
            return appended

    class Earlier:
        is_ready, error = False, None

        def when_ready(self, listener: Any) -> None:
            self.listener = listener

    earlier = Earlier()

    async def main() -> None:
        async with broker(tmp_path) as server:
            await commit(server, HURT, 5)
            seat, groups = seat_of(server, HURT), server.services.groups
            seat.partition = Releases(seat.partition, False)  # type: ignore[assignment]
            later: list[asyncio.Future[CommitReply]] = []

            def on_effect(effect: object) -> None:
                event = partial(CommitOffsets, group_id=HURT, offsets=(OffsetToCommit("t", 0, 100),))
                later.append(groups.runtime.request(HURT, event))

            groups.on_effect = on_effect
            groups.runtime._stepping.hold(seat, earlier, Decision(effects=("of an earlier decision",)))  # type: ignore[arg-type]
            assert await commit(server, HURT, 8) is ErrorCode.NONE
            assert [(await reply).error for reply in later] == [ErrorCode.NONE]
            replayed = groups.runtime.new_core(seat.index)
            for _ in replay_log(seat.partition, replayed, 1 << 20, lambda *_: None):
                pass
            assert await committed(server, HURT) == 100
            check_follows_log(seat.core, replayed)

    asyncio.run(main())
