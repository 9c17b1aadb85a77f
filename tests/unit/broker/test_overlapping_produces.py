"""Produce requests of one connection wait for followers together, and are answered in order, whatever ends their waits."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.broker.net import owed
from barnabas.broker.net.buffers import SHARED_BUFFER_BYTES
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.server import BrokerServer
from barnabas.config.loader import load
from barnabas.records.batch import Record, build_batch
from barnabas.records.units import Offset
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages import response_class
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.schema import Message

PRODUCE_VERSION = 9
METADATA_VERSION = 9
FOLLOWER = 99
PARTITIONS = 4
WAIT_S = 60
SMALL, LARGE = 100, SHARED_BUFFER_BYTES + 1000


def batch(value_bytes: int) -> bytes:
    return build_batch([Record(0, 1_600_000_000_000, None, b"x" * value_bytes)])


class Client:
    """Sends without waiting; `answers` has the number of each request in the order of the answers, and its error."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._kinds: dict[int, tuple[int, int]] = {}
        self.answers: list[tuple[int, int]] = []
        self.offsets: list[int] = []
        self.reading = asyncio.ensure_future(self._read())

    def produce(
        self, partition: int = 0, acks: int = -1, size_bytes: int = SMALL, timeout_ms: int = 60_000
    ) -> None:
        data = PartitionProduceData(index=partition, records=memoryview(batch(size_bytes)))
        topics = [TopicProduceData(name="t", partition_data=[data])]
        self._send(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics), PRODUCE_VERSION)

    def metadata(self) -> None:
        self._send(MetadataRequest(topics=[]), METADATA_VERSION)

    def _send(self, request: Message, version: int) -> None:
        number = len(self._kinds)
        self._kinds[number] = request.API_KEY, version
        self._writer.write(encode_request(request, version, number, "client"))

    async def _read(self) -> None:
        while True:
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            frame = await self._reader.readexactly(size)
            key, version = self._kinds[len(self.answers)]
            number, position = decode_response_header(frame, key, version)
            answer = response_class(key).decode(frame, version, position)
            code = 0
            if key == ProduceRequest.API_KEY:
                row = answer.responses[0].partition_responses[0]  # type: ignore[attr-defined]
                code = row.error_code
                self.offsets.append(row.base_offset)
            self.answers.append((number, code))

    async def leave(self, abruptly: bool) -> None:
        """Close the connection when all requests are on their way; abruptly: with a reset."""
        await self._writer.drain()
        self.reading.cancel()
        if abruptly:
            self._writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self._writer.close()

    async def answered(self, count: int) -> None:
        while len(self.answers) < count:
            assert not self.reading.done(), self.reading.exception()
            await asyncio.sleep(0)


Scenario = Callable[[BrokerServer, list[Partition], Client], Awaitable[None]]


def run(tmp_path: Path, scenario: Scenario) -> None:
    """The client's requests take the fast path; each partition has a follower that has everything so far."""

    async def main() -> None:
        options = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
        broker = BrokerServer(load(None, options))
        await broker.start()
        try:
            await broker.services.controller.topics.create("t", PARTITIONS, 1, {}, {})
            partitions = [broker.services.partitions.require("t", index) for index in range(PARTITIONS)]
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports["PLAINTEXT"])
            client = Client(reader, writer)
            for acks in (1, -1):
                client.produce(acks=acks)
            await client.answered(2)
            for partition in partitions:
                take_role(broker, partition)
                confirm(partition)
            await asyncio.wait_for(scenario(broker, partitions, client), WAIT_S)
            client.reading.cancel()
            writer.close()
        finally:
            await broker.stop()

    asyncio.run(main())


def take_role(broker: BrokerServer, partition: Partition, **changes: object) -> None:
    image = broker.services.image.partition("t", partition.index)
    assert image is not None
    isr = (broker.services.controller.node_id, FOLLOWER)
    partition.take_role(replace(image, isr=isr, **changes))  # type: ignore[arg-type]


def confirm(partition: Partition, offset: int | None = None) -> None:
    partition.note_fetch(FOLLOWER, Offset(partition.log_end_offset if offset is None else offset))


async def turns(broker: BrokerServer, count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def grown(partitions: list[Partition], records: int) -> None:
    while sum(partition.log_end_offset for partition in partitions) < records:  # noqa: ASYNC110
        await asyncio.sleep(0)


def test_requests_are_appended_while_those_before_them_wait_and_are_answered_in_order(tmp_path: Path) -> None:
    """A producer that sends a request for each partition would otherwise get one done per fetch of its followers."""

    async def scenario(broker: BrokerServer, partitions: list[Partition], client: Client) -> None:
        for number in range(40):
            client.produce(number % PARTITIONS)
        await grown(partitions, 2 + 40)
        for partition in reversed(partitions[1:]):
            confirm(partition)
        await turns(broker)
        assert len(client.answers) == 2, "the first request's partition is not confirmed"
        confirm(partitions[0], 2 + 5)
        await client.answered(2 + 5 * PARTITIONS)
        await turns(broker)
        assert len(client.answers) == 2 + 5 * PARTITIONS
        confirm(partitions[0])
        await client.answered(2 + 40)
        assert client.answers == [(number, 0) for number in range(42)]

    run(tmp_path, scenario)


def test_no_other_request_is_handled_before_its_turn(tmp_path: Path) -> None:
    async def scenario(broker: BrokerServer, partitions: list[Partition], client: Client) -> None:
        client.produce(0)
        client.produce(1)
        client.metadata()
        client.produce(2)
        await grown(partitions, 2 + 2)
        await turns(broker)
        confirm(partitions[1])
        await turns(broker)
        assert partitions[2].log_end_offset == 0, "it was sent behind the metadata request"
        confirm(partitions[0])
        await grown(partitions, 2 + 3)
        confirm(partitions[2])
        await client.answered(2 + 4)
        assert client.answers == [(number, 0) for number in range(6)]

    run(tmp_path, scenario)


def test_a_connection_owes_a_limited_number_of_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owed, "ANSWERS_OWED_MAX", 8)

    async def scenario(broker: BrokerServer, partitions: list[Partition], client: Client) -> None:
        for _ in range(30):
            client.produce()
        for done in range(0, 30, 8):
            await grown(partitions, 2 + min(done + 8, 30))
            await turns(broker)
            assert partitions[0].log_end_offset == 2 + min(done + 8, 30)
            confirm(partitions[0])
        await client.answered(2 + 30)
        assert client.answers == [(number, 0) for number in range(32)]
        assert client.offsets == list(range(32))

    run(tmp_path, scenario)


def test_what_fills_the_buffer_behind_a_held_request_is_read_later(tmp_path: Path) -> None:
    """The connection must not take a read into no room for the end of its peer."""

    async def scenario(broker: BrokerServer, partitions: list[Partition], client: Client) -> None:
        client.produce(0)
        client.metadata()
        for _ in range(4):
            client.produce(1, size_bytes=SHARED_BUFFER_BYTES // 3)
        await grown(partitions, 2 + 1)
        await turns(broker, 500)
        confirm(partitions[0])
        await grown(partitions, 2 + 5)
        confirm(partitions[1])
        await client.answered(2 + 6)
        assert client.answers == [(number, 0) for number in range(8)]

    run(tmp_path, scenario)


@pytest.mark.parametrize("abruptly", [False, True])
def test_records_without_acknowledgement_behind_a_held_request_outlive_their_connection(
    tmp_path: Path, abruptly: bool
) -> None:
    """A producer with acks=0 closes as soon as its last request is on its way."""

    async def scenario(broker: BrokerServer, partitions: list[Partition], client: Client) -> None:
        client.produce(0)
        client.metadata()
        for _ in range(5):
            client.produce(1, acks=0)
        await grown(partitions, 2 + 1)
        await client.leave(abruptly)
        await turns(broker, 500)
        assert partitions[1].log_end_offset == 0
        confirm(partitions[0])
        await grown(partitions, 2 + 1 + 5)
        while broker.services.listeners.connections:  # noqa: ASYNC110
            await asyncio.sleep(0)

    run(tmp_path, scenario)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_sent_and_whatever_happens_each_request_has_its_answer_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(owed, "ANSWERS_OWED_MAX", chance.choice([1, 2, 5, 256]))

    async def scenario(broker: BrokerServer, partitions: list[Partition], client: Client) -> None:
        epoch = 10
        sent = 2
        for _ in range(150):
            what = chance.random()
            partition = chance.choice(partitions)
            if what < 0.5:
                size_bytes = chance.choices([SMALL, SHARED_BUFFER_BYTES // 2, LARGE], [20, 2, 1])[0]
                acks = chance.choice([-1, -1, -1, 1])
                client.produce(partition.index, acks, size_bytes, chance.choice([60_000, 60_000, 1]))
                sent += 1
            elif what < 0.55:
                client.metadata()
                sent += 1
            elif what < 0.85:
                confirm(partition, chance.randint(partition.high_watermark, partition.log_end_offset))
            elif what < 0.9:
                epoch += 1
                leader = chance.choice([broker.services.controller.node_id, FOLLOWER])
                take_role(broker, partition, leader=leader, leader_epoch=epoch, partition_epoch=epoch)
            else:
                await turns(broker, chance.randint(1, 30))
        while len(client.answers) < sent:
            for partition in partitions:
                if partition.is_leader:
                    confirm(partition)
            await asyncio.sleep(0)
        assert [number for number, _ in client.answers] == list(range(sent))
        allowed = {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT}
        assert {code for _, code in client.answers} <= allowed

    run(tmp_path, scenario)
