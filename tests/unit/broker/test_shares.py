"""Share groups at the broker, where a client could not see or time what goes on: sessions, waiting, limits, state."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from barnabas.broker.connection import Connection
from barnabas.broker.context import Context
from barnabas.broker.handlers import (
    delete_records,
    describe_share_group_offsets,
    find_coordinator,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
)
from barnabas.broker.partition import Partition
from barnabas.broker.server import BrokerServer
from barnabas.config.dynamic import Operation, Resource
from barnabas.config.loader import load
from barnabas.cores.group.share_state import ShareKey
from barnabas.cores.znode_layout import uuid_text
from barnabas.records.batch import Record, build_batch, read_records
from barnabas.records.control import build_marker
from barnabas.runtime.clock import ManualClock
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.share_acknowledge import AcknowledgementBatch as AckRange
from barnabas.wire.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.wire.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from barnabas.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

GROUP = "g"
LOCK_MS = 30_000
LONG_MS = 20_000
ACCEPT, RELEASE = 1, 2
Runs = list[tuple[int, int, int]]


class Stage:
    """One broker with a clock that the test moves, a topic `t` of one partition, and members of group `g`."""

    def __init__(self, broker: BrokerServer, clock: ManualClock, connection: Connection) -> None:
        self.broker = broker
        self.clock = clock
        self.connection = connection
        self.epochs: dict[str, int] = {}

    @property
    def topic_id(self) -> UUID:
        return self.broker.image.topics["t"].topic_id

    @property
    def partition(self) -> Partition:
        return self.broker.partitions.require("t", 0)

    @property
    def key(self) -> ShareKey:
        return ShareKey(GROUP, self.topic_id, 0)

    def context(self, version: int = 2) -> Context:
        return Context(self.broker, self.connection, version, 1, "test")

    async def option(self, name: str, value: str) -> None:
        changes = [(name, int(Operation.SET), value)]
        await self.broker.controller.alter_configs(Resource.GROUP, GROUP, changes)

    async def join(self, reset: str = "earliest") -> None:
        """The group reads `t` from `reset` on."""
        await self.option("share.auto.offset.reset", reset)
        epoch = 0
        for _ in range(100):
            request = ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id="a", member_epoch=epoch, subscribed_topic_names=["t"]
            )
            answer = await share_group_heartbeat.handle(self.context(1), request)
            assert answer.error_code == ErrorCode.NONE, answer.error_message
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            await asyncio.sleep(0)
        raise AssertionError("nothing was assigned")

    def produce(self, count: int, **options: Any) -> None:
        records = [Record(0, self.clock.now_ms(), None, b"%d" % i) for i in range(count)]
        batch = memoryview(bytearray(build_batch(records, **options)))
        self.partition.append(batch, acks_all=True, zstd_allowed=True)

    def request(self, member: str, epoch: int | None = None, **limits: int) -> ShareFetchRequest:
        values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, **limits}
        return ShareFetchRequest(
            group_id=GROUP,
            member_id=member,
            share_session_epoch=self.epochs.get(member, 0) if epoch is None else epoch,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=[FetchPartition(partition_index=0)])],
            **values,
        )

    def send(self, member: str, epoch: int | None = None, **limits: int) -> Any:
        """The answer to a ShareFetch, or what will be it."""
        request = self.request(member, epoch, **limits)
        if epoch is None:
            self.epochs[member] = request.share_session_epoch + 1
        return share_fetch.handle(self.context(), request)

    def fetch(self, member: str, **limits: int) -> Runs:
        answer = self.send(member, **limits)
        assert not isinstance(answer, Awaitable)
        return acquired(answer)

    def acknowledge(
        self, member: str, first: int, last: int, kind: int, epoch: int | None = None
    ) -> tuple[int, int]:
        """(error of the request, error of the partition)."""
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=member,
            share_session_epoch=self.epochs[member] if epoch is None else epoch,
            topics=[
                AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                AckRange(first_offset=first, last_offset=last, acknowledge_types=[kind])
                            ],
                        )
                    ],
                )
            ],
        )
        if epoch is None:
            self.epochs[member] += 1
        answer = share_acknowledge.handle(self.context(), request)
        return answer.error_code, answer.responses[0].partitions[0].error_code if answer.responses else 0

    async def offsets(self) -> tuple[int, int]:
        """(start offset, lag) of the group."""
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        answer = await describe_share_group_offsets.handle(
            self.context(1), DescribeShareGroupOffsetsRequest(groups=[asked])
        )
        row = answer.groups[0].topics[0].partitions[0]
        return row.start_offset, row.lag

    def advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        self.broker.shares.poll_timers()


def acquired(answer: Any) -> Runs:
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    rows = [row for topic in answer.responses for row in topic.partitions]
    assert all(row.error_code == ErrorCode.NONE for row in rows)
    runs = [(r.first_offset, r.last_offset, r.delivery_count) for row in rows for r in row.acquired_records]
    for row in rows:  # what was locked is among what is sent
        sent = (
            {record.offset for record in read_records(row.records.read())} if row.acquired_records else set()
        )
        for run in row.acquired_records:
            assert {run.first_offset, run.last_offset} <= sent
    return runs


@asynccontextmanager
async def stage(data: Path, clock: ManualClock | None = None, **options: str) -> AsyncIterator[Stage]:
    clock = clock or ManualClock()
    texts = {
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        **{name.replace("__", "."): value for name, value in options.items()},
    }
    broker = BrokerServer(load(None, texts), clock=clock)
    await broker.start()
    listening = socket.create_server(("127.0.0.1", 0))
    far = socket.create_connection(listening.getsockname())
    near, _ = listening.accept()
    near.setblocking(False)
    try:
        if "t" not in broker.image.topics:
            await broker.controller.create_topic("t", 1, 1, {}, {})
        yield Stage(broker, clock, Connection(broker.shard, near, "PLAINTEXT"))
    finally:
        await broker.stop()
        for sock in (near, far, listening):
            sock.close()


def run(data: Path, scenario: Callable[[Stage], Awaitable[None]], **options: str) -> None:
    async def main() -> None:
        async with stage(data, **options) as on:
            await on.join()
            await scenario(on)

    asyncio.run(main())


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
        queue = on.broker.shares.open(*on.key)
        assert on.acknowledge("b", 0, 0, RELEASE, epoch=-1) == (0, 0)
        assert on.broker.shares.open(*on.key) is queue
        assert on.acknowledge("c", 2, 2, ACCEPT, epoch=-1) == (0, 0)
        assert on.broker.shares.open(*on.key) is not queue
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


def test_the_share_coordinator_is_found_by_share_partition(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        good = f"{GROUP}:{uuid_text(on.topic_id)}:0"
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=[good, GROUP])
        answer = await find_coordinator.handle(on.context(6), request)
        assert [one.error_code for one in answer.coordinators] == [0, ErrorCode.INVALID_REQUEST]
        assert answer.coordinators[0].node_id == on.broker.controller.node_id

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
        assert delete_records.handle(on.context(), request).topics[0].partitions[0].error_code == 0
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
        assert on.acknowledge("b", 0, 0, ACCEPT) == (0, 0)
        assert on.fetch("c", max_records=500) == [(100, 199, 1)]

    run(tmp_path, scenario)


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
            on.broker.shares.states.prune()
            topic = on.broker.partitions.require("__share_group_state", 0)
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
        groups, states = on.broker.groups, on.broker.shares.states
        other = on.key._replace(group_id="never-heard-of")
        states.initialize(other, 1, 5)
        shards = dict(groups._shards)
        groups._shards.clear()
        on.broker.shares.load_existing()
        assert states.find(on.key) is not None
        assert states.find(other) is not None
        groups._shards.update(shards)
        on.broker.shares.load_existing()
        assert states.find(on.key) is not None
        assert states.find(other) is None

    run(tmp_path, scenario)


def test_a_group_and_a_topic_that_are_gone_leave_no_state(tmp_path: Path) -> None:
    async def scenario(on: Stage) -> None:
        on.produce(1)
        assert on.fetch("b") == [(0, 0, 1)]
        states = on.broker.shares.states
        assert states.find(on.key) is not None
        key = on.key
        await on.broker.controller.delete_topic("t")
        assert states.find(key) is None
        await on.broker.controller.create_topic("t", 1, 1, {}, {})
        answer = on.send("b")
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        await on.join()
        assert states.find(on.key) is not None

    run(tmp_path, scenario)
