"""CreateTopics is answered when the broker that was asked knows the leaders; the others hear of them a little later.

As in Kafka with ZooKeeper, where the request waits in the controller's purgatory until every partition has a leader there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.cluster import Cluster, until
from tests.support.raw import Raw
from tests.support.zookeeper import ZooKeeperServer

ALL = [1, 2, 3]
PARTITIONS = 6
ROUNDS = 20
PATIENCE_MS = 60_000


@pytest.fixture(scope="module")
def cluster(zookeeper_server: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    brokers = Cluster(tmp_path_factory.mktemp("cluster"), zookeeper_server, chroot="/new_topics")
    try:
        yield brokers.start()
    finally:
        brokers.close()


def describe(raw: Raw, name: str | None) -> MetadataResponse:
    topics = [] if name is None else [MetadataRequestTopic(name=name)]
    answer = raw.ask(
        MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse, 12, client_id=None
    )
    assert isinstance(answer, MetadataResponse)
    return answer


def leaders(raw: Raw, name: str) -> list[int]:
    """The leaders of a topic's partitions as one broker knows them; none if it does not know the topic."""
    (topic,) = describe(raw, name).topics
    return [] if topic.error_code else [row.leader_id for row in topic.partitions if row.error_code == 0]


def knows(raw: Raw, name: str, wanted: list[int]) -> bool:
    return leaders(raw, name) == wanted


def test_who_has_created_a_topic_can_ask_for_its_leaders_at_once(cluster: Cluster) -> None:
    first = Raw(cluster.brokers[1])
    until(lambda: len(describe(first, None).brokers) == len(ALL), "the brokers know each other")
    raw = Raw(cluster.brokers[describe(first, None).controller_id])
    others = [Raw(broker) for broker in cluster.brokers.values()]
    for number in range(ROUNDS):
        name = f"new-{number}"
        wish = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=3)
        created = raw.ask(CreateTopicsRequest(topics=[wish], timeout_ms=PATIENCE_MS), CreateTopicsResponse, 7)
        assert isinstance(created, CreateTopicsResponse)
        assert created.topics[0].error_code == ErrorCode.NONE, created.topics[0].error_message
        known = leaders(raw, name)
        assert len(known) == PARTITIONS
        assert set(known) == set(ALL)
        more = CreatePartitionsTopic(name=name, count=2 * PARTITIONS, assignments=None)
        grown = raw.ask(
            CreatePartitionsRequest(topics=[more], timeout_ms=PATIENCE_MS), CreatePartitionsResponse, 3
        )
        assert isinstance(grown, CreatePartitionsResponse)
        assert grown.results[0].error_code == ErrorCode.NONE, grown.results[0].error_message
        known = leaders(raw, name)
        assert len(known) == 2 * PARTITIONS
        assert set(known) == set(ALL)
        for other in others:
            until(partial(knows, other, name, known), f"all brokers know {name}")
