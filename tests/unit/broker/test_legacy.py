"""Old consumers and producers, where a client on the other side of a socket could not see what goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.broker.api import conversion
from barnabas.broker.api.context import Context
from barnabas.broker.api.handlers.records import legacy_fetch, legacy_produce
from barnabas.broker.net.connection import Connection
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.server import BrokerServer
from barnabas.config.loader import load
from barnabas.records.batch import Record, build_batch
from barnabas.records.compression import Codec
from barnabas.records.control import build_marker
from barnabas.records.message_set import build_message_set, read_message_set
from barnabas.runtime.timing import RequestTimes
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.connections import admitted

TIMING = RequestTimes().of("test").begin(0, 0, 0, None)
TIME = 1_600_000_000_000
LONG_MS = 30_000


def run(tmp_path: Path, scenario: Callable[[BrokerServer, Connection], Awaitable[None]]) -> None:
    async def main() -> None:
        config = load(None, {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"})
        broker = BrokerServer(config)
        await broker.start()
        listening = socket.create_server(("127.0.0.1", 0))
        peer = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        accepted.setblocking(False)
        try:
            await broker.services.controller.topics.create("t", 4, 1, {}, {})
            await scenario(broker, admitted(broker, accepted))
        finally:
            await broker.stop()
            for sock in (peer, accepted, listening):
                sock.close()

    asyncio.run(main())


def partition_of(broker: BrokerServer, index: int = 0) -> Partition:
    partition = broker.services.partitions.get("t", index)
    assert partition is not None
    return partition


def append(partition: Partition, batch: bytes) -> None:
    partition.append(memoryview(bytearray(batch)), acks_all=True, zstd_allowed=True)


def fetch_request(*offsets: int, wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
                    for index, offset in enumerate(offsets)
                ],
            )
        ],
    )


def test_a_consumer_waits_behind_a_marker_instead_of_asking_for_ever(tmp_path: Path) -> None:
    async def scenario(broker: BrokerServer, connection: Connection) -> None:
        partition = partition_of(broker)
        transactional = build_batch(
            [Record(0, TIME, b"k", b"v")],
            producer_id=5,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        partition.append_built(transactional)  # as if a coordinator had let it in
        partition.append_built(
            build_marker(commit=True, coordinator_epoch=0, producer_id=5, producer_epoch=0, timestamp=TIME)
        )
        assert partition.high_watermark == 2
        context = Context(broker.services, connection, 2, 1, "old", TIMING)
        answer = await legacy_fetch.handle(context, fetch_request(1, wait_ms=20))
        assert answer.responses[0].partitions[0].records == b""
        waiting = asyncio.ensure_future(legacy_fetch.handle(context, fetch_request(1, wait_ms=LONG_MS)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        append(partition, build_batch([Record(0, TIME, b"k", b"after")]))
        data = (await asyncio.wait_for(waiting, 20)).responses[0].partitions[0]
        assert [(row.offset, row.value) for row in read_message_set(data.records)] == [(2, b"after")]
        assert partition.waiters == {}

    run(tmp_path, scenario)


def test_every_partition_gets_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for the records of one partition, each of four is served within four requests."""
    monkeypatch.setattr(legacy_fetch, "CONVERTED_BYTES_MAX", 1)

    async def scenario(broker: BrokerServer, connection: Connection) -> None:
        for index in range(4):
            append(partition_of(broker, index), build_batch([Record(0, TIME, None, b"%d" % index)] * 3))
        served = set()
        for correlation_id in range(4):
            context = Context(broker.services, connection, 1, correlation_id, "old", TIMING)
            answer = await legacy_fetch.handle(context, fetch_request(0, 0, 0, 0))
            partitions = answer.responses[0].partitions
            assert [partition.partition_index for partition in partitions] == [0, 1, 2, 3]
            full = [partition.partition_index for partition in partitions if partition.records]
            assert len(full) == 1
            served.update(full)
        assert served == {0, 1, 2, 3}

    run(tmp_path, scenario)


def test_conversions_are_counted_by_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "CLIENTS_MAX", 3)

    async def scenario(broker: BrokerServer, connection: Connection) -> None:
        records = build_message_set(
            [Record(n, TIME, None, b"x" * 100) for n in range(100)], magic=1, codec=Codec.GZIP
        )
        data = PartitionProduceData(index=0, records=memoryview(bytearray(records)))
        produce = ProduceRequest(
            acks=1, timeout_ms=10, topic_data=[TopicProduceData(name="t", partition_data=[data])]
        )
        connection.client_software = ("sarama", "1.23")
        answer = await legacy_produce.handle(
            Context(broker.services, connection, 2, 1, "writer", TIMING), produce
        )
        assert answer is not None
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        for name in ("a", "b", "c", "d"):
            await legacy_fetch.handle(
                Context(broker.services, connection, 2, 1, name, TIMING), fetch_request(0)
            )
        counts = broker.services.conversions.counts
        up = counts[conversion.Converting("writer", "sarama 1.23", "up")]
        assert (up.requests, up.records) == (1, 100)
        down = {who.client_id: count.records for who, count in counts.items() if who.direction == "down"}
        assert down == {"a": 100, "b": 100, conversion.REST: 200}

    run(tmp_path, scenario)


def test_a_large_set_is_converted_beside_the_loop(tmp_path: Path) -> None:
    """The frame is overwritten as soon as the handler has returned; what is stored is what was sent."""

    async def scenario(broker: BrokerServer, connection: Connection) -> None:
        sent = [Record(n, TIME + n, b"k", b"%d" % n * 50) for n in range(500)]
        frame = bytearray(build_message_set(sent, magic=1))
        data = PartitionProduceData(index=0, records=memoryview(frame))
        produce = ProduceRequest(
            acks=1, timeout_ms=10, topic_data=[TopicProduceData(name="t", partition_data=[data])]
        )
        answering = legacy_produce.handle(Context(broker.services, connection, 2, 1, "old", TIMING), produce)
        frame[:] = bytes(len(frame))
        assert await answering is not None
        answer = await legacy_fetch.handle(
            Context(broker.services, connection, 2, 1, "old", TIMING), fetch_request(0)
        )
        assert list(read_message_set(answer.responses[0].partitions[0].records)) == sent

    run(tmp_path, scenario)


def damage(folder: Path) -> None:
    (path,) = folder.glob("*.log")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def test_damage_on_the_disk_is_an_error_not_a_record(tmp_path: Path) -> None:
    async def scenario(broker: BrokerServer, connection: Connection) -> None:
        partition = partition_of(broker)
        append(partition, build_batch([Record(0, TIME, None, b"intact" * 10)]))
        damage(Path(partition.log.folder))
        answer = await legacy_fetch.handle(
            Context(broker.services, connection, 2, 1, "old", TIMING), fetch_request(0)
        )
        one = answer.responses[0].partitions[0]
        assert (one.error_code, one.records) == (ErrorCode.CORRUPT_MESSAGE, b"")

    run(tmp_path, scenario)
