"""Transactions inside a broker: what a crash interrupts is finished, and a marker that cannot be written is tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.coordinators import markers as module
from barnabas.broker.coordinators.markers import MarkerWriter
from barnabas.broker.server import BrokerServer
from barnabas.config.loader import load
from barnabas.cores.decision import Producer
from barnabas.cores.fetch import FetchPartition
from barnabas.cores.transactions import TxnState
from barnabas.cores.transactions.state import TV_0
from barnabas.records.batch import Record, build_batch
from barnabas.runtime.clock import ManualClock
from barnabas.runtime.machine import Machine
from barnabas.wire.errors import ApiError, ErrorCode

WHERE = frozenset({("t", 0)})


@asynccontextmanager
async def broker(data: Path, clock: ManualClock | None = None) -> AsyncIterator[BrokerServer]:
    texts = {
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "2",
    }
    server = BrokerServer(load(None, texts), machine=Machine(clock=clock or ManualClock()))
    await server.start()
    try:
        if "t" not in server.services.image.topics:
            await server.services.controller.topics.create("t", 1, 1, {}, {})
        yield server
    finally:
        await server.stop()


async def begin(server: BrokerServer, name: str = "x") -> Producer:
    """A producer with a record in a transaction."""
    reply = await server.services.transactions.init_producer(name, 60_000, None)
    who = Producer(reply.producer_id, reply.epoch)
    added = await server.services.transactions.add_partitions(name, who, WHERE, TV_0)
    assert added.error is ErrorCode.NONE
    produce(server, who)
    return who


def produce(server: BrokerServer, who: Producer, sequence: int = 0) -> None:
    batch = build_batch(
        [Record(0, server.clock.now_ms(), None, b"v")], producer_id=who.producer_id,
        producer_epoch=who.producer_epoch, base_sequence=sequence, transactional=True,
    )  # fmt: skip
    partition = server.services.partitions.require("t", 0)
    partition.append(memoryview(bytearray(batch)), acks_all=True, zstd_allowed=True)


def state(server: BrokerServer, name: str = "x") -> TxnState:
    known = server.services.transactions.core_of(name).find(name)
    assert known is not None
    return known.state


async def becomes(server: BrokerServer, wanted: TxnState) -> None:
    """Markers are written in turns of a few milliseconds: on a busy machine not all before the next line of a test."""
    for _ in range(6_000):
        if state(server) is wanted:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{state(server)} and not {wanted}")


def is_stable(server: BrokerServer) -> bool:
    partition = server.services.partitions.require("t", 0)
    return partition.last_stable_offset == partition.log_end_offset


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_without_markers_is_finished_at_the_next_start(
    tmp_path: Path, commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        for round_number in range(3):  # each start has a higher leader epoch, and its markers must show it
            async with broker(tmp_path) as server:
                if round_number:
                    expected = TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT
                    await becomes(server, expected)
                    assert is_stable(server)
                who = await begin(server)
                with monkeypatch.context() as patch:
                    patch.setattr(MarkerWriter, "write_soon", lambda *args: None)
                    reply = await server.services.transactions.end("x", who, commit, TV_0, 1)
                assert reply.error is ErrorCode.NONE
                assert not is_stable(server)
        async with broker(tmp_path) as server:
            await becomes(server, TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT)
            partition = server.services.partitions.require("t", 0)
            aborted = partition.log.aborted(0, partition.last_stable_offset)
            assert len(aborted) == (0 if commit else 3)

    asyncio.run(main())


def test_a_marker_that_cannot_be_written_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    real, refusals = MarkerWriter.append, [1, 2, 3]

    def append(self: MarkerWriter, *args: Any) -> Any:
        if refusals:
            refusals.pop()
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not now")
        return real(self, *args)

    monkeypatch.setattr(MarkerWriter, "append", append)

    async def main() -> None:
        async with broker(tmp_path) as server:
            who = await begin(server)
            await server.services.transactions.end("x", who, True, TV_0, 1)
            assert state(server) is TxnState.PREPARE_COMMIT
            await becomes(server, TxnState.COMPLETE_COMMIT)
            assert is_stable(server)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert not refusals
    assert caplog.text.count("cannot be written; it is tried again") == 1


def index_in(data: Path) -> Path:
    (index,) = data.glob("t-0/*.txnindex")
    return index


def test_a_damaged_index_of_aborted_transactions_is_built_again_by_the_next_abort(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        for _ in range(2):
            async with broker(tmp_path) as server:
                who = await begin(server)
                await server.services.transactions.end("x", who, False, TV_0, 1)
                await becomes(server, TxnState.COMPLETE_ABORT)
            index = index_in(tmp_path)
            index.write_bytes(index.read_bytes() + b"torn")
        async with broker(tmp_path) as server:
            partition = server.services.partitions.require("t", 0)
            assert partition.log_end_offset == 4  # two records, two markers
            assert partition.log.aborted(0, 4) == [(0, 0), (0, 2)]

    asyncio.run(main())
    assert "a bug" not in caplog.text


def test_an_index_that_cannot_be_read_is_an_error_of_its_partition(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as server:
            who = await begin(server)
            await server.services.transactions.end("x", who, False, TV_0, 1)
            await becomes(server, TxnState.COMPLETE_ABORT)
        index = index_in(tmp_path)
        index.unlink()
        index.mkdir()
        async with broker(tmp_path) as server:
            partition = server.services.partitions.require("t", 0)
            read = partition.read(FetchPartition("t", 0, 0, 1 << 20), 1 << 20, True, at_least_one=True)
            assert read.error is ErrorCode.KAFKA_STORAGE_ERROR
            assert read.records is None

    asyncio.run(main())


def test_records_outside_of_a_transaction_under_way_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(tmp_path) as server:
            who = await begin(server)
            await server.services.transactions.end("x", who, True, TV_0, 1)
            await becomes(server, TxnState.COMPLETE_COMMIT)
            for producer, code in (
                (who, ErrorCode.TRANSACTION_ABORTABLE),  # INVALID_TXN_STATE for producers before Produce 11
                (Producer(who.producer_id + 1, 0), ErrorCode.INVALID_TXN_STATE),
                (Producer(who.producer_id, 1), ErrorCode.INVALID_PRODUCER_EPOCH),
            ):
                with pytest.raises(ApiError) as refused:
                    produce(server, producer, 1 if producer == who else 0)
                assert refused.value.code is code
            assert is_stable(server)

    asyncio.run(main())


def test_a_transaction_ends_when_its_time_is_up(tmp_path: Path) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with broker(tmp_path, clock) as server:
            who = await begin(server)
            clock.advance(59_999)
            server.services.transactions.poll_timers()
            assert state(server) is TxnState.ONGOING
            clock.advance(1)
            server.services.transactions.poll_timers()
            await becomes(server, TxnState.COMPLETE_ABORT)
            assert is_stable(server)
            with pytest.raises(ApiError):
                produce(server, who, 1)

    asyncio.run(main())


def test_unused_ids_expire(tmp_path: Path) -> None:
    clock = ManualClock()

    async def main() -> None:
        async with broker(tmp_path, clock) as server:
            await begin(server, "open")
            await server.services.transactions.init_producer("idle", 60_000, None)
            clock.advance(604_800_000)
            await server.services.transactions.expire_ids()
            assert server.services.transactions.core_of("idle").find("idle") is None
            assert server.services.transactions.core_of("open").find("open") is not None

    asyncio.run(main())
