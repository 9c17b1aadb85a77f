"""What only a cluster can do, asked of one broker by confluent-kafka's and kafka-python's admin clients."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafka import TopicPartition as Place
from kafka.admin import KafkaAdminClient

from tests.support.admin import admin, create_topic


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"alone-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, name, 2)
    return name


@pytest.fixture
def other(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def test_no_election_is_needed(bootstrap: str, topic: str, other: Any) -> None:
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 9)]
    elected = admin(bootstrap)
    elections = elected.elect_leaders(ElectionType.PREFERRED, asked).result(30)
    names = {place.partition: error.name() for place, error in elections.items()}
    assert names == {0: "ELECTION_NOT_NEEDED", 9: "UNKNOWN_TOPIC_OR_PART"}
    unclean = other.elect_leaders(1, {topic: [0, 1]}, raise_errors=False)
    (row,) = unclean.replica_election_results
    assert {item.error_code for item in row.partition_result} == {84}


def test_nothing_moves(topic: str, other: Any) -> None:
    assert other.list_partition_reassignments() in ({}, [])
    answers = other.alter_partition_reassignments(
        {Place(topic, 0): [1], Place(topic, 1): [7], Place(topic, 9): [1]}
    )
    names = {place.partition: getattr(error, "__name__", error) for place, error in answers.items()}
    assert names[0] in (None, "NoError")
    assert names[1] == "InvalidReplicationAssignmentError"
    assert names[9] == "UnknownTopicOrPartitionError"
    calling_off = other.alter_partition_reassignments({Place(topic, 0): None})
    assert [error.__name__ for error in calling_off.values()] == ["NoReassignmentInProgressError"]


def test_everything_is_allowed_and_nobody_can_say_otherwise(bootstrap: str, topic: str) -> None:
    client = admin(bootstrap)
    group = f"alone-{uuid.uuid4().hex[:8]}"
    place = TopicPartition(topic, 0, 1)
    changed = client.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [place])])
    changed[group].result(30)
    described = client.describe_consumer_groups([group], include_authorized_operations=True)
    operations = {operation.name for operation in described[group].result(30).authorized_operations}
    assert {"READ", "DELETE", "DESCRIBE"} <= operations
    cluster = client.describe_cluster(include_authorized_operations=True).result(30)
    assert {"ALTER", "CREATE", "IDEMPOTENT_WRITE"} <= {
        operation.name for operation in cluster.authorized_operations
    }
    assert client.describe_cluster().result(30).authorized_operations is None
    every_rule = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    # That DescribeAcls is refused, this client keeps to itself: it shows no rules.
    assert client.describe_acls(every_rule).result(30) == []
    with pytest.raises(KafkaException) as refused:
        client.delete_acls([every_rule])[every_rule].result(30)
    assert refused.value.args[0].name() == "SECURITY_DISABLED"


def test_what_has_options_is_listed(topic: str, other: Any) -> None:
    listed = str(other.list_config_resources())
    assert topic in listed
    assert topic not in str(other.list_config_resources(["BROKER"]))


def test_the_quorum_is_the_one_broker(other: Any) -> None:
    described = other.describe_metadata_quorum()
    (topic,) = described["topics"]
    assert topic["topic_name"] == "__cluster_metadata"
    (quorum,) = topic["partitions"]
    assert quorum["leader_id"] == 1
    assert quorum["leader_epoch"] >= 1
    assert [voter["replica_id"] for voter in quorum["current_voters"]] == [1]
    assert quorum["current_voters"][0]["log_end_offset"] == quorum["high_watermark"]
    assert quorum["observers"] == []
