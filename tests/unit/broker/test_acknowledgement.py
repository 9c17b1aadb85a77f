"""An append is answered when disk and replicas have it, on the fast path of produce and on the general one alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.broker.cluster import in_sync
from barnabas.broker.partitions.acknowledgement import Acknowledgement
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.server import BrokerServer
from barnabas.config.loader import load
from barnabas.cores.cluster_image import PartitionImage
from barnabas.cores.fetch import FetchPartition
from barnabas.records.batch import Record, build_batch
from barnabas.storage.errors import LogDirOffline
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

VERSION = 9
FOLLOWER = 99
BATCH = build_batch([Record(0, 1_600_000_000_000, None, b"x" * 100)] * 3)
WAIT_S = 30


class Client:
    """A producer that sends one request at a time and says what is answered, and whether."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, acks: int = -1, timeout_ms: int = 60_000) -> asyncio.Task[PartitionProduceResponse]:
        return asyncio.ensure_future(self.send_without_reading(acks, timeout_ms)())

    def send_without_reading(
        self, acks: int = -1, timeout_ms: int = 60_000
    ) -> Callable[[], Coroutine[None, None, PartitionProduceResponse]]:
        """Send behind a request that waits; what is returned reads the answer when that request's answer was read."""
        data = PartitionProduceData(index=0, records=BATCH)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        self._writer.write(encode_request(request, VERSION, 1, "client"))
        return self._answer

    async def _answer(self) -> PartitionProduceResponse:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        _, position = decode_response_header(frame, 0, VERSION)
        answer = ProduceResponse.decode(frame, VERSION, position)
        return answer.responses[0].partition_responses[0]


Scenario = Callable[[BrokerServer, Partition, Client], Awaitable[None]]


def run(tmp_path: Path, scenario: Scenario, **config: str) -> None:
    async def main() -> None:
        options = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
        broker = BrokerServer(load(None, options))
        await broker.start()
        try:
            await broker.services.controller.topics.create("t", 1, 1, {}, config)
            partition = broker.services.partitions.require("t", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports["PLAINTEXT"])
            await asyncio.wait_for(scenario(broker, partition, Client(reader, writer)), WAIT_S)
            writer.close()
        finally:
            await broker.stop()

    asyncio.run(main())


def image(broker: BrokerServer, **changes: object) -> PartitionImage:
    partition = broker.services.image.partition("t", 0)
    assert partition is not None
    return replace(partition, **changes)  # type: ignore[arg-type]


async def appended(partition: Partition, end: int) -> None:
    while partition.log_end_offset < end:  # noqa: ASYNC110  (no event tells of an append)
        await asyncio.sleep(0)


def test_with_followers_the_answer_waits_for_the_high_watermark(tmp_path: Path) -> None:
    async def scenario(broker: BrokerServer, partition: Partition, client: Client) -> None:
        assert (await client.send()).base_offset == 0  # from now on requests take the fast path
        leader = broker.services.controller.node_id
        for begin, acks in ((3, -1), (9, -1)):
            partition.take_role(image(broker, isr=(leader, FOLLOWER)))
            partition.note_fetch(FOLLOWER, begin)
            answer = client.send(acks)
            await appended(partition, begin + 3)
            partition.note_fetch(FOLLOWER, begin + 2)
            assert partition.high_watermark == begin + 2
            assert not answer.done()
            partition.note_fetch(FOLLOWER, begin + 3)
            assert (await answer).base_offset == begin
            partition.take_role(image(broker, isr=(leader,)))
            assert (await client.send(acks=1)).base_offset == begin + 3

    run(tmp_path, scenario)


def test_acks_1_waits_for_no_follower_and_consumers_do_not_see_it_yet(tmp_path: Path) -> None:
    async def scenario(broker: BrokerServer, partition: Partition, client: Client) -> None:
        partition.take_role(image(broker, isr=(broker.services.controller.node_id, FOLLOWER)))
        assert (await client.send(acks=1)).base_offset == 0
        read = partition.read(FetchPartition("t", 0, 0, 1 << 20), 1 << 20, False, at_least_one=True)
        assert (read.high_watermark, read.records) == (0, None)

    run(tmp_path, scenario)


@pytest.mark.parametrize("fast_path", [False, True])
def test_an_answer_that_waits_too_long_is_a_time_out(tmp_path: Path, fast_path: bool) -> None:
    async def scenario(broker: BrokerServer, partition: Partition, client: Client) -> None:
        if fast_path:
            await client.send(timeout_ms=20)
        partition.take_role(image(broker, isr=(broker.services.controller.node_id, FOLLOWER)))
        answer = await client.send(timeout_ms=20)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)

    run(tmp_path, scenario)


@pytest.mark.parametrize("fast_path", [False, True])
def test_a_leader_that_becomes_a_follower_answers_who_waits(tmp_path: Path, fast_path: bool) -> None:
    async def scenario(broker: BrokerServer, partition: Partition, client: Client) -> None:
        if fast_path:
            await client.send()
        begin = partition.log_end_offset
        partition.take_role(image(broker, isr=(broker.services.controller.node_id, FOLLOWER)))
        answer = client.send()
        await appended(partition, begin + 3)
        partition.take_role(image(broker, leader=FOLLOWER, leader_epoch=7))
        assert (await answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await client.send()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.log_end_offset == begin + 3
        partition.take_role(image(broker, leader_epoch=8))
        assert (await client.send()).base_offset == begin + 3

    run(tmp_path, scenario)


def test_the_log_names_the_followers_that_writes_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(in_sync, "HELD_UP_MS", -1)
    line = "writes with acks=all wait for followers that are behind"

    async def scenario(broker: BrokerServer, partition: Partition, client: Client) -> None:
        look = broker.services.in_sync.look_at_followers
        leader = broker.services.controller.node_id
        partition.take_role(image(broker, replicas=(leader, FOLLOWER, 98), isr=(leader, FOLLOWER, 98)))
        answer = client.send()
        await appended(partition, 3)
        partition.note_fetch(98, partition.log_end_offset)
        await look(60_000)
        (record,) = [record for record in caplog.records if record.message == line]
        assert (record.followers, record.partitions, record.first) == ({FOLLOWER: 1}, 1, "t-0")  # type: ignore[attr-defined]
        partition.note_fetch(FOLLOWER, partition.log_end_offset)
        await answer
        caplog.clear()
        await look(60_000)
        assert line not in caplog.text

    run(tmp_path, scenario)


def _shrunk(broker: BrokerServer, partition: Partition, end: int) -> None:
    partition.take_role(image(broker, partition_epoch=8, isr=(broker.services.controller.node_id,)))


def _leads_anew_and_the_follower_is_back(broker: BrokerServer, partition: Partition, end: int) -> None:
    leader = broker.services.controller.node_id
    partition.take_role(image(broker, leader_epoch=7, partition_epoch=8, isr=(leader, FOLLOWER)))
    partition.note_fetch(FOLLOWER, end)


def _leads_anew_and_alone(broker: BrokerServer, partition: Partition, end: int) -> None:
    leader = broker.services.controller.node_id
    partition.take_role(image(broker, leader_epoch=7, partition_epoch=8, isr=(leader,)))


def _moved_away(broker: BrokerServer, partition: Partition, end: int) -> None:
    partition.move_away()


@pytest.mark.parametrize("fast_path", [False, True])
@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (_shrunk, ErrorCode.NONE),
        (_leads_anew_and_the_follower_is_back, ErrorCode.NONE),
        (_leads_anew_and_alone, ErrorCode.NONE),
        (_moved_away, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_whatever_ends_the_wait_answers_at_once_and_what_was_sent_behind_it(
    tmp_path: Path,
    happens: Callable[[BrokerServer, Partition, int], None],
    error: ErrorCode,
    fast_path: bool,
) -> None:
    async def scenario(broker: BrokerServer, partition: Partition, client: Client) -> None:
        if fast_path:
            await client.send()
        begin = partition.log_end_offset
        isr = (broker.services.controller.node_id, FOLLOWER)
        partition.take_role(image(broker, partition_epoch=7, isr=isr))
        answer = client.send()
        await appended(partition, begin + 3)
        behind = client.send_without_reading(acks=1)
        assert not answer.done()
        happens(broker, partition, begin + 3)
        assert (await answer).error_code == error
        assert (await behind()).error_code == error

    run(tmp_path, scenario)


def test_too_few_in_sync_replicas_refuse_before_the_append(tmp_path: Path) -> None:
    async def scenario(broker: BrokerServer, partition: Partition, client: Client) -> None:
        assert (await client.send()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert partition.log_end_offset == 0
        assert (await client.send(acks=1)).error_code == ErrorCode.NONE

    run(tmp_path, scenario, **{"min.insync.replicas": "2"})


def test_with_flush_messages_the_answer_waits_for_the_disk(tmp_path: Path) -> None:
    async def scenario(broker: BrokerServer, partition: Partition, client: Client) -> None:
        for number in range(5):
            answer = await client.send(acks=1 if number % 2 else -1)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number * 3)
            assert partition.log.recovery_point == partition.high_watermark == number * 3 + 3

    run(tmp_path, scenario, **{"flush.messages": "1"})


def test_a_repeated_batch_is_not_acknowledged_before_consumers_see_it(tmp_path: Path) -> None:
    """The thread has flushed it, and the loop has not heard of that yet: the producer's repetition comes first."""

    async def scenario(broker: BrokerServer, partition: Partition, client: Client) -> None:
        batch = build_batch([Record(0, 1, None, b"x")] * 3, producer_id=7, producer_epoch=0, base_sequence=0)
        first = partition.append(memoryview(bytearray(batch)), acks_all=False, zstd_allowed=True)
        assert not first.is_ready
        partition.log.flush()
        again = partition.append(memoryview(bytearray(batch)), acks_all=False, zstd_allowed=True)
        assert (again.base_offset, again.next_offset) == (0, 3)
        assert again.is_ready
        assert first.is_ready
        assert partition.high_watermark == 3

    run(tmp_path, scenario, **{"flush.messages": "1"})


@pytest.mark.parametrize("fast_path", [False, True])
def test_a_flush_that_fails_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast_path: bool
) -> None:
    async def scenario(broker: BrokerServer, partition: Partition, client: Client) -> None:
        if fast_path:
            await client.send()

        def broken(*args: object, **options: object) -> int:
            raise LogDirOffline(partition.log.log_dir, OSError(5, "Input/output error"))

        monkeypatch.setattr(type(partition.log), "flush", broken)
        end = partition.high_watermark
        answer = await client.send()
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.high_watermark == end  # no consumer sees what may be gone after a power cut
        assert (await client.send()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        monkeypatch.undo()

    run(tmp_path, scenario, **{"flush.messages": "1"})


def test_one_listener_that_fails_does_not_keep_the_news_from_others() -> None:
    promise = Acknowledgement(0, 1, -1, 0, True)
    promise.is_ready = False
    heard: list[ApiError | None] = []

    def broken(_: Acknowledgement) -> None:
        raise RuntimeError("a bug of the listener")

    promise.when_ready(broken)
    promise.when_ready(lambda ended: heard.append(ended.error))
    promise.finish()
    promise.time_is_up()
    promise.when_ready(lambda ended: heard.append(ended.error))
    assert heard == [None, None]
