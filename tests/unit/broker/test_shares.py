"""Share groups at the broker, where a client could not see or time what goes on: sessions, waiting, limits, state."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.api.handlers.groups import find_coordinator
from barnabas.broker.api.handlers.records import delete_records
from barnabas.broker.coordinators.shares.fetching import ShareReading
from barnabas.cores.group.share.state import ShareKey
from barnabas.records.control import build_marker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.uuids import uuid_text
from tests.unit.broker.share_stage import (
    ACCEPT,
    GROUP,
    LOCK_MS,
    LONG_MS,
    RELEASE,
    Stage,
    acquired,
    run,
    stage,
)


def test_a_session_counts_its_requests(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(4)
        assert on.send("b", epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert on.fetch("b") == [(0, 3, 1)]
        assert on.send("b", epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert on.acknowledge("b", 0, 1, ACCEPT, epoch=0)[0] == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert on.acknowledge("b", 0, 1, ACCEPT) == (0, 0)
        assert on.acknowledge("b", 0, 9, ACCEPT) == (0, ErrorCode.INVALID_RECORD_STATE)
        assert await on.offsets() == (2, 2)
        assert on.acknowledge("b", 2, 2, ACCEPT, epoch=-1) == (0, 0)  # and it is over
        assert on.acknowledge("b", 3, 3, ACCEPT)[0] == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert on.fetch("c") == [(3, 3, 1)]

    run(tmp_path, scenario)


def test_a_lost_connection_ends_its_sessions(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(2)
        assert on.fetch("b") == [(0, 1, 1)]
        on.connection.close(None)
        assert on.send("b", epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert on.fetch("c") == [(0, 1, 1)]  # a delivery that was not one does not count

    run(tmp_path, scenario)


def test_a_group_that_nobody_reads_costs_no_memory(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(4)
        assert on.fetch("b", max_records=2, share_acquire_mode=1) == [(0, 1, 1)]
        assert on.fetch("c") == [(2, 3, 1)]
        queue = on.broker.services.shares.open(*on.key)
        assert on.acknowledge("b", 0, 0, RELEASE, epoch=-1) == (0, 0)
        assert on.broker.services.shares.open(*on.key) is queue
        assert on.acknowledge("c", 2, 2, ACCEPT, epoch=-1) == (0, 0)
        assert on.broker.services.shares.open(*on.key) is not queue
        assert on.send("d").responses[0].partitions[0].acquired_records[0].delivery_count == 2
        assert await on.offsets() == (0, 3)

    run(tmp_path, scenario)


def test_no_more_sessions_than_allowed(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        assert on.fetch("b") == []
        answer = await on.send("c")
        assert answer.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert on.send("b", epoch=0).error_code == ErrorCode.NONE  # its own place

    run(tmp_path, scenario, group__share__max__share__sessions="1")


def test_a_shorter_lock_ends_before_a_longer_one_that_was_taken_first(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(1)
        on.produce(1)
        await on.option("share.record.lock.duration.ms", "60000")
        assert on.fetch("b", max_records=1) == [(0, 0, 1)]
        await on.option("share.record.lock.duration.ms", "15000")
        assert on.fetch("c", max_records=1) == [(1, 1, 1)]
        on.advance(15_000)
        assert on.fetch("d") == [(1, 1, 2)]
        on.advance(15_000)
        assert on.fetch("e") == [(1, 1, 3)]
        on.advance(30_000)
        assert on.fetch("e") == [(0, 0, 2), (1, 1, 4)]

    run(tmp_path, scenario)


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000], ids=["back", "forward"])
def test_a_lock_keeps_its_length_when_the_wall_clock_is_stepped(tmp_path: Path, by_ms: int) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(1)
        assert on.fetch("b") == [(0, 0, 1)]
        on.clock.step(by_ms)
        on.advance(LOCK_MS - 1)
        assert on.fetch("c") == []
        on.advance(1)
        assert on.fetch("c") == [(0, 0, 2)]

    run(tmp_path, scenario)


def test_the_share_coordinator_is_found_by_share_partition(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        good = f"{GROUP}:{uuid_text(on.topic_id)}:0"
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=[good, GROUP])
        answer = await find_coordinator.handle(on.context(6), request)
        assert [coordinator.error_code for coordinator in answer.coordinators] == [
            0,
            ErrorCode.INVALID_REQUEST,
        ]
        assert answer.coordinators[0].node_id == on.broker.services.controller.node_id

    run(tmp_path, scenario)


def test_whole_batches_or_not_more_than_asked_for(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(10)
        on.produce(10)
        assert on.fetch("b", max_records=3, share_acquire_mode=0) == [(0, 9, 1)]
        assert on.fetch("c", max_records=3, share_acquire_mode=1) == [(10, 12, 1)]
        assert on.fetch("d", max_records=99, share_acquire_mode=1) == [(13, 19, 1)]

    run(tmp_path, scenario)


def test_a_fetch_waits_for_new_and_for_released_records(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        waiting = asyncio.ensure_future(on.send("b", max_wait_ms=LONG_MS))
        await asyncio.sleep(0)
        on.produce(1)
        assert acquired(await waiting) == [(0, 0, 1)]
        waiting = asyncio.ensure_future(on.send("c", max_wait_ms=LONG_MS))
        await asyncio.sleep(0)
        assert on.acknowledge("b", 0, 0, RELEASE) == (0, 0)
        assert acquired(await waiting) == [(0, 0, 2)]
        waiting = asyncio.ensure_future(on.send("b", max_wait_ms=LONG_MS))
        await asyncio.sleep(0)
        on.advance(LOCK_MS - 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        on.advance(1)
        assert acquired(await waiting) == [(0, 0, 3)]

    run(tmp_path, scenario)


def test_a_fetch_that_wants_much_takes_what_there_is_when_its_time_is_up(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(1)
        waiting = asyncio.ensure_future(on.send("b", max_wait_ms=20, min_bytes=1 << 20))
        await asyncio.sleep(0)
        assert on.fetch("c", max_records=0) == []
        assert acquired(await waiting) == [(0, 0, 1)]
        assert acquired(await on.send("c", max_wait_ms=1)) == []

    run(tmp_path, scenario)


def test_records_of_aborted_transactions_are_never_handed_out(tmp_path: Path) -> None:
    def end(on: Stage, *, commit: bool) -> None:
        marker = build_marker(
            commit=commit, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=on.clock.now_ms()
        )
        on.partition.append_built(marker)

    async def scenario(on: Stage) -> None:
        await on.option("share.isolation.level", "read_committed")
        txn: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
        on.produce(2, base_sequence=0, **txn)  # 0, 1: aborted at 2
        assert on.fetch("b") == []  # still open
        end(on, commit=False)
        assert on.fetch("b") == []
        assert await on.offsets() == (0, 3)
        on.produce(2, base_sequence=2, **txn)  # 3, 4: committed at 5
        end(on, commit=True)
        on.produce(1)  # 6
        on.produce(1, base_sequence=4, **txn)  # 7: open
        assert on.fetch("b", max_bytes=1) == [(3, 4, 1)]
        assert on.fetch("b", max_bytes=1) == [(6, 6, 1)]  # not what lies before it: the marker at 5
        assert on.acknowledge("b", 3, 4, ACCEPT) == (0, 0)
        assert on.acknowledge("b", 6, 6, ACCEPT) == (0, 0)
        assert await on.offsets() == (7, 1)

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("reset", "first"),
    [
        ("earliest", 0),
        ("by_duration:PT15S", 1),
        ("by_duration:P1DT1H", 0),
        ("by_duration:PT1S", 2),
        ("latest", 2),
    ],
)
def test_where_a_group_begins(tmp_path: Path, reset: str, first: int) -> None:
    """In `t` lie records of 20 s and of 10 s ago; one more comes after the group has begun."""

    async def main() -> None:
        async with stage(tmp_path) as on:
            on.produce(1)
            on.advance(10_000)
            on.produce(1)
            on.advance(10_000)
            await on.join(reset)
            begun = on.fetch("b", max_records=1, share_acquire_mode=1)
            on.produce(1)
            begun = begun or on.fetch("b", max_records=1, share_acquire_mode=1)
            assert begun == [(first, first, 1)]

    asyncio.run(main())


def test_deleted_records_are_done_with(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        for _ in range(4):
            on.produce(5)
        assert on.fetch("b", max_records=5) == [(0, 4, 1)]
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=12)]
                )
            ]
        )
        answer = await delete_records.handle(on.context(), request)
        assert answer.topics[0].partitions[0].error_code == 0
        assert on.fetch("c", max_records=5) == [(12, 19, 1)]
        assert (await on.offsets())[0] == 12

    run(tmp_path, scenario)


def test_a_locked_record_holds_the_window_but_not_beyond_the_limit(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        await on.option("share.partition.max.record.locks", "100")
        for _ in range(30):
            on.produce(10)
        assert on.fetch("b", max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
        got = on.fetch("c", max_records=500)
        assert got == [(1, 99, 1)]
        assert on.acknowledge("c", 1, 99, ACCEPT) == (0, 0)
        assert on.fetch("c", max_records=500) == []
        assert await on.offsets() == (0, 201)  # 300 records, 99 of them done
        waiting = asyncio.ensure_future(on.send("c", max_records=500, max_wait_ms=LONG_MS))
        await asyncio.sleep(0)
        assert on.acknowledge("b", 0, 0, ACCEPT) == (0, 0)
        assert acquired(await waiting) == [(100, 199, 1)]

    run(tmp_path, scenario)


def test_what_is_accepted_wakes_no_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of fifty mostly waits: each acknowledgement would have all of them look in vain."""

    async def scenario(on: Stage) -> None:
        on.produce(4)
        assert on.fetch("b") == [(0, 3, 1)]
        looks: list[ShareReading] = []
        real = ShareReading.read
        monkeypatch.setattr(ShareReading, "read", lambda self, **how: looks.append(self) or real(self, **how))
        waiting = asyncio.ensure_future(on.send("c", max_wait_ms=LONG_MS))
        await asyncio.sleep(0)
        looks.clear()
        assert on.acknowledge("b", 0, 1, ACCEPT) == (0, 0)
        assert not looks
        assert on.acknowledge("b", 2, 3, RELEASE) == (0, 0)
        assert acquired(await waiting) == [(2, 3, 2)]
        assert looks

    run(tmp_path, scenario)


@pytest.mark.parametrize("how", ["a higher limit", "deleted records", "other offsets"])
def test_a_waiting_fetch_notices_room_that_others_make(tmp_path: Path, how: str) -> None:
    async def scenario(on: Stage) -> None:
        await on.option("share.partition.max.record.locks", "100")
        for _ in range(30):
            on.produce(10)
        assert on.fetch("b", max_records=500) == [(0, 99, 1)]
        waiting = asyncio.ensure_future(on.send("c", max_records=500, max_wait_ms=LONG_MS))
        await asyncio.sleep(0)
        if how == "a higher limit":
            await on.option("share.partition.max.record.locks", "120")
            assert acquired(await waiting) == [(100, 119, 1)]
        elif how == "deleted records":
            rows = [DeleteRecordsPartition(partition_index=0, offset=50)]
            asked = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=rows)])
            await delete_records.handle(on.context(), asked)
            assert acquired(await waiting) == [(100, 149, 1)]
        else:
            on.broker.services.shares.forget(GROUP, on.topic_id, (0,))
            state_epoch = on.broker.services.shares.states.find(on.key).state_epoch
            await on.broker.services.shares.begin_state(on.key, state_epoch + 1, 200)
            assert acquired(await waiting) == [(200, 299, 1)]

    run(tmp_path, scenario)


def test_new_options_while_a_woken_fetch_opens_another_queue(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        await on.broker.services.controller.topics.create("u", 1, 1, {}, {})
        shares, other = on.broker.services.shares, on.broker.services.image.topics["u"].topic_id

        class Waiting:
            def wake(self) -> None:
                opened.append(shares.open(GROUP, other, 0))

        opened: list[object] = []
        await shares.begin_state(ShareKey(GROUP, other, 0), 1)
        shares.open(*on.key).waiters[Waiting()] = None
        await on.option("share.partition.max.record.locks", "100")
        assert opened
        assert shares.options_of(GROUP).limits.partition_max_record_locks == 100
        shares.open(*on.key).waiters.clear()

    run(tmp_path, scenario)
