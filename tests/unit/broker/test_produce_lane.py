"""The fast path for produce requests answers exactly what the general path answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.broker.api.produce_lane import ProduceLanes
from barnabas.broker.net.connection import Connection
from barnabas.broker.server import BrokerServer
from barnabas.config.loader import load
from barnabas.records.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.support.connections import admitted

NOW_MS = 1_600_000_000_000
VERSIONS = range(3, 14)


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
            await broker.services.controller.topics.create("t", 2, 1, {}, {})
            await scenario(broker, admitted(broker, accepted))
        finally:
            await broker.stop()
            for sock in (peer, accepted, listening):
                sock.close()

    asyncio.run(main())


def request(broker: BrokerServer, version: int, correlation_id: int, records: bytes, index: int = 0) -> bytes:
    asked = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t" if version < 13 else "",
                topic_id=broker.services.image.topics["t"].topic_id,
                partition_data=[PartitionProduceData(index=index, records=records)],
            )
        ],
    )
    return encode_request(asked, version, correlation_id, "client")


def answered(connection: Connection, version: int) -> tuple[int, ProduceResponse]:
    frame = b"".join(connection.unsent)  # type: ignore[arg-type]
    connection.unsent.clear()
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = decode_response_header(frame, 0, version, 4)
    return correlation_id, ProduceResponse.decode(frame, version, position)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_second_request_takes_the_lane_and_gets_the_same_kind_of_answer(
    tmp_path: Path, version: int
) -> None:
    async def scenario(broker: BrokerServer, connection: Connection) -> None:
        answers = []
        for number in range(3):
            records = build_batch([Record(0, NOW_MS, None, b"x" * 100 * (number + 1))] * (number + 1))
            frame = memoryview(bytearray(request(broker, version, 70 + number, records)))[4:]
            lanes = connection.kept.produce if connection.kept else ProduceLanes()
            taken = lanes.find(frame, version, broker.services.partitions.topology)
            assert (taken is not None) == (number > 0)
            broker.dispatcher.on_frame(connection, frame)
            answers.append(answered(connection, version))
        assert [correlation_id for correlation_id, _ in answers] == [70, 71, 72]
        general = answers[0][1]
        for (_, lane), base_offset in zip(answers[1:], (1, 3), strict=True):
            assert lane.responses[0].partition_responses[0].base_offset == base_offset
            lane.responses[0].partition_responses[0].base_offset = 0
            assert lane == general

    run(tmp_path, scenario)


def test_all_partitions_of_a_topic_share_a_lane(tmp_path: Path) -> None:
    """A producer to thousands of partitions would else leave the fast path for good."""

    async def scenario(broker: BrokerServer, connection: Connection) -> None:
        records = build_batch([Record(0, NOW_MS, None, b"x" * 100)])
        for number, index in enumerate((0, 1, 0, 1, 2)):
            frame = memoryview(bytearray(request(broker, 9, number, records, index)))[4:]
            lanes = connection.kept.produce if connection.kept else ProduceLanes()
            lane = lanes.find(frame, 9, broker.services.partitions.topology)
            assert (lane is not None) == (number > 0)
            broker.dispatcher.on_frame(connection, frame)
            correlation_id, answer = answered(connection, 9)
            partition = answer.responses[0].partition_responses[0]
            assert (correlation_id, partition.index) == (number, index)
            if index < 2:
                assert (partition.error_code, partition.base_offset) == (0, number // 2)
        assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario)


def test_what_is_wrong_is_answered_by_the_general_way(tmp_path: Path) -> None:
    async def scenario(broker: BrokerServer, connection: Connection) -> None:
        good = build_batch([Record(0, NOW_MS, None, b"x" * 200)])
        broker.dispatcher.on_frame(connection, memoryview(bytearray(request(broker, 9, 1, good)))[4:])
        answered(connection, 9)
        broken = good[:-1] + b"?"
        broker.dispatcher.on_frame(connection, memoryview(bytearray(request(broker, 9, 2, broken)))[4:])
        _, refusal = answered(connection, 9)
        assert refusal.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
        partition = broker.services.partitions.get("t", 0)
        assert partition is not None
        assert partition.log_end_offset == 1
        await broker.services.controller.topics.delete("t")
        broker.dispatcher.on_frame(connection, memoryview(bytearray(request_of_deleted(good)))[4:])
        _, gone = answered(connection, 9)
        assert gone.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def request_of_deleted(records: bytes) -> bytes:
        data = [PartitionProduceData(index=0, records=records)]
        asked = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )
        return encode_request(asked, 9, 3, "client")

    run(tmp_path, scenario)


@pytest.mark.parametrize("version", [8, 9])
def test_a_frame_that_is_cut_anywhere_closes_the_connection_and_appends_nothing(
    tmp_path: Path, version: int
) -> None:
    async def scenario(broker: BrokerServer, connection: Connection) -> None:
        good = build_batch([Record(0, NOW_MS, None, b"x" * 150)])
        frame = request(broker, version, 1, good)[4:]
        broker.dispatcher.on_frame(connection, memoryview(bytearray(frame)))
        lanes = connection.kept
        partition = broker.services.partitions.get("t", 0)
        assert partition is not None
        for end in range(8, len(frame)):
            listening = socket.create_server(("127.0.0.1", 0))
            peer = socket.create_connection(listening.getsockname())
            accepted, _ = listening.accept()
            cut = admitted(broker, accepted)
            cut.kept = lanes
            broker.dispatcher.on_frame(cut, memoryview(bytearray(frame[:end])))
            assert cut.closed, end
            assert partition.log_end_offset == 1
            for sock in (peer, listening):
                sock.close()

    run(tmp_path, scenario)
