"""The request versions that Kafka 4 dropped, asked byte by byte: what old clients do when something is wrong."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from typing import TypeVar

import pytest

from barnabas.records.batch import Record, TimestampType, build_batch
from barnabas.records.compression import Codec, compress
from barnabas.records.message_set import append_message, build_message_set, messages, read_message_set
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.schema import Message as WireMessage
from tests.clients.cli_support import Cli
from tests.clients.drivers import Confluent, Message
from tests.support.admin import KEPT, create_topic
from tests.support.process import BrokerProcess

Response = TypeVar("Response", bound=WireMessage)
TIME = 1_600_000_000_000


class Peer:
    """One connection that asks in whatever version it likes."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.sock = socket.create_connection(("127.0.0.1", broker.port), 30)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, request: WireMessage, version: int) -> None:
        self.sock.sendall(encode_request(request, version, 1, "old-client"))

    def receive(self, response: type[Response], version: int) -> Response:
        frame = self._take(int.from_bytes(self._take(4), "big"))
        _, position = decode_response_header(frame, response.API_KEY, version, 0)
        return response.decode(frame, version, position)

    def ask(self, request: WireMessage, response: type[Response], version: int) -> Response:
        self.send(request, version)
        return self.receive(response, version)

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data

    def produce(
        self, topic: str, records: bytes | None, version: int = 2, acks: int = -1
    ) -> PartitionProduceResponse:
        answer = self.ask(produce_request(topic, records, acks), ProduceResponse, version)
        (one,) = answer.responses[0].partition_responses
        return one

    def fetch(
        self, topic: str, offset: int, version: int = 2, *, max_bytes: int = 1 << 20, wait_ms: int = 0
    ) -> PartitionData:
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 24,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
                    ],
                )
            ],
        )
        (one,) = self.ask(request, FetchResponse, version).responses[0].partitions
        return one

    def offsets(self, topic: str, timestamp_ms: int, most: int = 1) -> list[int]:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=0, timestamp=timestamp_ms, max_num_offsets=most)
                    ],
                )
            ],
        )
        (one,) = self.ask(request, ListOffsetsResponse, 0).topics[0].partitions
        assert one.error_code == 0
        return one.old_style_offsets


def produce_request(topic: str, records: bytes | None, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def lines(count: int, first: int = 0, size: int = 20) -> list[Record]:
    return [Record(first + n, TIME + n, b"key-%d" % n, b"%d" % n + b"." * size) for n in range(count)]


def new_topic(broker: BrokerProcess, config: dict[str, str] | None = None) -> str:
    topic = f"old-{uuid.uuid4().hex[:12]}"
    create_topic(broker.bootstrap, topic, config={**KEPT, **(config or {})})
    return topic


@pytest.fixture
def peer(broker: BrokerProcess):  # type: ignore[no-untyped-def]
    with Peer(broker) as peer:
        yield peer


# --- producing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_offsets_go_on_from_set_to_set(broker: BrokerProcess, peer: Peer, version: int, codec: Codec) -> None:
    topic = new_topic(broker)
    magic = 1 if version == 2 else 0
    for first in (0, 5, 10):
        answer = peer.produce(topic, build_message_set(lines(5), magic=magic, codec=codec), version)
        assert (answer.error_code, answer.base_offset) == (0, first)
    for fetch_version in range(4):
        data = peer.fetch(topic, 0, fetch_version)
        assert data.high_watermark == 15
        records = list(read_message_set(data.records))
        assert [row.offset for row in records] == list(range(15))
        assert [(row.key, row.value) for row in records] == [(row.key, row.value) for row in lines(5)] * 3
        kept = magic and fetch_version >= 2
        assert [row.timestamp for row in records] == [row.timestamp if kept else -1 for row in lines(5)] * 3
        assert {one.magic for _, one in messages(data.records)} == {1 if fetch_version >= 2 else 0}


def test_what_is_refused_and_how(broker: BrokerProcess, peer: Peer) -> None:
    topic = new_topic(broker, {"max.message.bytes": "2000"})
    good = build_message_set(lines(3), magic=1)
    zstd, stamped = bytearray(), bytearray()
    append_message(zstd, 0, 1, Codec.ZSTD, TIME, None, compress(Codec.ZSTD, good))
    append_message(stamped, 0, 1, 8, TIME, None, b"x")
    for records, error in (
        (good[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (good[:-5], ErrorCode.CORRUPT_MESSAGE),
        (None, ErrorCode.CORRUPT_MESSAGE),
        (bytes(zstd), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(stamped), ErrorCode.INVALID_TIMESTAMP),
        (build_message_set(lines(1, size=3000), magic=1), ErrorCode.MESSAGE_TOO_LARGE),
    ):
        assert peer.produce(topic, records).error_code == error
    assert peer.produce(topic, good, acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert peer.produce("no-such-topic", good).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert peer.offsets(topic, -1) == [0]


def test_acks_0_gets_no_answer_and_an_error_closes_the_connection(broker: BrokerProcess, peer: Peer) -> None:
    topic = new_topic(broker)
    good = build_message_set(lines(3), magic=0)
    peer.send(produce_request(topic, good, acks=0), 0)
    assert peer.offsets(topic, -1) == [3]
    peer.send(produce_request(topic, good[:-1] + b"!", acks=0), 0)
    with pytest.raises(ConnectionError):
        peer.offsets(topic, -1)


def test_a_set_larger_than_a_batch_may_be_is_parted(broker: BrokerProcess, peer: Peer) -> None:
    topic = new_topic(broker, {"max.message.bytes": "2000"})
    sent = lines(200, size=100)
    answer = peer.produce(topic, build_message_set(sent, magic=1))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    messages_read = Confluent().consume(broker.bootstrap, topic, 1, 200)
    assert [(item.offset, item.key, item.value, item.timestamp_ms) for item in messages_read] == [
        (row.offset, row.key, row.value, row.timestamp) for row in sent
    ]


def test_append_time_is_told_and_kept(broker: BrokerProcess, peer: Peer) -> None:
    topic = new_topic(broker, {"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    for codec in (Codec.NONE, Codec.GZIP):
        answer = peer.produce(topic, build_message_set(lines(2), magic=1, codec=codec))
        assert answer.log_append_time_ms >= before_ms
        data = peer.fetch(topic, answer.base_offset)
        assert {row.timestamp for row in read_message_set(data.records)} == {answer.log_append_time_ms}
        assert {one.timestamp_type for _, one in messages(data.records)} == {TimestampType.LOG_APPEND_TIME}


def test_a_compacted_topic_wants_keys_of_old_producers_too(broker: BrokerProcess, peer: Peer) -> None:
    topic = new_topic(broker, {"cleanup.policy": "compact"})
    keyless = build_message_set([Record(0, TIME, None, b"x")], magic=1)
    assert peer.produce(topic, keyless).error_code == ErrorCode.INVALID_RECORD
    assert peer.produce(topic, build_message_set(lines(1), magic=1)).error_code == 0


# --- fetching ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_a_fetch_ends_within_its_bytes_but_holds_something(
    broker: BrokerProcess, peer: Peer, version: int
) -> None:
    topic = new_topic(broker)
    peer.produce(topic, build_message_set(lines(100, size=100), magic=1))
    small = list(read_message_set(peer.fetch(topic, 40, version, max_bytes=500).records))
    assert [row.offset for row in small] == list(range(40, 40 + len(small)))
    assert 1 < len(small) < 5
    assert [row.offset for row in read_message_set(peer.fetch(topic, 40, version, max_bytes=1).records)] == [
        40
    ]
    assert peer.fetch(topic, 100, version).records == b""
    assert peer.fetch(topic, 101, version).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert peer.fetch("no-such-topic", 0, version).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(4))
def test_a_waiting_fetch_is_woken(broker: BrokerProcess, peer: Peer, version: int) -> None:
    topic = new_topic(broker)
    answers: list[PartitionData] = []
    waiting = threading.Thread(target=lambda: answers.append(peer.fetch(topic, 0, version, wait_ms=30_000)))
    waiting.start()
    with Peer(broker) as other:
        other.produce(topic, build_message_set(lines(2), magic=1))
    waiting.join(25)
    assert answers
    assert [row.offset for row in read_message_set(answers[0].records)] == [0, 1]


def test_zstd_is_refused_only_where_it_begins(broker: BrokerProcess, peer: Peer) -> None:
    topic = new_topic(broker)
    for codec, count in (("lz4", 3), ("zstd", 4)):
        sent = [Message(0, b"k", b"v" * 1000)] * count
        assert Confluent().produce(broker.bootstrap, topic, sent, codec=codec, acks=-1) == count
    for version in range(4):
        before = peer.fetch(topic, 0, version)
        assert before.error_code == 0
        assert [row.offset for row in read_message_set(before.records)] == [0, 1, 2]
        assert peer.fetch(topic, 3, version).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_zstd_topic_is_for_those_that_know_zstd(broker: BrokerProcess, peer: Peer) -> None:
    """By the topic's option alone, as Kafka does: looking into each batch would cost everybody."""
    topic = new_topic(broker, {"compression.type": "zstd"})
    batch = build_batch(lines(3), codec=Codec.LZ4)
    assert peer.produce(topic, batch, 3).error_code == 0
    for version in range(13):
        answer = peer.fetch(topic, 0, version)
        assert answer.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 10 else 0)
        assert bool(answer.records) == (version >= 10)
    batch = build_batch(lines(3), codec=Codec.ZSTD)
    for version in range(3, 10):
        answer = peer.produce(topic, batch, version)
        assert answer.error_code == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 7 else 0)
    assert peer.offsets(topic, -1) == [12]


def test_conversion_can_be_switched_off(broker: BrokerProcess, peer: Peer) -> None:
    topic = new_topic(broker, {"message.downconversion.enable": "false"})
    assert peer.produce(topic, build_message_set(lines(2), magic=1)).error_code == 0
    for version in range(4):
        assert peer.fetch(topic, 0, version).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert peer.fetch(topic, 2, version).error_code == 0
    assert len(Confluent().consume(broker.bootstrap, topic, 1, 2)) == 2


# --- the other APIs ------------------------------------------------------------------------------------


def test_list_offsets_0(broker: BrokerProcess, peer: Peer) -> None:
    topic = new_topic(broker, {"segment.bytes": "2000"})
    assert peer.offsets(topic, -1, 10) == [0]
    for _ in range(10):
        peer.produce(topic, build_message_set(lines(5, size=150), magic=1))
    assert peer.offsets(topic, -1) == [50]
    assert peer.offsets(topic, -2) == [0]
    every = peer.offsets(topic, -1, 100)
    assert every == sorted(every, reverse=True)
    assert (every[0], every[-1]) == (50, 0)
    assert len(every) > 4
    now_ms = int(time.time() * 1000)
    assert peer.offsets(topic, now_ms + 60_000, 3) == every[:3]
    assert peer.offsets(topic, 1000, 10) == []
    assert peer.offsets(topic, -1, 0) == []


def test_topics_by_the_oldest_versions(broker: BrokerProcess, peer: Peer) -> None:
    for version in (0, 1):
        name = f"old-{uuid.uuid4().hex[:12]}"
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)], timeout_ms=5000
        )
        (topic_row,) = peer.ask(request, CreateTopicsResponse, version).topics
        assert (topic_row.name, topic_row.error_code) == (name, 0)
        (again,) = peer.ask(request, CreateTopicsResponse, version).topics
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        (shown,) = peer.ask(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
                ]
            ),
            DescribeConfigsResponse,
            0,
        ).results
        assert {config.name: config.is_default for config in shown.configs}["retention.ms"] is True
        delete = DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)
        (gone,) = peer.ask(delete, DeleteTopicsResponse, 0).responses
        assert (gone.name, gone.error_code) == (name, 0)


@pytest.mark.parametrize("version", [0, 1])
def test_commits_by_the_oldest_versions(broker: BrokerProcess, peer: Peer, version: int) -> None:
    topic = new_topic(broker)
    group = f"old-{uuid.uuid4().hex[:12]}"

    def committed(fetch_version: int) -> tuple[int, str | None, int]:
        request = OffsetFetchRequest(
            group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
        )
        (one,) = peer.ask(request, OffsetFetchResponse, fetch_version).topics[0].partitions
        return one.committed_offset, one.metadata, one.error_code

    commit = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=7, committed_metadata="m"
                    )
                ],
            )
        ],
    )
    deadline = time.monotonic() + 120
    while committed(1)[2] != 0 and time.monotonic() < deadline:
        time.sleep(0.05)  # the coordinator's topic is made at the first request for it
    assert committed(0) == (-1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert committed(1) == (-1, "", ErrorCode.NONE)
    (one,) = peer.ask(commit, OffsetCommitResponse, version).topics[0].partitions
    assert one.error_code == 0
    assert committed(0) == committed(1) == (7, "m", ErrorCode.NONE)


@pytest.mark.parametrize("version", range(5))
def test_where_a_leader_epoch_ended(broker: BrokerProcess, peer: Peer, version: int) -> None:
    topic = new_topic(broker)
    peer.produce(topic, build_message_set(lines(5), magic=1))

    def end_of(name: str, epoch: int, current: int = -1) -> tuple[int, int, int]:
        request = OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=0, leader_epoch=epoch, current_leader_epoch=current
                        )
                    ],
                )
            ]
        )
        (one,) = peer.ask(request, OffsetForLeaderEpochResponse, version).topics[0].partitions
        return one.error_code, one.leader_epoch, one.end_offset

    assert end_of(topic, 0) == (0, 0 if version else -1, 5)
    assert end_of(topic, 9) == (0, -1, -1)
    assert end_of("no-such-topic", 0)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 2:
        assert end_of(topic, 0, current=4)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_clients_are_shown_with_what_they_speak_and_cost(broker: BrokerProcess, peer: Peer, cli: Cli) -> None:
    topic = new_topic(broker)
    peer.produce(topic, build_message_set(lines(7), magic=0), 1)
    peer.fetch(topic, 0, 2)
    port = peer.sock.getsockname()[1]
    shown = cli.json("clients")
    (mine,) = (row for row in shown["clients"] if row["address"] == f"127.0.0.1:{port}")
    assert (mine["client_id"], mine["software"]) == ("old-client", "")
    assert mine["apis"] == {"Produce": 1, "Fetch": 2}
    (asker,) = (row for row in shown["clients"] if "ConnectedClients" in row["apis"])
    assert asker["software"].startswith("barnabas ")
    for direction in ("up", "down"):
        (cost,) = (
            row
            for row in shown["conversions"]
            if (row["client_id"], row["direction"]) == ("old-client", direction)
        )
        assert cost["records"] >= 7
    assert b"old-client" in cli.out("clients")


def test_our_own_api_is_announced_to_nobody_else(peer: Peer) -> None:
    for version in (0, 3):
        request = ApiVersionsRequest(client_software_name="other", client_software_version="1")
        answer = peer.ask(request, ApiVersionsResponse, version)
        assert answer.api_keys
        assert max(key.api_key for key in answer.api_keys) < 1000
