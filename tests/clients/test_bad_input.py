"""What a peer gets for nonsense: Kafka's answer or a closed connection, a log line, and nobody else is hurt."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from barnabas.records.batch import Record, build_batch
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.api_versions import ApiVersionsResponse
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.clients.drivers import Confluent
from tests.clients.drivers import Message as Sent
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess
from tests.support.raw import Raw


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[Raw]:
    connection = Raw(broker)
    yield connection
    connection.sock.close()


@pytest.fixture(autouse=True)
def nobody_else_is_hurt(broker: BrokerProcess) -> Iterator[None]:
    """Around each test another client works on as if nothing were."""
    topic = f"bystander-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic)
    yield
    sent = [Sent(0, None, b"%d" % number) for number in range(10)]
    assert Confluent().produce(broker.bootstrap, topic, sent, codec="none", acks=-1) == 10


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30) + b"x" * 100,
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhi", 20, 0, 9, 1) + b"\xff" * 12,
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["negative", "huge", "short", "garbled", "unknown-api", "unknown-version", "http"],
)
def test_nonsense_closes_the_connection_and_is_logged(
    broker: BrokerProcess, raw: Raw, garbage: bytes
) -> None:
    own = raw.sock.getsockname()
    raw.send(garbage)
    assert raw.is_closed()
    assert f"127.0.0.1:{own[1]}" in broker.log()


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(raw: Raw) -> None:
    raw.send(struct.pack(">ihhih", 10, 18, 77, 5, -1))
    frame = raw.frame()
    assert struct.unpack_from(">i", frame) == (5,)
    answer = ApiVersionsResponse.decode(frame, 0, 4)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [row.api_key for row in answer.api_keys] == [18]


def produce(raw: Raw, topic: str, records: bytes | None, acks: int = 1) -> tuple[int, int]:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        ],
    )
    answer = raw.ask(request, ProduceResponse, 9)
    assert isinstance(answer, ProduceResponse)
    one = answer.responses[0].partition_responses[0]
    return one.error_code, one.base_offset


def test_broken_batches_are_refused_and_nothing_is_written(broker: BrokerProcess, raw: Raw) -> None:
    topic = f"broken-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic)
    good = build_batch([Record(0, 1, b"k", b"v" * 100)])
    flipped = bytearray(good)
    flipped[-1] ^= 1
    assert produce(raw, topic, bytes(flipped)) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert produce(raw, topic, good[:-5])[0] in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert produce(raw, topic, b"")[0] in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert produce(raw, topic, None)[0] in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert produce(raw, topic, good + good)[0] == ErrorCode.INVALID_RECORD
    assert produce(raw, topic, good, acks=5) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    too_large = build_batch([Record(0, 1, None, b"v" * 2_000_000)])
    assert produce(raw, topic, too_large) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert produce(raw, f"absent-{topic}", good) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert produce(raw, topic, good) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "ü", "../../etc"])
def test_illegal_topic_names(raw: Raw, name: str) -> None:
    asked = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
    answer = raw.ask(asked, CreateTopicsResponse, 7)
    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert answer.topics[0].error_message
    described = raw.ask(
        MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True),
        MetadataResponse,
        12,
    )
    assert isinstance(described, MetadataResponse)
    assert described.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_id_in_a_version_that_asks_by_name_only(raw: Raw) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=uuid.uuid4())])
    answer = raw.ask(asked, MetadataResponse, 11)
    assert isinstance(answer, MetadataResponse)
    assert [(topic.error_code, topic.name) for topic in answer.topics] == [(ErrorCode.INVALID_REQUEST, "")]


def test_a_frame_in_single_bytes_is_understood(raw: Raw) -> None:
    frame = encode_request(MetadataRequest(topics=[]), 12, 3, "slow")
    for byte in frame:
        raw.send(bytes([byte]))
    assert decode_response_header(raw.frame(), 3, 12)[0] == 3


def test_pipelined_requests_are_answered_in_order(raw: Raw) -> None:
    raw.send(
        b"".join(encode_request(MetadataRequest(topics=[]), 12, number, "many") for number in range(500))
    )
    answered = [decode_response_header(raw.frame(), 3, 12)[0] for _ in range(500)]
    assert answered == list(range(500))


@pytest.mark.parametrize(
    "last", [struct.pack(">i", -1), struct.pack(">ihhih", 10, 999, 0, 1, -1)], ids=["size", "unknown-api"]
)
def test_what_was_served_before_the_nonsense_is_answered(raw: Raw, last: bytes) -> None:
    """In the same packet: otherwise a producer would not hear of what was appended, and send it again."""
    asked = [encode_request(MetadataRequest(topics=[]), 12, number, "many") for number in range(3)]
    raw.send(b"".join(asked) + last)
    assert [decode_response_header(raw.frame(), 3, 12)[0] for _ in range(3)] == [0, 1, 2]
    assert raw.is_closed()


@pytest.mark.parametrize("warm", [False, True], ids=["first", "by-the-fast-path"])
def test_a_small_frame_above_the_limit(own_broker: Callable[..., BrokerProcess], warm: bool) -> None:
    """The limit also holds for a frame that arrives whole with the first read, and on the fast path of produce."""
    broker = own_broker(socket__request__max__bytes="2000")
    topic = f"limited-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic)

    def request(size: int) -> bytes:
        records = build_batch([Record(0, int(time.time() * 1000), None, b"x" * size)])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        return encode_request(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9, 1, "limited")

    peer = Raw(broker)
    for _ in range(3 if warm else 0):
        peer.send(request(100))
        peer.frame()
    peer.send(request(3000))
    assert peer.is_closed()
    peer.sock.close()
    assert "socket.request.max.bytes allows 0 to 2000" in broker.log_path.read_text()
