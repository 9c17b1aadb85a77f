"""Share groups after restarts, lost logs, deleted topics, bugs, and while a change is still being stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from barnabas.broker.api.handlers.shares import (
    share_acknowledge,
)
from barnabas.broker.partitions.acknowledgement import Acknowledgement
from barnabas.broker.partitions.partition import Partition
from barnabas.cores.group.share.partition import ShareChange, SharePartitionCore
from barnabas.records.batch import Record, build_batch, read_records
from barnabas.records.compression import Codec
from barnabas.runtime.clock import ManualClock
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.share_acknowledge import AcknowledgementBatch as AckRange
from barnabas.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from tests.unit.broker.share_stage import (
    ACCEPT,
    GROUP,
    LOCK_MS,
    LONG_MS,
    REJECT,
    RELEASE,
    Runs,
    Stage,
    acquired,
    run,
    stage,
)


def test_states_come_back_after_a_restart(tmp_path: Path) -> None:
    """More changes than fit between two snapshots; then the topic's old records are given up."""
    clock = ManualClock()
    small = {"share__coordinator__snapshot__update__records__per__snapshot": "10"}

    async def before() -> None:
        async with stage(tmp_path, clock, **small) as on:
            await on.join("latest")
            assert on.fetch("b") == []  # latest is where the group begins, from now on
            for _ in range(50):
                on.produce(1)
            for offset in range(44):
                assert on.fetch("b", max_records=1) == [(offset, offset, 1)]
                kind = RELEASE if offset == 40 else ACCEPT
                assert on.acknowledge("b", offset, offset, kind) == (0, 0)
                if offset == 40:
                    assert on.fetch("b", max_records=1) == [(40, 40, 2)]
            on.broker.services.shares.states.prune()
            topic = on.broker.services.partitions.require("__share_group_state", 0)
            assert topic.log_start_offset > 30

    async def after() -> None:
        async with stage(tmp_path, clock, **small) as on:
            assert await on.offsets() == (40, 7)
            assert on.fetch("b") == [(40, 40, 2), (44, 49, 1)]

    asyncio.run(before())
    asyncio.run(after())


def test_what_the_log_has_lost_is_not_taken_for_settled(tmp_path: Path) -> None:
    """A power cut took the log's end but not what was stored of it: the same offsets hold other records then."""

    async def before(on: Stage) -> None:
        for _ in range(3):
            on.produce(2)
        assert on.fetch("b") == [(0, 5, 1)]
        assert on.acknowledge("b", 1, 1, RELEASE) == (0, 0)
        assert on.acknowledge("b", 3, 5, ACCEPT) == (0, 0)

    async def after() -> None:
        async with stage(tmp_path) as on:
            assert on.partition.log_end_offset == 4
            on.produce(4)
            assert on.fetch("b") == [(0, 0, 1), (1, 1, 2), (2, 2, 1), (4, 7, 1)]
            assert await on.offsets() == (0, 7)

    run(tmp_path, before)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (tmp_path / name).unlink()
    log_file = tmp_path / "t-0" / f"{0:020}.log"
    log_file.write_bytes(log_file.read_bytes()[: -log_file.stat().st_size // 3])
    asyncio.run(after())


def test_states_are_kept_while_their_groups_cannot_be_read(tmp_path: Path) -> None:
    """Only a group that is loaded can have forgotten a state."""

    async def scenario(on: Stage) -> None:
        groups, states = on.broker.services.groups, on.broker.services.shares.states
        other = on.key._replace(group_id="never-heard-of")
        on.broker.services.shares.persister.initialize(other, 1, 5)
        seats = dict(groups.runtime.seats)
        groups.runtime.seats.clear()
        await on.broker.services.shares.load_existing()
        assert states.find(on.key) is not None
        assert states.find(other) is not None
        groups.runtime.seats.update(seats)
        await on.broker.services.shares.load_existing()
        assert states.find(on.key) is not None
        assert states.find(other) is None

    run(tmp_path, scenario)


def test_a_group_and_a_topic_that_are_gone_leave_no_state(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(1)
        assert on.fetch("b") == [(0, 0, 1)]
        states = on.broker.services.shares.states
        assert states.find(on.key) is not None
        key = on.key
        await on.broker.services.controller.topics.delete("t")
        assert states.find(key) is None
        await on.broker.services.controller.topics.create("t", 1, 1, {}, {})
        answer = on.send("b")
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await on.join()
        assert states.find(on.key) is not None

    run(tmp_path, scenario)


def test_deleting_the_states_topic_begins_every_group_anew(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(4)
        assert on.fetch("b") == [(0, 3, 1)]
        assert on.acknowledge("b", 0, 1, ACCEPT) == (0, 0)
        await on.broker.services.controller.topics.delete("__share_group_state")
        answer = on.send("b")
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await on.join()
        assert on.fetch("b") == [(0, 3, 1)]  # from where the group's options say
        assert on.acknowledge("b", 0, 3, ACCEPT) == (0, 0)
        assert await on.offsets() == (4, 0)

    run(tmp_path, scenario)


def test_deleting_the_groups_topic_takes_the_states_with_it(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(4)
        assert on.fetch("b") == [(0, 3, 1)]
        assert on.acknowledge("b", 0, 1, ACCEPT) == (0, 0)
        await on.broker.services.controller.topics.delete("__consumer_offsets")
        assert on.broker.services.shares.states.find(on.key) is None
        await on.join()
        assert on.fetch("c") == [(0, 3, 1)]

    run(tmp_path, scenario)


def test_a_bug_in_a_lock_timer_costs_one_queue_and_later_locks_still_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(2)
        assert on.fetch("b") == [(0, 1, 1)]
        real = SharePartitionCore.release_expired

        def failing(core: SharePartitionCore, now_ms: int) -> ShareChange:
            monkeypatch.setattr(SharePartitionCore, "release_expired", real)
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(SharePartitionCore, "release_expired", failing)
        waiting = asyncio.ensure_future(on.send("c", max_wait_ms=LONG_MS))
        await asyncio.sleep(0)
        on.advance(LOCK_MS)
        assert acquired(await waiting) == [(0, 1, 1)]  # what is stored counts no delivery yet
        on.advance(LOCK_MS)
        assert on.fetch("d") == [(0, 1, 2)]

    run(tmp_path, scenario)
    assert len([record for record in caplog.records if "met a bug" in record.message]) == 1


@pytest.mark.parametrize("method", ["acknowledge", "acquire"])
def test_a_bug_in_a_request_costs_that_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(2)
        assert on.fetch("b", max_records=1, share_acquire_mode=1) == [(0, 0, 1)]
        real = getattr(SharePartitionCore, method)

        def failing(*args: Any) -> Any:
            monkeypatch.setattr(SharePartitionCore, method, real)
            real(*args)
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(SharePartitionCore, method, failing)
        if method == "acknowledge":
            assert on.acknowledge("b", 0, 0, ACCEPT) == (0, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            answer = on.send("c")
            assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert on.fetch("c") == [(0, 1, 1)]  # memory that cannot be trusted is gone, and its locks with it
        assert on.acknowledge("c", 0, 1, ACCEPT) == (0, 0)
        assert await on.offsets() == (2, 0)

    run(tmp_path, scenario)


def test_a_batch_that_cannot_be_unpacked_costs_no_neighbour_its_letter(tmp_path: Path) -> None:
    """Its checksum holds, so that it was accepted; no reader can unpack it. Rejected, it gets letters without copies."""

    async def scenario(on: Stage) -> None:
        services = on.broker.services
        await services.controller.topics.create(
            "dlq.t", 1, 1, {}, {"errors.deadletterqueue.group.enable": "true"}
        )
        await on.option("errors.deadletterqueue.topic.name", "dlq.t")
        await on.option("errors.deadletterqueue.copy.record.enable", "true")
        on.produce(1)
        records = [Record(0, on.clock.now_ms(), None, b"damaged") for _ in range(2)]
        damaged = bytearray(build_batch(records, codec=Codec.GZIP))
        damaged[-8:] = b"no gzip!"
        crc32c_offset = 17
        damaged[crc32c_offset : crc32c_offset + 4] = crc32c(bytes(damaged[crc32c_offset + 4 :])).to_bytes(
            4, "big"
        )
        on.partition.append(memoryview(damaged), acks_all=True, zstd_allowed=True)
        on.produce(1)
        assert sum(last - first + 1 for first, last, _ in unread(on.send("b"))) == 4
        assert on.acknowledge("b", 0, 3, REJECT) == (0, 0)
        letters = services.partitions.require("dlq.t", 0)
        written = list(read_records(letters.read_bytes(0, 1 << 20)))
        assert [letter.value for letter in written] == [b"0", None, None, b"0"]
        assert await on.offsets() == (4, 0)

    run(tmp_path, scenario)


def unread(answer: Any) -> Runs:
    """What was locked, without a look at the records."""
    rows = [row for topic in answer.responses for row in topic.partitions]
    return [(r.first_offset, r.last_offset, r.delivery_count) for row in rows for r in row.acquired_records]


@pytest.mark.parametrize("hours", [-1, 1])
def test_locks_do_not_follow_the_wall_clock(tmp_path: Path, hours: int) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(1)
        assert on.fetch("b") == [(0, 0, 1)]
        on.clock._now_ms += hours * 3_600_000
        on.advance(LOCK_MS - 1)
        assert on.fetch("c") == []
        on.advance(1)
        assert on.fetch("c") == [(0, 0, 2)]

    run(tmp_path, scenario)


@pytest.mark.parametrize("lost", [False, True])
def test_an_acknowledgement_is_answered_when_it_is_stored(tmp_path: Path, lost: bool) -> None:
    """The states' topic is replicated elsewhere: its record counts when the high watermark has passed it."""

    class Replicated:
        def __init__(self, partition: Partition) -> None:
            self.partition = partition
            self.made: list[Acknowledgement] = []

        def __getattr__(self, name: str) -> Any:
            return getattr(self.partition, name)

        def append_built(self, batch: bytes) -> Acknowledgement:
            appended = self.partition.append_built(batch)
            pending = Acknowledgement(appended.base_offset, appended.next_offset, -1, 0, True)
            pending.is_ready = False
            self.made.append(pending)
            return pending

    async def scenario(on: Stage) -> None:
        on.produce(2)
        assert on.fetch("b") == [(0, 1, 1)]
        seat = on.broker.services.shares.states.runtime.seats[0]
        replicated = Replicated(seat.partition)
        seat.partition = replicated  # type: ignore[assignment]
        settled = AckRange(first_offset=0, last_offset=1, acknowledge_types=[ACCEPT])
        rows = AcknowledgePartition(partition_index=0, acknowledgement_batches=[settled])
        topic = AcknowledgeTopic(topic_id=on.topic_id, partitions=[rows])
        request = ShareAcknowledgeRequest(
            group_id=GROUP, member_id="b", share_session_epoch=on.epochs["b"], topics=[topic]
        )
        answer = share_acknowledge.handle(on.context(), request)
        assert isinstance(answer, Awaitable)
        waiting = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        assert not waiting.done()
        seat.partition = replicated.partition
        refusal = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads now") if lost else None
        replicated.made[0].finish(refusal)
        row = (await waiting).responses[0].partitions[0]
        assert row.error_code == ErrorCode.NONE, "where it was lost, it was stored again"
        state = on.broker.services.shares.states.find(on.key)
        assert state is not None
        assert state.start_offset == 2

    run(tmp_path, scenario)
