"""When rights change, requests are refused that need them; connections and whatever else goes on over them stay."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AdminClient, NewTopic
from confluent_kafka.admin import ResourceType as ResourceKind

from barnabas.cores.acl import CLUSTER_NAME, Operation, Pattern, Permission, Resource, ResourceType, Rule
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import decode_response_header, encode_request
from barnabas.wire.messages import response_class
from barnabas.wire.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.share_fetch import FetchPartition as SharePartition
from barnabas.wire.messages.share_fetch import FetchTopic as ShareTopic
from barnabas.wire.messages.share_fetch import ShareFetchRequest
from barnabas.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.wire.schema import Message
from tests.security.peer import Peer
from tests.security.test_authorizer import PATIENCE_S, SECURED, USERS, add, binding, client

READ_TOPIC, READ_GROUP = (Operation.READ, ResourceType.TOPIC), (Operation.READ, ResourceType.GROUP)
LONG_MS = 120_000
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(SECURED) as broker:
        admin = AdminClient(client(broker, "admin"))
        for future in admin.create_topics([NewTopic("one", 1), NewTopic("two", 1)]).values():
            future.result(PATIENCE_S)
        yield broker


@contextmanager
def logged_in(broker: Broker, user: str) -> Iterator[Peer]:
    with Peer(broker.bootstrap) as peer:
        assert peer.handshake("PLAIN") == 0
        assert peer.token(f"\0{user}\0{user}-pw".encode())[0] == 0
        yield peer


def set_right(
    broker: Broker, user: str, right: tuple[Operation, ResourceType], name: str, *, has: bool
) -> None:
    """Give the user a right, or take it away."""
    rules = frozenset({Rule(f"User:{user}", "*", right[0], Permission.ALLOW)} if has else ())
    authorizer = broker.inside.server.services.authorizer
    assert authorizer is not None
    broker.inside.call(lambda: authorizer.set_rules([(Resource(right[1], Pattern.LITERAL, name), rules)]))


def ask(peer: Peer, request: Message, version: int) -> Any:
    return answer_in(peer.frame(encode_request(request, version, 7, "changing")[4:]), request, version)


def answer_in(frame: bytes, request: Message, version: int) -> Any:
    assert frame, "the connection was closed"
    at = decode_response_header(frame, request.API_KEY, version)[1]
    return response_class(request.API_KEY).decode(frame, version, at)


def fetch(*topics: str, wait_ms: int = 0, session: tuple[int, int] = (0, -1)) -> FetchRequest:
    rows = [FetchTopic(topic=name, partitions=[FetchPartition(partition_max_bytes=1000)]) for name in topics]
    return FetchRequest(
        replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1000, topics=rows, session_id=session[0],
        session_epoch=session[1],
    )  # fmt: skip


def errors(answer: Any) -> dict[Any, int]:
    """The errors by topic."""
    return {
        getattr(row, "topic", None) or row.topic_id: row.partitions[0].error_code for row in answer.responses
    }


def await_parked(broker: Broker, count: int) -> None:
    """Return when so many fetches wait for records."""
    listeners = broker.inside.server.services.listeners

    def parked() -> int:
        return sum(1 for connection in listeners.connections if connection.parked is not None)

    deadline_s = time.monotonic() + PATIENCE_S
    while broker.inside.call(parked) != count:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_fetch_that_waits_is_refused_at_once_and_others_go_on_waiting(secured: Broker) -> None:
    for user, topic in (("alice", "one"), ("bob", "two")):
        set_right(secured, user, READ_TOPIC, topic, has=True)
    with logged_in(secured, "alice") as alice, logged_in(secured, "bob") as bob:
        for peer, topic in ((alice, "one"), (bob, "two")):
            peer.send(encode_request(fetch(topic, wait_ms=LONG_MS), 12, 7, "waits")[4:])
        await_parked(secured, 2)
        set_right(secured, "alice", READ_TOPIC, "one", has=False)
        assert errors(answer_in(alice.read(), fetch(), 12)) == {"one": REFUSED}
        await_parked(secured, 1)
        assert ask(alice, MetadataRequest(topics=[]), 9).brokers
        set_right(secured, "bob", READ_TOPIC, "two", has=False)
        assert errors(answer_in(bob.read(), fetch(), 12)) == {"two": REFUSED}


def test_a_fetch_session_keeps_no_right(secured: Broker) -> None:
    for topic in ("one", "two"):
        set_right(secured, "alice", READ_TOPIC, topic, has=True)
    with logged_in(secured, "alice") as alice:
        opened = ask(alice, fetch("one", "two", session=(0, 0)), 12)
        assert errors(opened) == {"one": 0, "two": 0}
        set_right(secured, "alice", READ_TOPIC, "one", has=False)
        again = ask(alice, fetch(session=(opened.session_id, 1)), 12)
        assert (again.error_code, errors(again)) == (0, {"one": REFUSED})
    set_right(secured, "alice", READ_TOPIC, "two", has=False)


def open_session(peer: Peer, request: ShareFetchRequest) -> None:
    """Join the share group, and return when the session's partitions can be read."""
    heartbeat = ShareGroupHeartbeatRequest(
        group_id=request.group_id, member_id=request.member_id, subscribed_topic_names=["one", "two"]
    )
    deadline_s = time.monotonic() + PATIENCE_S
    while ask(peer, heartbeat, 1).error_code or set(errors(ask(peer, request, 1)).values()) - {0}:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("right", "name"), [(READ_TOPIC, "one"), (READ_GROUP, "queue")])
def test_a_share_session_keeps_no_right(
    secured: Broker, right: tuple[Operation, ResourceType], name: str, *, waits: bool
) -> None:
    topics: dict[str, UUID] = {n: t.topic_id for n, t in secured.inside.server.services.image.topics.items()}
    rights = [(READ_TOPIC, "one"), (READ_TOPIC, "two"), (READ_GROUP, "queue")]
    for right_given in rights:
        set_right(secured, "alice", *right_given, has=True)
    request = ShareFetchRequest(
        group_id="queue", member_id=f"member-{waits}-{name}", max_bytes=1000, max_records=10, min_bytes=1,
        topics=[ShareTopic(topic_id=topics[name], partitions=[SharePartition()]) for name in ("one", "two")],
    )  # fmt: skip
    with logged_in(secured, "alice") as alice:
        open_session(alice, request)
        request.topics, request.share_session_epoch = [], 1
        request.max_wait_ms = LONG_MS if waits else 0
        if waits:
            alice.send(encode_request(request, 1, 7, "waits")[4:])
            await_parked(secured, 1)
            set_right(secured, "alice", right, name, has=False)
            answer = answer_in(alice.read(), request, 1)
        else:
            set_right(secured, "alice", right, name, has=False)
            answer = ask(alice, request, 1)
        group = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if right == READ_TOPIC:
            assert (answer.error_code, errors(answer)) == (0, {topics["one"]: REFUSED})
        else:
            assert {answer.error_code, *errors(answer).values()} - {0} == {group}
    for right_given in rights:
        set_right(secured, "alice", *right_given, has=False)


def test_whoever_takes_a_right_from_himself_gets_his_answer() -> None:
    """The first rule about a resource closes it for everybody else (allow.everyone.if.no.acl.found)."""
    options = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS + ";",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(options) as broker, logged_in(broker, "alice") as alice:
        admin = AdminClient(client(broker, "alice"))
        for row in (
            binding("open", AclOperation.WRITE, user="bob"),
            binding(CLUSTER_NAME, AclOperation.ALTER, user="bob", kind=ResourceKind.BROKER),
        ):
            assert ask(alice, created(row), 3).results[0].error_code == 0
        assert ask(alice, MetadataRequest(topics=[]), 9).brokers
        again = created(binding("more", AclOperation.WRITE, user="bob"))
        assert ask(alice, again, 3).results[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        add(
            AdminClient(client(broker, "bob")),
            binding(CLUSTER_NAME, AclOperation.ALTER, kind=ResourceKind.BROKER),
        )
        add(admin, binding("more", AclOperation.WRITE))


def created(wanted: AclBinding) -> CreateAclsRequest:
    """The request that adds one rule."""
    row = AclCreation(
        resource_type=ResourceType["CLUSTER" if wanted.restype is ResourceKind.BROKER else wanted.restype.name],
        resource_name=wanted.name, resource_pattern_type=Pattern.LITERAL, principal=wanted.principal, host=wanted.host,
        operation=Operation[wanted.operation.name], permission_type=Permission.ALLOW,
    )  # fmt: skip
    return CreateAclsRequest(creations=[row])
