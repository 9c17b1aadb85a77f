"""Peers that take more than they give: the broker's memory stays bounded, and everybody else is served."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from barnabas.records.batch import Record, build_batch
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.schema import Message
from tests.clients.test_bad_input import Raw
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

GROWTH_KB_MAX = 24 * 1024


def resident_kb(broker: BrokerProcess) -> int:
    with open(f"/proc/{broker.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def fill(broker: BrokerProcess, topic: str, batches: int, value_bytes: int) -> None:
    raw = Raw(broker)
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"v" * value_bytes)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    for _ in range(batches):
        answer = raw.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), ProduceResponse, 9)
        assert isinstance(answer, ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == 0
    raw.sock.close()


def fetch(topic: str, offset: int, max_bytes: int = 1 << 20, wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[
            FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)])],
    )  # fmt: skip


@pytest.mark.parametrize("asks", ["fetch", "metadata"])
def test_a_peer_that_asks_much_and_reads_nothing(own_broker: Callable[..., BrokerProcess], asks: str) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, "large", 1)
    create_topic(broker.bootstrap, "wide", 300)
    fill(broker, "large", 20, 60_000)
    request: Message = fetch("large", 0, 60_000) if asks == "fetch" else MetadataRequest(topics=None)
    before_kb = resident_kb(broker)
    raw = Raw(broker)
    raw.sock.settimeout(1)
    with contextlib.suppress(TimeoutError):
        raw.sock.sendall(encode_request(request, 12, 1, "greedy") * 5_000)
    Raw(broker).ask(MetadataRequest(topics=[]), _Any, 12)
    assert resident_kb(broker) - before_kb < GROWTH_KB_MAX
    raw.sock.close()


class _Any(Message):
    """Whatever comes: only that it comes matters."""

    @classmethod
    def decode(cls, *_: object) -> _Any:  # type: ignore[override]
        return cls()


def test_ten_thousand_pipelined_requests_are_answered_in_order(broker: BrokerProcess) -> None:
    raw = Raw(broker)
    frames = b"".join(encode_request(MetadataRequest(topics=[]), 12, n, "many") for n in range(10_000))
    sender = threading.Thread(target=raw.send, args=(frames,))
    sender.start()
    answered = [decode_response_header(raw.frame(), 3, 12)[0] for _ in range(10_000)]
    sender.join()
    assert answered == list(range(10_000))


def test_announced_frames_take_no_memory_before_they_arrive(broker: BrokerProcess) -> None:
    before_kb = resident_kb(broker)
    peers = [Raw(broker) for _ in range(5)]
    for peer in peers:
        peer.send(struct.pack(">ihh", 100 << 20, 0, 9))
    Raw(broker).ask(MetadataRequest(topics=[]), _Any, 12)
    assert resident_kb(broker) - before_kb < GROWTH_KB_MAX
    for peer in peers:
        peer.sock.close()


def test_long_polls_whose_peers_are_gone_are_forgotten(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    create_topic(broker.bootstrap, "quiet", 1)
    frame = encode_request(fetch("quiet", 0, wait_ms=(1 << 31) - 1), 12, 1, "gone")

    def come_and_go(times: int) -> int:
        for _ in range(times):
            with socket.create_connection(("127.0.0.1", broker.port)) as sock:
                sock.sendall(frame)
        Raw(broker).ask(MetadataRequest(topics=[]), _Any, 12)
        return resident_kb(broker)

    warm_kb = come_and_go(200)
    assert come_and_go(2_000) - warm_kb < 2_000  # a parked fetch holds more than a kilobyte


def test_with_too_many_peers_the_next_ones_wait(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(max__connections="50")
    peers = [Raw(broker) for _ in range(100)]
    peers[0].ask(MetadataRequest(topics=[]), _Any, 12)
    for peer in peers[:90]:
        peer.sock.close()
    peers[-1].ask(MetadataRequest(topics=[]), _Any, 12)
    assert 1 <= broker.log().count("no more connections") < 10


def produce_frame(topic: str, value_bytes: int) -> bytes:
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"v" * value_bytes)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return encode_request(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9, 1, "large")


def test_unfinished_requests_share_a_bounded_memory(own_broker: Callable[..., BrokerProcess]) -> None:
    """Half-sent requests held any amount of memory; now most of them wait, and all are answered in the end."""
    room_bytes, value_bytes = 16 << 20, 6_000_000
    broker = own_broker(
        queued__max__request__bytes=str(room_bytes),
        socket__request__max__bytes=str(room_bytes),
        message__max__bytes=str(room_bytes),
    )
    create_topic(broker.bootstrap, "large", 1)
    frame = produce_frame("large", value_bytes)
    before_kb = resident_kb(broker)
    peers = [Raw(broker) for _ in range(14)]
    half = len(frame) - 100_000
    senders = [threading.Thread(target=peer.send, args=(frame[:half],), daemon=True) for peer in peers]
    for sender in senders:
        sender.start()
    for sender in senders[:2]:
        sender.join(60)  # those that have room are read
    Raw(broker).ask(MetadataRequest(topics=[]), _Any, 12)  # others are served meanwhile
    assert resident_kb(broker) - before_kb < room_bytes / 1024 + GROWTH_KB_MAX

    def finish(peer: Raw, sender: threading.Thread) -> None:
        sender.join(120)
        peer.send(frame[half:])

    ends = [threading.Thread(target=finish, args=pair) for pair in zip(peers, senders, strict=True)]
    for end in ends:
        end.start()
    for peer in peers:
        answer = peer.frame()
        _, position = decode_response_header(answer, 0, 9)
        decoded = ProduceResponse.decode(answer, 9, position)
        assert decoded.responses[0].partition_responses[0].error_code == 0
    for end in ends:
        end.join()
