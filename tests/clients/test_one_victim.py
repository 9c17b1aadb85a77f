"""One request, and everybody stops: no request of any API, legal or not, holds up the broker's loop.

For each API of the table, the heaviest requests that its declaration allows are sent (tests/support/heavy.py), while the
turns of the loop are measured in processor time of its thread. An API that is added later is tested without a change here.
Beside these there are the bombs: a few kilobytes that unpack to many megabytes, wherever a broker unpacks.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import struct
import time
from collections.abc import Iterator
from typing import TypeVar

import pytest

from barnabas.broker.api.table import APIS, OWN_APIS, Api
from barnabas.records.batch import Record, build_batch
from barnabas.records.compression import Codec
from barnabas.testing import Broker
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.schema import Message
from tests.support.admin import KEPT, create_topic
from tests.support.examples import one_in
from tests.support.heavy import TOPIC, can_be_heavy, heavy_frames
from tests.support.turns import measured

A = TypeVar("A", bound=Message)

ROWS = 6_000
TURN_CPU_MS_MAX = 200
"""Ten times the goal: the processor time of a turn includes collections of the test's own garbage, and what the machine's
other work costs it in caches. What holds up a loop takes seconds."""
BOMB_BYTES = 64 << 20
HEAVY_BYTES = 5_000
PACKERS = [Codec.GZIP, Codec.LZ4, Codec.ZSTD]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    gc.collect()
    gc.freeze()  # the objects of the tests are not looked through in the turns of the broker
    with Broker({"message.max.bytes": "50000000"}) as broker:
        create_topic(broker.bootstrap, TOPIC, 3)
        yield broker
    gc.unfreeze()


class Peer:
    """One connection of an attacker, or of somebody who behaves well."""

    def __init__(self, broker: Broker) -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=120)

    def send(self, frame: bytes) -> bytes | None:
        """The answer to a request; None if the connection was closed instead."""
        try:
            self.sock.sendall(frame)
            return self.receive()
        except ConnectionError:
            return None

    def receive(self) -> bytes:
        """The next answer. Raises ConnectionError."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self.sock.recv(min(count - len(data), 1 << 20))
            if not more:
                raise ConnectionError("closed")
            data += more
        return bytes(data)

    def ask(self, request: Message, answer: type[A], version: int) -> A:
        frame = self.send(encode_request(request, version, 7, "peer"))
        assert frame is not None
        _, position = decode_response_header(frame, request.API_KEY, version)
        return answer.decode(frame, version, position)


def is_served(broker: Broker) -> bool:
    """Whether a client that behaves well is answered."""
    peer = Peer(broker)
    answer = peer.send(encode_request(MetadataRequest(topics=[]), 12, 1, "good"))
    peer.sock.close()
    return answer is not None


def longest_turns(broker: Broker, api: Api, version: int, rows: int) -> dict[str, int]:
    """The CPU time in ms of the longest turn, for each heavy request of an API."""
    frames = list(heavy_frames(api.request, version, rows))
    if can_be_heavy(api.request, version):
        assert any(len(frame) >= HEAVY_BYTES for _, frame in frames), f"{api.name} has no heavy request"
    longest = {}
    for shape, frame in frames:
        peer = Peer(broker)
        # The first time, modules are imported and code is compiled; a second time shows what a request costs.
        for _ in range(2):
            with measured(broker) as turns:
                answer = peer.send(frame)
                assert is_served(broker)
            if answer is None:
                peer.sock.close()
                peer = Peer(broker)
        peer.sock.close()
        longest[shape] = round(turns.longest_cpu_ms)
    return longest


@pytest.mark.parametrize("api", one_in(8, [*APIS, *OWN_APIS]), ids=lambda api: api.name)
def test_no_heavy_request_holds_up_the_loop(broker: Broker, api: Api) -> None:
    turns = longest_turns(broker, api, api.versions[-1], ROWS)
    too_long = {shape: cpu_ms for shape, cpu_ms in turns.items() if cpu_ms > TURN_CPU_MS_MAX}
    assert too_long == {}, f"{api.name}: turns of so many ms of CPU"


def test_large_requests_and_what_follows_them_are_answered_in_order(broker: Broker) -> None:
    """They are decoded and encoded beside the loop; the next request of the connection waits for them."""
    peer = Peer(broker)
    partitions = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(ROWS)]
    large = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
    small = MetadataRequest(topics=[])
    frames = [
        encode_request(small if number % 2 else large, 12 if number % 2 else 7, number, "in order")
        for number in range(6)
    ]
    peer.sock.sendall(b"".join(frames))
    for number in range(6):
        frame = peer.receive()
        key, version = (3, 12) if number % 2 else (2, 7)
        correlation_id, position = decode_response_header(frame, key, version)
        assert correlation_id == number
        if not number % 2:
            rows = ListOffsetsResponse.decode(frame, 7, position).topics[0].partitions
            assert [row.partition_index for row in rows] == list(range(ROWS))
            assert [row.error_code for row in rows[:4]] == [0, 0, 0, 3]
    peer.sock.close()


# ------------------------------------------------------------------------------------------------ bombs


def bomb(codec: Codec, first_ms: int) -> bytes:
    """A batch of a few kilobytes whose two records unpack to `BOMB_BYTES`; the second one is a second newer."""
    records = [
        Record(0, first_ms, b"k", bytes(BOMB_BYTES // 2)),
        Record(1, first_ms + 1000, b"k", bytes(BOMB_BYTES // 2)),
    ]
    return build_batch(records, codec=codec)


def produce(peer: Peer, topic: str, batch: bytes) -> int:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[data])
    return peer.ask(request, ProduceResponse, 9).responses[0].partition_responses[0].error_code


def list_offsets(peer: Peer, topic: str, time_ms: int) -> tuple[int, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=time_ms)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    row = peer.ask(request, ListOffsetsResponse, 7).topics[0].partitions[0]
    assert row.error_code == 0
    return row.timestamp, row.offset


@pytest.mark.parametrize("codec", PACKERS, ids=lambda codec: codec.name)
def test_a_search_by_time_unpacks_a_bomb_beside_the_loop(broker: Broker, codec: Codec) -> None:
    topic, now_ms = f"times-{codec.name}", int(time.time() * 1000)
    create_topic(broker.bootstrap, topic, 1, KEPT)
    peer = Peer(broker)
    assert produce(peer, topic, bomb(codec, now_ms)) == 0
    list_offsets(peer, topic, now_ms)
    with measured(broker) as turns:
        assert list_offsets(peer, topic, now_ms) == (now_ms, 0)
        assert list_offsets(peer, topic, now_ms + 1) == (now_ms + 1000, 1)
        assert list_offsets(peer, topic, -3) == (now_ms + 1000, 1)
        assert is_served(broker)
    assert turns.longest_cpu_ms < TURN_CPU_MS_MAX


@pytest.mark.parametrize("codec", PACKERS, ids=lambda codec: codec.name)
@pytest.mark.parametrize(
    "options",
    [{"cleanup.policy": "compact"}, {"compression.type": "snappy"}, {"compression.type": "uncompressed"}],
    ids=lambda options: next(iter(options.values())),
)
def test_a_bomb_is_prepared_beside_the_loop(broker: Broker, codec: Codec, options: dict[str, str]) -> None:
    topic = f"prepared-{codec.name}-{next(iter(options.values()))}"
    create_topic(broker.bootstrap, topic, 1, options)
    batch = bomb(codec, int(time.time() * 1000))
    peer = Peer(broker)
    produce(peer, topic, batch)
    with measured(broker) as turns:
        error = produce(peer, topic, batch)
        assert is_served(broker)
    too_large = options.get("compression.type") == "uncompressed"
    assert error == (10 if too_large else 0)  # MESSAGE_TOO_LARGE
    assert turns.longest_cpu_ms < TURN_CPU_MS_MAX


def test_the_same_peer_may_disappear_while_a_bomb_is_unpacked(broker: Broker) -> None:
    topic, now_ms = "left", int(time.time() * 1000)
    create_topic(broker.bootstrap, topic, 1, KEPT)
    peer = Peer(broker)
    assert produce(peer, topic, bomb(Codec.ZSTD, now_ms)) == 0
    row = ListOffsetsPartition(partition_index=0, timestamp=now_ms + 1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[row])])
    for _ in range(20):
        gone = Peer(broker)
        gone.sock.sendall(encode_request(request, 7, 1, "gone"))
        with contextlib.suppress(OSError):
            gone.sock.close()
    assert list_offsets(peer, topic, now_ms + 1) == (now_ms + 1000, 1)
