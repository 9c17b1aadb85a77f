"""A regular expression, or a description of a group, shows no topic that the client may not describe."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cores.acl import Operation, Pattern, Permission, Resource, ResourceType, Rule
from barnabas.cores.group.share.group import ShareGroup
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.wire.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.security.peer import Peer
from tests.security.test_authorizer import PATIENCE_S, SECURED, client
from tests.security.test_changing_rights import ask, logged_in


@pytest.fixture
def secured() -> Iterator[Broker]:
    options = {**SECURED, "offsets.topic.num.partitions": "1"}
    with Broker(options) as broker:
        create(broker, "seen-one", "hidden-one")
        allow(broker, Operation.READ, ResourceType.GROUP, "g", "alice", "bob")
        for name in ("seen-one", "seen-two"):
            see(broker, name, "alice")
        yield broker


def allow(broker: Broker, operation: Operation, kind: ResourceType, name: str, *users: str) -> None:
    """These users, and no others, may do this."""
    rules = frozenset(Rule(f"User:{user}", "*", operation, Permission.ALLOW) for user in users)
    authorizer = broker.inside.server.services.authorizer
    assert authorizer is not None
    broker.inside.call(lambda: authorizer.set_rules([(Resource(kind, Pattern.LITERAL, name), rules)]))


def see(broker: Broker, name: str, *users: str) -> None:
    """These users, and no others, may describe a topic."""
    allow(broker, Operation.DESCRIBE, ResourceType.TOPIC, name, *users)


def create(broker: Broker, *names: str) -> None:
    admin = AdminClient(client(broker, "admin"))
    for future in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        future.result(PATIENCE_S)


class Member:
    """A member of the consumer group g, byte by byte."""

    def __init__(self, broker: Broker, peer: Peer, member_id: str) -> None:
        self.broker, self.peer, self.member_id = broker, peer, member_id
        self.epoch = 0
        self.owned: list[UUID] = []

    def beat(self, regex: str | None = None) -> None:
        joins = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if joins else -1,
            subscribed_topic_regex=regex,
            topic_partitions=[TopicPartitions(topic_id=topic, partitions=[0]) for topic in self.owned],
        )
        answer = ask(self.peer, request, 1)
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = [topic.topic_id for topic in answer.assignment.topic_partitions]

    def has(self) -> set[str]:
        names = self.broker.inside.server.services.partitions
        return {names.name_of(topic_id) or "" for topic_id in self.owned}

    def until_has(self, *names: str) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while self.has() != {*names}:
            assert time.monotonic() < deadline_s, self.has()
            self.beat()
            time.sleep(0.05)


def describe(peer: Peer, request: Any, version: int) -> Any:
    (row,) = ask(peer, request, version).groups
    return row


def test_an_expression_matches_only_what_the_member_may_describe(secured: Broker) -> None:
    with logged_in(secured, "alice") as peer:
        member = Member(secured, peer, "m")
        member.beat(".*-.*")
        member.until_has("seen-one")
        create(secured, "hidden-two", "seen-two")
        member.until_has("seen-one", "seen-two")
        for _ in range(3):
            member.beat()
            assert member.has() == {"seen-one", "seen-two"}


def test_rights_that_change_count_when_expressions_are_matched_again(secured: Broker) -> None:
    with logged_in(secured, "alice") as peer:
        member = Member(secured, peer, "m")
        member.beat(".*-.*")
        member.until_has("seen-one")
        see(secured, "hidden-one", "alice")
        see(secured, "seen-one")
        create(secured, "another")  # or ten minutes later
        member.until_has("hidden-one")


def test_a_description_of_a_consumer_group_shows_no_hidden_topic(secured: Broker) -> None:
    with logged_in(secured, "alice") as alice, logged_in(secured, "bob") as bob:
        member = Member(secured, alice, "m")
        member.beat("seen-.*")
        member.until_has("seen-one")
        request = ConsumerGroupDescribeRequest(group_ids=["g"])
        row = describe(bob, request, 1)
        assert (row.error_code, row.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
        see(secured, "seen-one", "alice", "bob")
        row = describe(bob, request, 1)
        assert (row.error_code, len(row.members)) == (ErrorCode.NONE, 1)


def test_a_description_of_a_share_group_shows_no_hidden_topic(secured: Broker) -> None:
    with logged_in(secured, "alice") as alice, logged_in(secured, "bob") as bob:
        epoch, deadline_s = 0, time.monotonic() + PATIENCE_S
        has: list[Any] = []
        topics: list[str] | None = ["seen-one"]
        while not has:
            assert time.monotonic() < deadline_s
            request = ShareGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=epoch, subscribed_topic_names=topics
            )
            answer = ask(alice, request, 1)
            assert answer.error_code == ErrorCode.NONE, answer.error_message
            epoch, topics = answer.member_epoch, None
            has = answer.assignment.topic_partitions if answer.assignment is not None else has
            time.sleep(0.02)
        # As if it subscribed to nothing any more: it has what it had until its next heartbeat.
        core = secured.inside.server.services.groups.runtime.core_of("g")
        assert core is not None
        members = cast("ShareGroup", core.state.groups["g"]).members
        members["m"] = replace(members["m"], topics=frozenset())
        row = describe(bob, ShareGroupDescribeRequest(group_ids=["g"]), 1)
        assert (row.error_code, row.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
        see(secured, "seen-one", "alice", "bob")
        row = describe(bob, ShareGroupDescribeRequest(group_ids=["g"]), 1)
        assert (row.error_code, len(row.members)) == (ErrorCode.NONE, 1)


def test_the_rights_of_a_client_whose_heartbeat_is_refused_do_not_count(secured: Broker) -> None:
    with logged_in(secured, "alice") as alice, logged_in(secured, "bob") as bob:
        member = Member(secured, bob, "m")
        member.beat(".*-.*")
        create(secured, "seen-two")  # it is time to match again
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="nobody", member_epoch=1)
        assert ask(alice, request, 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        for _ in range(5):
            member.beat()
            assert member.has() == set()


def test_a_streams_group_needs_rights_to_its_topics(secured: Broker) -> None:
    def beat(peer: Peer, source: str, epoch: int = 0) -> Any:
        topology = Topology(
            subtopologies=[
                Subtopology(
                    subtopology_id="0",
                    source_topics=[source],
                    state_changelog_topics=[TopicInfo(name="seen-two")],
                )
            ]
        )
        request = StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=1_000 if not epoch else -1,
            topology=None if epoch else topology,
            process_id="p",
        )
        return ask(peer, request, 0)

    with logged_in(secured, "alice") as alice, logged_in(secured, "bob") as bob:
        assert beat(alice, "hidden-one").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer = beat(alice, "seen-one")
        assert "Unauthorized to CREATE on topics seen-two" in answer.status[-1].status_detail
        row = describe(bob, StreamsGroupDescribeRequest(group_ids=["g"]), 0)
        assert (row.error_code, row.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
        row = describe(alice, StreamsGroupDescribeRequest(group_ids=["g"]), 0)
        assert (row.error_code, row.group_state, len(row.members)) == (ErrorCode.NONE, "NotReady", 1)
        allow(secured, Operation.CREATE, ResourceType.TOPIC, "seen-two", "alice")
        epoch, deadline_s = answer.member_epoch, time.monotonic() + PATIENCE_S
        while any(status.status_code == 3 for status in answer.status):
            assert time.monotonic() < deadline_s, answer
            answer = beat(alice, "seen-one", epoch)
            epoch = answer.member_epoch or epoch
            time.sleep(0.02)
        assert "seen-two" in secured.inside.server.services.image.topics
