"""Where requests go, what is tried again, and what is not: against peers whose answers are scripted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest

from barnabas.admin import LATEST, Admin, NewTopic, ResourceError, TopicPartition
from barnabas.client.errors import BrokerUnavailable
from barnabas.client.options import ClientOptions
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from barnabas.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from barnabas.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from barnabas.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.schema import Message
from tests.support.scripted import Answer, ScriptedPeer

LIST_OFFSETS, METADATA, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS, DELETE_GROUPS = 2, 3, 10, 19, 20, 42
VERSIONS = {
    LIST_OFFSETS: (1, 5), METADATA: (1, 9), FIND_COORDINATOR: (0, 4), CREATE_TOPICS: (2, 5), DELETE_TOPICS: (1, 5),
    DELETE_GROUPS: (0, 2),
}  # fmt: skip
TOPIC = "orders"
KEY = TopicPartition(TOPIC, 0)


class Peers:
    """Brokers 1 and 2. leaders, controllers, coordinators: what the next look-ups say, the last for ever."""

    def __init__(self) -> None:
        self.controllers: Iterator[int] = repeat(1)
        self.leaders: Iterator[int] = repeat(1)
        self.coordinators: Iterator[int] = repeat(1)
        self.answers: dict[int, dict[int, Answer]] = {1: {}, 2: {}}
        self.peers = {number: ScriptedPeer(self._all(number), VERSIONS) for number in (1, 2)}

    def _all(self, number: int) -> dict[int, Answer]:
        self.answers[number].update({METADATA: self._metadata, FIND_COORDINATOR: self._coordinator})
        return self.answers[number]

    def _metadata(self, request: Message) -> Message:
        brokers = [
            MetadataResponseBroker(node_id=number, host="127.0.0.1", port=peer.port)
            for number, peer in self.peers.items()
        ]
        names = [topic.name for topic in request.topics or ()]  # type: ignore[attr-defined]
        topics = [
            MetadataResponseTopic(
                name=name,
                partitions=[MetadataResponsePartition(partition_index=0, leader_id=next(self.leaders))],
            )
            for name in names
        ]
        return MetadataResponse(brokers=brokers, controller_id=next(self.controllers), topics=topics)

    def _coordinator(self, request: Message) -> Message:
        number = next(self.coordinators)
        rows = [
            Coordinator(key=key, node_id=number, host="127.0.0.1", port=self.peers[number].port)
            for key in request.coordinator_keys  # type: ignore[attr-defined]
        ]
        return FindCoordinatorResponse(coordinators=rows)

    def asked(self, number: int, key: int) -> int:
        """How many requests with this API key a broker got."""
        return sum(key == request.API_KEY for request in self.peers[number].asked)

    def close(self) -> None:
        for peer in self.peers.values():
            peer.close()


@pytest.fixture
def peers() -> Iterator[Peers]:
    connections = Peers()
    yield connections
    connections.close()


@pytest.fixture
def admin(peers: Peers) -> Iterator[Admin]:
    with Admin(ClientOptions((("127.0.0.1", peers.peers[1].port),), backoff_s=0.001)) as admin:
        yield admin


def creation(*codes: int | None) -> Callable[[Message], Message | None]:
    """Answers to CreateTopics with these codes in turn, the last for ever; None closes the connection."""
    left = chain(codes, repeat(codes[-1]))

    def answer(request: Message) -> Message | None:
        code = next(left)
        if code is None:
            return None
        rows = [CreatableTopicResult(name=t.name, error_code=code) for t in request.topics]  # type: ignore[attr-defined]
        return CreateTopicsResponse(topics=rows)

    return answer


def test_a_controller_that_moves_is_followed(peers: Peers, admin: Admin) -> None:
    peers.controllers = chain([1], repeat(2))
    peers.answers[1][CREATE_TOPICS] = creation(ErrorCode.NOT_CONTROLLER)
    peers.answers[2][CREATE_TOPICS] = creation(0)
    assert list(admin.topics.create([NewTopic(TOPIC, 1, 1)]).done) == [TOPIC]
    assert (peers.asked(1, CREATE_TOPICS), peers.asked(2, CREATE_TOPICS)) == (1, 1)


def test_what_is_refused_for_good_is_asked_once(peers: Peers, admin: Admin) -> None:
    peers.answers[1][CREATE_TOPICS] = creation(ErrorCode.POLICY_VIOLATION)
    results = admin.topics.create([NewTopic(TOPIC, 1, 1)])
    assert isinstance(results.failed[TOPIC], ResourceError)
    assert peers.asked(1, CREATE_TOPICS) == 1


def test_a_topic_whose_answer_was_lost_counts_as_created(peers: Peers, admin: Admin) -> None:
    peers.answers[1][CREATE_TOPICS] = creation(None, ErrorCode.TOPIC_ALREADY_EXISTS)
    assert list(admin.topics.create([NewTopic(TOPIC, 1, 1)]).done) == [TOPIC]
    # Without a lost answer, the same code is a failure.
    assert list(admin.topics.create([NewTopic(TOPIC, 1, 1)]).failed) == [TOPIC]


def test_a_topic_whose_answer_was_lost_counts_as_deleted(peers: Peers, admin: Admin) -> None:
    answers = iter([None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])

    def answer(_: Message) -> Message | None:
        code = next(answers)
        row = DeletableTopicResult(name=TOPIC, error_code=code or 0)
        return None if code is None else DeleteTopicsResponse(responses=[row])

    peers.answers[1][DELETE_TOPICS] = answer
    assert admin.topics.delete([TOPIC]).done == {TOPIC: None}
    assert list(admin.topics.delete([TOPIC]).failed) == [TOPIC]


def test_a_leader_that_moves_is_followed(peers: Peers, admin: Admin) -> None:
    peers.leaders = chain([1], repeat(2))

    def answer(code: int) -> Answer:
        row = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=7)
        return lambda _: ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[row])])

    peers.answers[1][LIST_OFFSETS] = answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    peers.answers[2][LIST_OFFSETS] = answer(0)
    assert admin.records.offsets({KEY: LATEST})[KEY].offset == 7
    assert (peers.asked(1, LIST_OFFSETS), peers.asked(2, LIST_OFFSETS)) == (1, 1)


def test_a_coordinator_that_moves_is_followed(peers: Peers, admin: Admin) -> None:
    peers.coordinators = chain([1], repeat(2))

    def answer(code: int) -> Answer:
        return lambda request: DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
        )

    peers.answers[1][DELETE_GROUPS] = answer(ErrorCode.NOT_COORDINATOR)
    peers.answers[2][DELETE_GROUPS] = answer(0)
    assert admin.groups.delete(["a"]).done == {"a": None}
    assert (peers.asked(1, DELETE_GROUPS), peers.asked(2, DELETE_GROUPS)) == (1, 1)


def test_groups_are_asked_of_their_coordinators_in_batches(peers: Peers, admin: Admin) -> None:
    # One look-up says 1 for 500 groups, the next 2 for the others.
    peers.coordinators = chain([1], repeat(2))
    for number in (1, 2):
        peers.answers[number][DELETE_GROUPS] = lambda request: DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name) for name in request.groups_names]
        )
    names = [f"g{number}" for number in range(750)]
    assert list(admin.groups.delete(names).done) == names
    assert (peers.asked(1, DELETE_GROUPS), peers.asked(2, DELETE_GROUPS)) == (5, 3)


def test_a_broker_that_stays_away_fails_its_own_resources_only(peers: Peers) -> None:
    peers.leaders = chain([1, 2], repeat(2))
    row = ListOffsetsPartitionResponse(partition_index=0, offset=7)
    peers.answers[1][LIST_OFFSETS] = lambda _: ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name="a", partitions=[row])]
    )
    peers.answers[2][LIST_OFFSETS] = lambda _: None
    options = ClientOptions((("127.0.0.1", peers.peers[1].port),), backoff_s=0.001, retries_max=2)
    with Admin(options) as admin:
        results = admin.records.offsets(
            dict.fromkeys([TopicPartition("a", 0), TopicPartition("b", 0)], LATEST)
        )
    assert list(results.done) == [("a", 0)]
    assert isinstance(results.failed[TopicPartition("b", 0)], BrokerUnavailable)
    assert peers.asked(2, LIST_OFFSETS) == 3


def test_an_answer_that_leaves_a_resource_out_is_a_failure_of_it(peers: Peers, admin: Admin) -> None:
    peers.answers[1][DELETE_GROUPS] = lambda _: DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id="a")]
    )
    results = admin.groups.delete(["a", "b"])
    assert results.done == {"a": None}
    assert "says nothing about b" in str(results.failed["b"])


def test_an_answer_that_cannot_be_read_is_no_success(peers: Peers) -> None:
    class Noise:
        API_KEY = DELETE_GROUPS

        def encode_parts(self, version: int, prefix: bytes = b"") -> list[bytes]:
            return [prefix, b"\xff" * 7]

    peers.answers[1][DELETE_GROUPS] = lambda _: Noise()  # type: ignore[assignment, return-value]
    options = ClientOptions((("127.0.0.1", peers.peers[1].port),), backoff_s=0.001, retries_max=1)
    with Admin(options) as admin:
        error = admin.groups.delete(["a"]).failed["a"]
    assert "cannot be read" in str(error)


def test_an_admin_is_used_again_after_it_was_closed(peers: Peers) -> None:
    admin = Admin(peers.peers[1].bootstrap)
    assert admin.cluster.describe().controller == 1
    admin.close()
    assert admin.cluster.describe().controller == 1
    admin.close()
