"""Odd requests with the answers that Apache Kafka 4.3.1 gives. More of them, generated: `python -m tests.differential`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from barnabas.wire.messages import response_class
from barnabas.wire.messages.alter_configs import AlterConfigsRequest
from barnabas.wire.messages.alter_configs import AlterConfigsResource as Replaced
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.wire.messages.sync_group import SyncGroupRequest
from barnabas.wire.schema import Message
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess
from tests.support.raw import Raw

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


class Asked:
    """A topic of two partitions, and a connection that asks about it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.topic = f"same-{uuid.uuid4().hex[:8]}"
        create_topic(broker.bootstrap, self.topic, 2)
        self.raw = Raw(broker)

    def __call__(self, request: Message, version: int) -> Message:
        return self.raw.ask(request, response_class(request.API_KEY), version)


@pytest.fixture
def ask(broker: BrokerProcess) -> Iterator[Asked]:
    asked = Asked(broker)
    yield asked
    asked.raw.sock.close()


def test_the_empty_group_keeps_offsets(ask: Asked) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    commit = OffsetCommitRequest(
        group_id="", topics=[OffsetCommitRequestTopic(name=ask.topic, partitions=[partition])]
    )
    assert ask(commit, 5).topics[0].partitions[0].error_code == 0  # type: ignore[attr-defined]
    fetch = OffsetFetchRequest(
        group_id="",
        topics=[OffsetFetchRequestTopic(name=ask.topic, partition_indexes=[0])],
    )
    answer = ask(fetch, 5)
    assert answer.error_code == 0  # type: ignore[attr-defined]
    assert answer.topics[0].partitions[0].committed_offset == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(("producer_id", "epoch", "code"), [(5, -1, 42), (-1, 3, 42), (-1, -1, 0), (5, 3, 0)])
def test_a_producer_names_id_and_epoch_or_neither(
    ask: Asked, producer_id: int, epoch: int, code: int
) -> None:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
    )
    assert ask(request, 4).error_code == code  # type: ignore[attr-defined]


def test_the_same_resource_twice(ask: Asked) -> None:
    change = AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=ask.topic, configs=[change])
    answer = ask(IncrementalAlterConfigsRequest(resources=[resource, resource]), 1)
    assert [row.error_code for row in answer.responses] == [42, 42]  # type: ignore[attr-defined]


def test_sync_without_a_protocol(ask: Asked) -> None:
    request = SyncGroupRequest(group_id="absent", generation_id=1, member_id="nobody", assignments=[])
    assert ask(request, 5).error_code == 23  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "", 17),
        (TOPIC, "bad name!", 17),
        (TOPIC, "absent", 3),
        (CLIENT_METRICS, "", 42),
        (GROUP, "", 42),
    ],
)
def test_options_of_what_has_no_name(ask: Asked, kind: int, name: str, code: int) -> None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer = ask(DescribeConfigsRequest(resources=[resource]), 4)
    assert [row.error_code for row in answer.results] == [code]  # type: ignore[attr-defined]


def test_all_brokers_cannot_be_given_no_options_at_all(ask: Asked) -> None:
    resource = Replaced(resource_type=BROKER, resource_name="", configs=[])
    answer = ask(AlterConfigsRequest(resources=[resource], validate_only=True), 1)
    assert [row.error_code for row in answer.responses] == [40]  # type: ignore[attr-defined]


def test_a_topic_is_deleted_by_name_or_by_id(ask: Asked) -> None:
    described = ask(MetadataRequest(topics=[MetadataRequestTopic(name=ask.topic)]), 12)
    topic_id = described.topics[0].topic_id  # type: ignore[attr-defined]
    for state in (DeleteTopicState(name=ask.topic, topic_id=topic_id), DeleteTopicState(name=None)):
        answer = ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6)
        assert [row.error_code for row in answer.responses] == [42]  # type: ignore[attr-defined]
    twice = [DeleteTopicState(name=ask.topic)] * 2
    answer = ask(DeleteTopicsRequest(topics=twice, timeout_ms=1000), 6)
    assert [row.error_code for row in answer.responses] == [42]  # type: ignore[attr-defined]
    by_id = [DeleteTopicState(name=None, topic_id=topic_id)]
    answer = ask(DeleteTopicsRequest(topics=by_id, timeout_ms=1000), 6)
    assert [row.error_code for row in answer.responses] == [0]  # type: ignore[attr-defined]


def test_elections(ask: Asked) -> None:
    answer = ask(ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000), 2)
    rows = {row.topic: row.partition_result for row in answer.replica_election_results}  # type: ignore[attr-defined]
    assert rows[ask.topic] == []  # each topic is named, partitions that lack nothing are not
    asked = TopicPartitions(topic=ask.topic, partitions=[1])
    answer = ask(ElectLeadersRequest(election_type=5, topic_partitions=[asked], timeout_ms=1000), 2)
    assert answer.error_code == 42  # type: ignore[attr-defined]
    (row,) = answer.replica_election_results  # type: ignore[attr-defined]
    assert [result.error_code for result in row.partition_result] == [42]


def test_far_too_many_partitions(ask: Asked) -> None:
    """Kafka answers -1, which says nothing; ours is a policy with its limit (docs/differences.md)."""
    topic = CreatePartitionsTopic(name=ask.topic, count=(1 << 31) - 1, assignments=None)
    answer = ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1000), 3)
    assert [row.error_code for row in answer.results] == [44]  # type: ignore[attr-defined]
    assert "partitions" in answer.results[0].error_message  # type: ignore[attr-defined]
    answer = ask(CreatePartitionsRequest(topics=[topic, topic], timeout_ms=1000), 3)
    assert [row.error_code for row in answer.results] == [42]  # type: ignore[attr-defined]


def test_what_is_named_twice_is_answered_once(ask: Asked) -> None:
    described = ask(MetadataRequest(topics=[MetadataRequestTopic(name=ask.topic)] * 2), 12)
    assert [topic.name for topic in described.topics] == [ask.topic]  # type: ignore[attr-defined]
    start = DeleteRecordsPartition(partition_index=0, offset=0)
    deleted = ask(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=ask.topic, partitions=[start, start])] * 2, timeout_ms=1000
        ),
        2,
    )
    (topic,) = deleted.topics  # type: ignore[attr-defined]
    assert [row.error_code for row in topic.partitions] == [0]
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    listed = ask(
        ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=ask.topic, partitions=[latest, latest])]
        ),
        6,
    )
    (topic,) = listed.topics  # type: ignore[attr-defined]
    assert [row.error_code for row in topic.partitions] == [42]
