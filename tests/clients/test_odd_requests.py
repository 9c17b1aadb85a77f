"""Legal requests at the limits are answered: the longest names, the last times, no records, very many partitions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages import request_class, response_class
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from barnabas.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.primitives import WireError
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess
from tests.support.raw import Raw
from tests.support.wire_samples import with_every_string

LONGEST = "n" * 32_767


@pytest.fixture
def raw(broker: BrokerProcess) -> Iterator[Raw]:
    connection = Raw(broker)
    yield connection
    connection.sock.close()


def test_an_offset_that_is_to_be_kept_for_ever(broker: BrokerProcess, raw: Raw) -> None:
    topic = f"kept-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic)
    request = OffsetCommitRequest(
        group_id=f"g-{topic}",
        retention_time_ms=(1 << 63) - 1,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=(1 << 63) - 1, committed_metadata=""
                    )
                ],
            )
        ],
    )
    answer = raw.ask(request, OffsetCommitResponse, 4)
    assert isinstance(answer, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


API_KEYS = (3, 8, 9, 10, 12, 13, 15, 16, 19, 20, 21, 23, 32, 33, 37, 42, 44, 47, 48, 49, 60, 61, 69, 75)


@pytest.mark.parametrize("key", API_KEYS)
def test_names_of_the_greatest_length_are_answered(broker: BrokerProcess, raw: Raw, key: int) -> None:
    """Whatever the answer is, it must be one: an error's text may not make it too long to be sent."""
    cls = request_class(key)
    answered = 0
    for version in cls.VERSIONS:
        request = with_every_string(cls, version, LONGEST)
        try:
            raw.ask(request, response_class(key), version)
        except WireError:
            continue  # what the broker does not serve
        except ConnectionError:
            raw.__init__(broker)  # type: ignore[misc]
            continue
        answered += 1
    assert answered, "no version was answered"


def test_a_member_whose_client_id_has_the_greatest_length(raw: Raw) -> None:
    request = JoinGroupRequest(
        group_id=f"long-{uuid.uuid4().hex[:8]}",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")] * 2,
    )
    answer = raw.ask(request, JoinGroupResponse, 5, client_id=LONGEST)
    assert isinstance(answer, JoinGroupResponse)
    assert answer.error_code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert len(answer.member_id) < 1_000


@pytest.mark.parametrize("records", [None, b""])
@pytest.mark.parametrize("version", range(3, 10))
def test_a_partition_without_records(
    broker: BrokerProcess, raw: Raw, records: bytes | None, version: int
) -> None:
    topic = f"none-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])]
    answer = raw.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), ProduceResponse, version)
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD


def test_sessions_of_very_many_partitions_are_bounded(broker: BrokerProcess, raw: Raw) -> None:
    """Also of topics that do not exist: 100,000 partitions are kept for a connection, no more."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1) for index in range(60_000)
    ]

    def opened(topic: str, epoch: int = 0, session_id: int = 0) -> FetchResponse:
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            session_epoch=epoch,
            session_id=session_id,
            topics=[FetchTopic(topic=topic, partitions=partitions)],
        )
        answer = raw.ask(request, FetchResponse, 7)
        assert isinstance(answer, FetchResponse)
        return answer

    first = opened("absent-a")
    assert first.session_id > 0
    second = opened("absent-b")  # pushes out the first session of this connection
    assert second.session_id > 0
    lost = opened("absent-c", epoch=1, session_id=first.session_id)
    assert lost.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    grown = opened("absent-c", epoch=1, session_id=second.session_id)
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_options_that_are_asked_for_many_times_are_told_once(raw: Raw) -> None:
    """300 options for each of 2,000 rows held the loop up for seconds."""
    rows = [DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)] * 2_000
    answer = raw.ask(DescribeConfigsRequest(resources=rows), DescribeConfigsResponse, 4)
    assert isinstance(answer, DescribeConfigsResponse)
    assert [(row.resource_name, row.error_code) for row in answer.results] == [("1", ErrorCode.NONE)]
    assert len(answer.results[0].configs) > 200


def test_a_page_that_begins_before_the_first_partition(broker: BrokerProcess, raw: Raw) -> None:
    topic = f"page-{uuid.uuid4().hex[:8]}"
    create_topic(broker.bootstrap, topic)
    for first, code in ((0, ErrorCode.NONE), (-1, ErrorCode.INVALID_REQUEST)):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=topic)], cursor=Cursor(topic_name=topic, partition_index=first)
        )
        answer = raw.ask(request, DescribeTopicPartitionsResponse, 0)
        assert isinstance(answer, DescribeTopicPartitionsResponse)
        assert [(row.name, row.error_code) for row in answer.topics] == [(topic, code)]
