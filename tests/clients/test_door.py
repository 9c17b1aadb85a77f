"""What the broker refuses at the door, as Kafka does: writes to its own topics, batches that nobody could read or end."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from barnabas.records.batch import ATTRIBUTES_POS, CRC_POS, HEADER_BYTES, Record, build_batch
from barnabas.records.checksum import crc32c
from barnabas.records.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.uuids import uuid_text
from tests.clients.drivers import Confluent, Message
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess
from tests.support.raw import Raw

VERSION = 9
LAST_OFFSET_DELTA_POS, RECORD_COUNT_POS = 23, 57
GOOD = build_batch([Record(0, int(time.time() * 1000), b"k", b"v" * 100)])


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[Raw]:
    connection = Raw(broker)
    yield connection
    connection.sock.close()


def new_topic(broker: BrokerProcess, partitions: int = 1, **config: str) -> str:
    name = f"door-{uuid.uuid4().hex[:8]}"
    create_topic(
        broker.bootstrap, name, partitions, {key.replace("_", "."): value for key, value in config.items()}
    )
    return name


def produce(
    raw: Raw, topic: str, *batches: bytes, client_id: str = "raw", version: int = VERSION
) -> list[PartitionProduceResponse]:
    """The answers to one batch for each partition, from 0 on."""
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)
                ],
            )
        ],
    )
    answer = raw.ask(request, ProduceResponse, version, client_id)
    assert isinstance(answer, ProduceResponse)
    return answer.responses[0].partition_responses


def codes(answers: list[PartitionProduceResponse]) -> list[int]:
    return [answer.error_code for answer in answers]


def sealed(batch: bytes | bytearray) -> bytes:
    """The batch with a checksum that holds."""
    data = bytearray(batch)
    data[CRC_POS : CRC_POS + 4] = struct.pack(">I", crc32c(data[ATTRIBUTES_POS:]))
    return bytes(data)


def with_codec(batch: bytes, codec: int) -> bytes:
    """The batch says that its records are packed with `codec`; they are not."""
    data = bytearray(batch)
    data[ATTRIBUTES_POS + 1] = data[ATTRIBUTES_POS + 1] & ~7 | codec
    return sealed(data)


def unreadable(codec: Codec = Codec.NONE) -> bytes:
    """A batch whose checksum holds over records that are no records."""
    good = build_batch([Record(0, int(time.time() * 1000), b"k", b"v" * 200)], codec=codec)
    return sealed(good[: HEADER_BYTES + 4] + b"\xff" * (len(good) - HEADER_BYTES - 4))


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__share_group_state"])
def test_clients_cannot_write_to_internal_topics(broker: BrokerProcess, raw: Raw, topic: str) -> None:
    make_internal(raw, topic)
    for _ in range(2):  # the second request could take the fast path
        (answer,) = produce(raw, topic, GOOD)
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert topic in (answer.error_message or "")
    failures = []
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, b"v", on_delivery=lambda error, _: failures.append(error))
    producer.flush(30)
    assert [failure.code() for failure in failures] == [ErrorCode.INVALID_TOPIC_EXCEPTION]


def make_internal(raw: Raw, topic: str) -> None:
    """Have the broker make one of its own topics, as it does when somebody asks for its coordinator."""
    keys = {"__consumer_offsets": (0, "g"), "__share_group_state": (2, f"g:{uuid_text(uuid.uuid4())}:0")}
    kind, key = keys[topic]
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    answer = raw.ask(request, FindCoordinatorResponse, 6)
    assert isinstance(answer, FindCoordinatorResponse)
    assert answer.coordinators[0].error_code == ErrorCode.NONE, answer.coordinators[0].error_message


@pytest.mark.parametrize("codec", [5, 6, 7])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_an_unknown_codec_is_refused(broker: BrokerProcess, raw: Raw, codec: int, policy: str) -> None:
    topic = new_topic(broker, cleanup_policy=policy)
    for _ in range(2):
        (answer,) = produce(raw, topic, with_codec(GOOD, codec))
        assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert codes(produce(raw, topic, GOOD)) == [0]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_records_that_cannot_be_read_cost_only_their_partition(
    broker: BrokerProcess, raw: Raw, codec: Codec
) -> None:
    topic = new_topic(broker, 2, cleanup_policy="compact")
    assert codes(produce(raw, topic, unreadable(codec), GOOD)) == [ErrorCode.INVALID_RECORD, 0]
    assert codes(produce(raw, topic, unreadable(codec))) == [ErrorCode.INVALID_RECORD]
    assert codes(produce(raw, topic, GOOD)) == [0]


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_a_time_in_records_that_cannot_be_read_is_an_error_of_their_partition(
    broker: BrokerProcess, raw: Raw, codec: Codec
) -> None:
    topic = new_topic(broker, 2)
    assert codes(produce(raw, topic, unreadable(codec), GOOD)) == [0, 0]
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=index, timestamp=1) for index in range(2)],
            )
        ],
    )
    answer = raw.ask(request, ListOffsetsResponse, 5)
    assert isinstance(answer, ListOffsetsResponse)
    parts = {part.partition_index: part for part in answer.topics[0].partitions}
    assert parts[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert (parts[1].error_code, parts[1].offset) == (0, 0)


def test_a_batch_larger_than_a_segment_is_refused(broker: BrokerProcess, raw: Raw) -> None:
    topic = new_topic(broker, segment_bytes="1000")
    large = build_batch([Record(0, 1, b"k", b"v" * 1000)])
    for _ in range(2):
        assert codes(produce(raw, topic, large)) == [ErrorCode.RECORD_LIST_TOO_LARGE]
        assert codes(produce(raw, topic, GOOD)) == [0]


def test_more_records_than_the_bytes_can_hold_are_refused(broker: BrokerProcess, raw: Raw) -> None:
    """The header's numbers agree with each other; believed, they would use up offsets for records that are not there."""
    topic = new_topic(broker)
    lie = bytearray(GOOD)
    struct.pack_into(">i", lie, LAST_OFFSET_DELTA_POS, 999)
    struct.pack_into(">i", lie, RECORD_COUNT_POS, 1_000)
    for _ in range(3):  # also as requests that look like the one before
        assert codes(produce(raw, topic, GOOD)) == [ErrorCode.NONE]
        (refused,) = produce(raw, topic, sealed(lie))
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert "says 1000 records" in (refused.error_message or "")
    assert produce(raw, topic, GOOD)[0].base_offset == 3


def test_a_transactional_batch_outside_a_transaction_is_refused(broker: BrokerProcess, raw: Raw) -> None:
    topic = new_topic(broker)
    records = [Record(0, int(time.time() * 1000), b"k", b"v")]
    transactional = build_batch(
        records, producer_id=123_456, producer_epoch=0, base_sequence=0, transactional=True
    )
    (answer,) = produce(raw, topic, transactional)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert "the request names no transactional id" in (answer.error_message or "")
    # The last stable offset is not held back: who reads what is committed reads on.
    assert codes(produce(raw, topic, GOOD)) == [0]
    messages = Confluent().consume(broker.bootstrap, topic, 1, 1, timeout_s=20)
    assert [message.key for message in messages] == [b"k"]


def test_messages_of_others_arrive_all_the_same(broker: BrokerProcess) -> None:
    topic = new_topic(broker)
    sent = [Message(0, None, b"%d" % number) for number in range(10)]
    assert Confluent().produce(broker.bootstrap, topic, sent, codec="none", acks=-1) == 10
