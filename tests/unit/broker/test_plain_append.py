"""The compiled code for a plain produce request leaves the answers and the log that the general path would leave."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.api import produce_lane
from barnabas.broker.api.plain_lane import PlainLane
from barnabas.broker.net.connection import Connection
from barnabas.broker.partitions.partition import Partition
from barnabas.broker.partitions.registry import Partitions
from barnabas.broker.server import BrokerServer
from barnabas.records.batch import Record, build_batch, read_header
from barnabas.records.checksum import crc32c
from barnabas.records.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import decode_response_header
from barnabas.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from tests.unit.broker.test_produce_lane import request, run

VERSION = 9
DAY_MS = 86_400_000


def exchanged(
    broker: BrokerServer, connection: Connection, batches: list[bytes], index: int, version: int = VERSION
) -> list[PartitionProduceResponse]:
    """The answers to produce requests that arrive together."""
    frames = b"".join(request(broker, version, n, batch, index) for n, batch in enumerate(batches))
    connection.take_frames(memoryview(bytearray(frames)), len(frames))
    out = b"".join(connection.unsent)  # type: ignore[arg-type]
    connection.unsent.clear()
    answers = []
    while out:
        size = 4 + int.from_bytes(out[:4], "big")
        correlation_id, position = decode_response_header(out[:size], 0, version, 4)
        assert correlation_id == len(answers)
        answer = ProduceResponse.decode(out[:size], version, position)
        answers.append(answer.responses[0].partition_responses[0])
        out = out[size:]
    return answers


def now_ms(broker: BrokerServer) -> int:
    return broker.clock.now_ms()


def with_bytes(batch: bytes, at: int, data: bytes) -> bytes:
    """The batch with some bytes changed, and a checksum that holds."""
    changed = bytearray(batch)
    changed[at : at + len(data)] = data
    changed[17:21] = struct.pack(">I", crc32c(bytes(changed[21:])))
    return bytes(changed)


def odd_batches(broker: BrokerServer, seed: int) -> list[bytes]:
    """Batches of all kinds; most are plain."""
    chance = random.Random(seed)
    now = now_ms(broker)
    batches, sequence = [], 0
    for _ in range(400):
        count = chance.choice((1, 1, 1, 3))
        stamp = now - chance.randrange(1000)
        records = [Record(0, stamp, None, chance.randbytes(chance.choice((0, 50, 300))))] * count
        plain = build_batch(records)
        kind = chance.randrange(40)
        match kind:
            case 0:
                batches.append(build_batch(records, codec=chance.choice((Codec.GZIP, Codec.ZSTD, Codec.LZ4))))
            case 1:
                batches.append(plain[:-1] + b"?")
            case 2:
                batches.append(with_bytes(plain, 57, struct.pack(">i", chance.choice((0, 2, -1)))))
            case 3:
                batches.append(
                    with_bytes(plain, 21, struct.pack(">h", chance.choice((0x10, 0x20, 5, 8, 0x40))))
                )
            case 4:
                batches.append(
                    with_bytes(plain, 35, struct.pack(">q", chance.choice((now + DAY_MS, -1, -(1 << 63)))))
                )
            case 5:
                batches.append(struct.pack(">q", 5) + plain[8:])
            case 6:
                batches.append(plain + b"\0" * chance.randrange(1, 9))
            case 7:
                batches.append(plain[: chance.randrange(len(plain))])
            case 8 | 9 | 10 | 11 | 12:
                ahead = chance.choice((0, 0, 0, -1, 7))
                batches.append(
                    build_batch(
                        records, producer_id=9, producer_epoch=0, base_sequence=max(sequence + ahead, 0)
                    )
                )
                if not ahead:
                    sequence += count
            case _:
                batches.append(plain)
    return batches


def state(partition: Partition) -> dict[str, Any]:
    log, core = partition.log, partition.log.core
    segment = log.active
    return {
        "offsets": (core.log_start_offset, core.log_end_offset, core.high_watermark, core.last_stable_offset),
        "epochs": core.epochs.entries(),
        "producers": [(p.producer_id, p.epoch, p.last_sequence) for p in core.producers],
        "segment": (
            segment.size_bytes,
            segment.bytes_since_entry,
            segment.max_timestamp,
            segment.first_timestamp,
        ),
        "of max": segment.offset_of_max_timestamp,
        "tail": (segment.tail_offsets, segment.tail_positions),
        "offset index": bytes(segment.offset_index.entries),
        "time index": bytes(segment.time_index.entries),
        "segments": [(s.base_offset, Path(s.path(".log")).read_bytes()) for s in log.segments],
    }


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of frames the compiled lane has served, in one entry for each call."""
    served: list[int] = []

    class Counted:
        def __init__(self, *args: Any) -> None:
            self._lane = PlainLane(*args)

        def take(self, *args: Any) -> int:
            served.append(self._lane.take(*args))
            return served[-1]

    monkeypatch.setattr(produce_lane, "PlainLane", Counted)
    return served


def in_broker(tmp_path: Path, scenario: Callable[[BrokerServer, Connection], None]) -> None:
    async def steps(broker: BrokerServer, connection: Connection) -> None:
        scenario(broker, connection)

    run(tmp_path, steps)


@pytest.mark.parametrize("seed", range(3))
def test_it_does_what_the_general_way_does(tmp_path: Path, counted: list[int], seed: int) -> None:
    def scenario(broker: BrokerServer, connection: Connection) -> None:
        partitions = [broker.services.partitions.require("t", index) for index in range(2)]
        for partition in partitions:
            partition.log.set_config(small_segments(partition))
        answers: list[list[PartitionProduceResponse]] = [[], []]
        batches = odd_batches(broker, seed)
        for first in range(0, len(batches), 7):
            for index in range(2):
                broker.dispatcher.fast_path = index == 0
                exchanged_parts = exchanged(broker, connection, batches[first : first + 7], index)
                for answer in exchanged_parts:
                    answer.index = 0
                    answer.error_message = None  # names the partition, or the time
                answers[index] += exchanged_parts
        assert answers[0] == answers[1]
        assert state(partitions[0]) == state(partitions[1])
        assert len(partitions[0].log.segments) > 2
        assert sum(served > 0 for served in counted) > 20

    in_broker(tmp_path, scenario)


def small_segments(partition: Partition) -> Any:
    return dataclasses.replace(partition.log.config, segment_bytes=20_000, index_interval_bytes=500)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_is_served(tmp_path: Path, counted: list[int], version: int) -> None:
    def scenario(broker: BrokerServer, connection: Connection) -> None:
        batch = build_batch([Record(0, now_ms(broker), None, b"x" * 100)])
        exchanged(broker, connection, [batch] * 2, 0, version)
        answers = exchanged(broker, connection, [batch] * 5, 0, version)
        assert [answer.base_offset for answer in answers] == [2, 3, 4, 5, 6]
        assert counted[-1] == sum(len(request(broker, version, 0, batch)) for _ in range(5))

    in_broker(tmp_path, scenario)


def test_not_more_than_the_queue_may_hold_are_served_in_one_go(tmp_path: Path, counted: list[int]) -> None:
    def scenario(broker: BrokerServer, connection: Connection) -> None:
        batch = build_batch([Record(0, now_ms(broker), None, b"x" * 100)])
        exchanged(broker, connection, [batch] * 2, 0)
        assert len(exchanged(broker, connection, [batch] * 100, 0)) == 100
        assert counted[-1] == 64 * len(request(broker, VERSION, 0, batch))

    in_broker(tmp_path, scenario)


def test_a_part_of_a_frame_waits_for_the_rest(tmp_path: Path, counted: list[int]) -> None:
    def scenario(broker: BrokerServer, connection: Connection) -> None:
        batch = build_batch([Record(0, now_ms(broker), None, b"x" * 100)])
        exchanged(broker, connection, [batch] * 2, 0)
        frames = request(broker, VERSION, 1, batch) * 2
        for cut in range(len(frames) // 2, len(frames), 11):
            connection.take_frames(memoryview(bytearray(frames)), cut)
            assert bytes(connection.carry) == frames[len(frames) // 2 : cut]
            connection.carry = b""
        partition = broker.services.partitions.require("t", 0)
        read_header(partition.read_bytes(partition.log_start_offset, 100))
        assert partition.log_end_offset == 2 + len(range(len(frames) // 2, len(frames), 11))

    in_broker(tmp_path, scenario)


def test_a_disk_that_fails_takes_the_partition_offline(
    tmp_path: Path, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> int:
        raise OSError(errno.EIO, "broken")

    def scenario(broker: BrokerServer, connection: Connection) -> None:
        batch = build_batch([Record(0, now_ms(broker), None, b"x" * 100)])
        exchanged(broker, connection, [batch] * 2, 0)
        partition = broker.services.partitions.require("t", 0)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", fails)
            (answer,) = exchanged(broker, connection, [batch], 0)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.offline
        assert partition.log_end_offset == 2

    in_broker(tmp_path, scenario)


def test_a_disk_whose_failure_is_being_noted(
    tmp_path: Path, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush has met the failure in its thread; until the loop has taken the partition offline, each way says the same."""

    def fails(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    def scenario(broker: BrokerServer, connection: Connection) -> None:
        batch = build_batch([Record(0, now_ms(broker), None, b"x" * 100)])
        exchanged(broker, connection, [batch] * 2, 0)
        partition = broker.services.partitions.require("t", 0)
        monkeypatch.setattr(Partitions, "_take_offline", lambda *_: None)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", fails)
            answers = exchanged(broker, connection, [batch] * 2, 0)
            idempotent = build_batch(
                [Record(0, now_ms(broker), None, b"x")], producer_id=9, producer_epoch=0, base_sequence=0
            )
            answers += exchanged(broker, connection, [idempotent], 0)
        assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
        assert partition.log_end_offset == 2

    in_broker(tmp_path, scenario)


def test_a_write_that_takes_a_part_only_is_done_again(
    tmp_path: Path, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.pwrite
    calls: list[int] = []

    def writes_less(fd: int, data: Any, position: int) -> int:
        calls.append(len(data))
        return write(fd, data[:70] if len(calls) == 1 else data, position)

    def scenario(broker: BrokerServer, connection: Connection) -> None:
        batch = build_batch([Record(0, now_ms(broker), None, b"x" * 100)])
        exchanged(broker, connection, [batch] * 2, 0)
        partition = broker.services.partitions.require("t", 0)
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", writes_less)
            answers = exchanged(broker, connection, [batch] * 2, 0)
        assert [answer.base_offset for answer in answers] == [2, 3]
        stored = partition.read_bytes(partition.log_start_offset, 1 << 20)
        assert len(stored) == 4 * len(batch)
        for number in range(4):
            at = number * len(batch)
            assert read_header(stored, at).base_offset == number
            assert stored[at + 17 : at + len(batch)] == batch[17:]

    in_broker(tmp_path, scenario)


def test_segments_that_never_roll_and_the_greatest_timestamp(tmp_path: Path, counted: list[int]) -> None:
    def scenario(broker: BrokerServer, connection: Connection) -> None:
        longest = (1 << 63) - 1
        partition = broker.services.partitions.require("t", 0)
        config = partition.log.config
        partition.log.set_config(
            dataclasses.replace(config, segment_ms=longest, timestamp_after_max_ms=longest)
        )
        batch = build_batch([Record(0, now_ms(broker), None, b"x" * 100)])
        latest = with_bytes(batch, 35, struct.pack(">q", longest))
        answers = exchanged(broker, connection, [latest, batch], 0)
        answers += exchanged(broker, connection, [latest, batch], 0)
        assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, n) for n in range(4)]
        assert len(partition.log.segments) == 1

    in_broker(tmp_path, scenario)
