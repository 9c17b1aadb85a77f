"""The fast path for fetches answers, byte for byte, what the general path answers, or leaves the request to it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.api import fetch_lane
from barnabas.broker.api.fetch_lane import FetchLane
from barnabas.broker.net.connection import Connection
from barnabas.broker.server import BrokerServer
from barnabas.records.batch import Record, build_batch
from barnabas.storage.files import FileSlice
from barnabas.wire.header import encode_request
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.unit.broker.test_plain_append import exchanged, in_broker

VERSIONS = range(4, 19)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each fetch that a lane was asked to answer, whether it did."""
    lanes: list[bool] = []
    take = FetchLane.take

    def counted(self: FetchLane, *args: Any) -> bool:
        lanes.append(take(self, *args))
        return lanes[-1]

    monkeypatch.setattr(fetch_lane.FetchLane, "take", counted)
    return lanes


def fill(broker: BrokerServer, connection: Connection, chance: random.Random) -> None:
    for _ in range(40):
        records = [
            Record(0, broker.clock.now_ms(), None, b"x" * chance.randrange(1, 300))
        ] * chance.randrange(1, 5)
        exchanged(broker, connection, [build_batch(records)], 0)
    partition = broker.services.partitions.require("t", 0)
    partition.log.roll(broker.clock.now_ms())
    exchanged(broker, connection, [build_batch([Record(0, broker.clock.now_ms(), None, b"last")])], 0)


def fetch(broker: BrokerServer, version: int, offset: int, **more: Any) -> FetchRequest:
    """A request for one partition, which waits for nothing."""
    asked = FetchPartition(
        partition=more.pop("partition", 0),
        fetch_offset=offset,
        partition_max_bytes=more.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=more.pop("leader_epoch", -1),
        last_fetched_epoch=more.pop("last_epoch", -1),
    )
    topic = FetchTopic(partitions=[asked], topic="t" if version < 13 else "")
    if version >= 13:
        topic.topic_id = broker.services.image.topics["t"].topic_id
    return FetchRequest(
        **{
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "session_epoch": -1,
            "topics": [topic],
            **more,
        }
    )


def answer(
    broker: BrokerServer, connection: Connection, request: FetchRequest, version: int, number: int
) -> bytes:
    data = encode_request(request, version, number, "client")
    connection.take_frames(memoryview(bytearray(data)), len(data))
    sent = b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in connection.unsent)
    connection.unsent.clear()
    return sent


def both(
    broker: BrokerServer, connection: Connection, request: FetchRequest, version: int, number: int
) -> bytes:
    """The answer of the lane, if it has one, which must be that of the general path."""
    broker.dispatcher.short_fetches = False
    general = answer(broker, connection, request, version, number)
    broker.dispatcher.short_fetches = True
    assert answer(broker, connection, request, version, number) == general
    assert not connection.closed
    return general


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("read_committed", [False, True])
def test_all_versions(tmp_path: Path, taken: list[bool], version: int, read_committed: bool) -> None:
    def scenario(broker: BrokerServer, connection: Connection) -> None:
        chance = random.Random(version)
        fill(broker, connection, chance)
        more = {
            "isolation_level": int(read_committed),
            "partition_max_bytes": chance.choice((1, 700, 1 << 20)),
        }
        end = broker.services.partitions.require("t", 0).log_end_offset
        for number, offset in enumerate((0, *(chance.randrange(-1, end + 2) for _ in range(60)))):
            both(broker, connection, fetch(broker, version, offset, **more), version, number)
        assert taken.count(True) > 40 if version > 4 else not taken

    in_broker(tmp_path, scenario)


ASKED: list[dict[str, Any]] = [
    {"min_bytes": 2000},
    {"max_bytes": 300},
    {"leader_epoch": 0},
    {"leader_epoch": 7},
    {"last_epoch": 0},
    {"last_epoch": 5},
    {"partition": 1},
    {"partition": 9},
]
LEFT_ALONE: list[dict[str, Any]] = [
    {"rack_id": "a"},
    {"session_epoch": 0},
    {"replica_state": ReplicaState(replica_id=1)},
]


@pytest.mark.parametrize("more", [*ASKED, *LEFT_ALONE], ids=str)
def test_what_else_a_request_may_ask(tmp_path: Path, taken: list[bool], more: dict[str, Any]) -> None:
    def scenario(broker: BrokerServer, connection: Connection) -> None:
        chance = random.Random(1)
        fill(broker, connection, chance)
        for number in range(30):
            request = fetch(broker, 17, chance.randrange(90), **more)
            if more.get("session_epoch") == 0:  # each answer has an id of its own
                answer(broker, connection, request, 17, number)
            else:
                both(broker, connection, request, 17, number)
        if more in LEFT_ALONE:
            assert not taken

    in_broker(tmp_path, scenario)


def test_what_changes_between_two_requests(tmp_path: Path, taken: list[bool]) -> None:
    """An option, a topic that is made again, a partition that is gone: the lane asks as the general path does."""

    def scenario(broker: BrokerServer, connection: Connection) -> None:
        fill(broker, connection, random.Random(2))
        request = fetch(broker, 11, 3)
        for number in range(3):
            both(broker, connection, request, 11, number)
        assert taken == [True, True]
        partition = broker.services.partitions.require("t", 0)
        partition.log.core.advance_log_start(20)
        both(broker, connection, request, 11, 4)
        request.topics[0].partitions[0].fetch_offset = 30
        partition.offline = partition.offline or "a disk that failed"  # type: ignore[assignment]
        both(broker, connection, request, 11, 5)
        assert taken == [True, True, False, False]

    in_broker(tmp_path, scenario)


def test_a_lane_that_meets_a_bug_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def scenario(broker: BrokerServer, connection: Connection) -> None:
        fill(broker, connection, random.Random(2))
        request = fetch(broker, 11, 3)
        general = both(broker, connection, request, 11, 1)
        monkeypatch.setattr(FetchLane, "_answer", lambda *_: 1 / 0)
        assert answer(broker, connection, request, 11, 1) == general
        assert answer(broker, connection, request, 11, 1) == general
        assert [record.message for record in caplog.records].count("the fast path for fetches met a bug") == 1

    in_broker(tmp_path, scenario)


def test_requests_that_always_differ_are_not_learned_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lessons: list[int] = []

    class Counted(FetchLane):
        def __init__(self, *args: Any) -> None:
            lessons.append(1)
            super().__init__(*args)

    monkeypatch.setattr(fetch_lane, "FetchLane", Counted)

    def scenario(broker: BrokerServer, connection: Connection) -> None:
        fill(broker, connection, random.Random(2))
        for number in range(100):
            answer(broker, connection, fetch(broker, 11, 0, min_bytes=number), 11, number)
        assert len(lessons) == 7

    in_broker(tmp_path, scenario)


def test_another_version_with_the_same_bytes(tmp_path: Path, taken: list[bool]) -> None:
    """Versions 9 and 10 look alike, but a reader of version 9 knows no zstd."""

    def scenario(broker: BrokerServer, connection: Connection) -> None:
        fill(broker, connection, random.Random(2))
        for number, version in enumerate((10, 10, 9, 9, 10)):
            answer(broker, connection, fetch(broker, version, 3), version, number)
        assert taken == [True, True]
        data = bytearray(encode_request(fetch(broker, 10, 3), 10, 7, "client"))
        data[6:8] = (99).to_bytes(2, "big")
        connection.take_frames(memoryview(data), len(data))
        assert connection.closed

    in_broker(tmp_path, scenario)


def test_waiting_at_the_end_is_no_miss(tmp_path: Path, taken: list[bool]) -> None:
    """A consumer that has polled in vain for long has a lane soon after its request changes."""

    def scenario(broker: BrokerServer, connection: Connection) -> None:
        fill(broker, connection, random.Random(2))
        end = broker.services.partitions.require("t", 0).log_end_offset
        for number in range(500):
            answer(broker, connection, fetch(broker, 11, end), 11, number)
        taken.clear()
        for number in range(5):
            answer(broker, connection, fetch(broker, 11, 1, partition_max_bytes=5000), 11, number)
        assert taken == [True] * 4

    in_broker(tmp_path, scenario)
