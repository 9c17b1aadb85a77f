"""Access rules at work: every API in every version, clients that somebody else wrote, and Kafka's semantics at the edges."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
)
from confluent_kafka.admin import (
    ResourceType as ResourceKind,
)

from barnabas.broker.api.rights import Each, Whole
from barnabas.broker.api.table import BY_KEY, Api
from barnabas.cores.acl import CLUSTER_NAME, Operation, Pattern, Permission, Resource, ResourceType, Rule
from barnabas.testing import Broker
from barnabas.wire.errors import ErrorCode
from barnabas.wire.header import encode_request
from barnabas.wire.schema import Message
from tests.security.hidden import GROUP, REFUSED, TOPIC, TXN, codes, samples
from tests.security.peer import Peer
from tests.security.test_tls import PATIENCE_S

SECRET = b"the secret of the topic"
USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{name}="{name}-pw"' for name in ("admin", "alice", "bob", "carol")
)
SECURED: Final = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS + ";",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
}
"""The options of a broker with these users and an authorizer."""


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(SECURED) as broker:
        admin = AdminClient(client(broker, "admin"))
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(PATIENCE_S)
        produce(broker, "admin", TOPIC, SECRET)
        yield broker


def client(broker: Broker, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap, "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN",
        "sasl.username": user, "sasl.password": f"{user}-pw", "log_level": 0, **more,
    }  # fmt: skip


def produce(broker: Broker, user: str, topic: str, value: bytes, **more: Any) -> KafkaError | None:
    """The error that the producer gets; None when the record was written."""
    errors: list[KafkaError | None] = []
    producer = Producer(client(broker, user, **{"message.timeout.ms": 30_000, **more}))
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    deadline_s = time.monotonic() + PATIENCE_S
    while not errors and time.monotonic() < deadline_s:
        producer.poll(0.1)
    producer.purge()
    return errors[0]


# --- every API, every version -------------------------------------------------------------------------------------


def ask(broker: Broker, user: str, api: Api, version: int, topic_id: UUID) -> Message | None:
    """The answer of one request on a connection of its own; None when the connection ends instead."""
    request: Any = api.request(**samples(api.request, version, topic_id))
    if api.key == 3 and version < 12:  # where both are named the request is refused for that
        for row in request.topics:
            row.topic_id = UUID(int=0)
    with Peer(broker.bootstrap) as peer:
        assert peer.handshake("PLAIN") == 0
        assert peer.token(f"\0{user}\0{user}-pw".encode())[0] == 0
        answer = peer.frame(encode_request(request, version, 7, "walk")[4:])
        if not answer:
            return None
        since = api.response.FLEXIBLE_FROM
        flexible = since is not None and version >= since and api.key != 18
        return api.response.decode(memoryview(answer), version, 5 if flexible else 4)


OPEN = {17, 18, 36, 60, 71, 72}
TOKENS = {38, 39, 40, 41}
"""Everybody has tokens of their own: tests/security/test_tokens.py."""
LISTS = {3, 16, 35, 66, 75, 30003}
"""APIs that everybody may use, and those that leave out what one may not see."""


def walk() -> Iterator[tuple[Api, int]]:
    for api in BY_KEY.values():
        for version in api.versions:
            yield api, version


def test_without_rights_nothing_is_done_or_disclosed(secured: Broker) -> None:
    server = secured.inside.server
    topic_id = server.services.image.topics[TOPIC].topic_id
    image = server.services.image
    before = (dict(image.topics), dict(image.configs), dict(image.acls))
    wrong: list[str] = []
    for api, version in walk():
        if api.key in TOKENS:
            continue
        if api.key in OPEN:
            assert not api.rights
            continue
        assert api.rights, f"{api.name} asks for no right"
        answer = ask(secured, "bob", api, version, topic_id)
        if answer is None:
            continue
        codes_seen = list(codes(answer))
        if not any(code in REFUSED for code in codes_seen) and not (api.key in LISTS and _is_empty(answer)):
            wrong.append(f"{api.name} v{version}: {codes_seen} {answer}")
        if SECRET in repr(answer).encode():
            wrong.append(f"{api.name} v{version} discloses the records")
    assert not wrong, "\n".join(wrong)
    assert (dict(image.topics), dict(image.configs), dict(image.acls)) == before


def _is_empty(answer: Message) -> bool:
    return not any(
        getattr(answer, name, None) for name in ("topics", "groups", "transaction_states", "results")
    )


def test_with_its_right_each_api_works(secured: Broker) -> None:
    """Exactly what the table of APIs says is allowed, and no answer speaks of a missing right."""
    server = secured.inside.server
    topic_id = server.services.image.topics[TOPIC].topic_id
    wrong: list[str] = []
    for api, version in walk():
        if api.key in TOKENS or api.key in (
            20,
            45,
            51,
            30,
            31,
            37,
            44,
            33,
            21,
        ):  # they change the topic, or users: tested by themselves
            continue
        rights = [(need.operation, need.resource) for need in api.rights]
        with granted(secured, "carol", rights):
            answer = ask(secured, "carol", api, version, topic_id)
        if answer is None:
            continue
        codes_seen = [
            code for code in codes(answer) if code in REFUSED and code != ErrorCode.UNKNOWN_TOPIC_ID
        ]
        if codes_seen:
            wrong.append(f"{api.name} v{version}: {codes_seen} {answer}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("key", "right"), [(19, "CREATE"), (23, "CLUSTER_ACTION")])
def test_a_right_on_the_cluster_that_stands_for_rights_on_topics(
    secured: Broker, key: int, right: str
) -> None:
    topic_id = secured.inside.server.services.image.topics[TOPIC].topic_id
    api = BY_KEY[key]
    with granted(secured, "carol", [(right, "CLUSTER")]):
        answer = ask(secured, "carol", api, api.versions[-1], topic_id)
    assert answer is not None
    assert not REFUSED.intersection(codes(answer)), answer


NAME_OF = {"TOPIC": TOPIC, "GROUP": GROUP, "TRANSACTIONAL_ID": TXN, "CLUSTER": CLUSTER_NAME, "CONFIG": TOPIC}


@contextmanager
def granted(broker: Broker, user: str, rights: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Rules in the authorizer alone, without the way through the tree."""
    rules: dict[Resource, frozenset[Rule]] = {}
    for operation, kind in rights:
        of = ResourceType["TOPIC" if kind == "CONFIG" else kind]
        # A coordinator's key is a group's or a transaction's name.
        names = {NAME_OF[kind]} | ({GROUP} if kind == "TRANSACTIONAL_ID" else set())
        for name in names:
            resource = Resource(of, Pattern.LITERAL, name)
            rule = Rule(f"User:{user}", "*", Operation[operation], Permission.ALLOW)
            rules[resource] = rules.get(resource, frozenset()) | {rule}
    authorizer = broker.inside.server.services.authorizer
    assert authorizer is not None
    broker.inside.call(lambda: authorizer.set_rules(rules.items()))
    try:
        yield
    finally:
        broker.inside.call(lambda: authorizer.set_rules([(resource, frozenset()) for resource in rules]))


def test_each_row_of_the_table_names_fields_that_exist() -> None:
    for api in BY_KEY.values():
        for need in api.rights:
            if isinstance(need, Whole) and need.of:
                assert need.of in api.request.FIELDS, api.name
            if isinstance(need, Each):
                rows, answers = api.request.FIELDS[need.rows], api.response.FIELDS[need.answers]
                assert (rows.kind, answers.kind) == ("array", "array"), api.name
                if need.parts:
                    assert need.parts[0] in rows.element.FIELDS, api.name
                    assert need.parts[1] in answers.element.FIELDS, api.name


# --- clients ---------------------------------------------------------------------------------------------------------


def binding(
    name: str, operation: AclOperation, user: str = "alice", kind: ResourceKind = ResourceKind.TOPIC,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:  # fmt: skip
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def add(admin: AdminClient, *bindings: AclBinding) -> None:
    for future in admin.create_acls(list(bindings)).values():
        future.result(PATIENCE_S)


def remove(admin: AdminClient, binding: AclBinding) -> int:
    wanted = AclBindingFilter(
        binding.restype, binding.name, binding.resource_pattern_type, binding.principal, binding.host, binding.operation,
        binding.permission_type,
    )  # fmt: skip
    return len(next(iter(admin.delete_acls([wanted]).values())).result(PATIENCE_S))


def test_a_producer_and_a_consumer_get_their_rights_and_lose_them(secured: Broker) -> None:
    admin = AdminClient(client(secured, "admin"))
    topic = "rights-come-and-go"
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
    error = produce(secured, "alice", topic, b"x")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    write = binding("rights-", AclOperation.WRITE, pattern=ResourcePatternType.PREFIXED)
    read, group = (
        binding(topic, AclOperation.READ),
        binding("alices", AclOperation.READ, kind=ResourceKind.GROUP),
    )
    add(admin, write, read, group)
    assert produce(secured, "alice", topic, b"one") is None

    consumer = Consumer(
        client(
            secured,
            "alice",
            **{"group.id": "alices", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20_000},
        )
    )
    consumer.subscribe([topic])
    assert awaited(consumer, lambda message: message.error() is None).value() == b"one"
    assert {row.name for row in admin.describe_acls(any_filter(topic)).result(PATIENCE_S)} == {topic}

    # While the consumer is in a long poll its right goes; what is written then must not reach it.
    assert remove(admin, read) == 1
    assert produce(secured, "admin", topic, b"two") is None
    message = awaited(consumer, lambda outcome: outcome.error() is not None)
    assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()
    assert remove(admin, write) == 1
    error = produce(secured, "alice", topic, b"x")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def any_filter(name: str) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceKind.TOPIC,
        name,
        ResourcePatternType.LITERAL,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


def awaited(consumer: Consumer, is_wanted: Callable[[Any], bool]) -> Any:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(0.2)
        if message is not None and is_wanted(message):
            return message
    raise AssertionError("nothing came")


def test_a_producer_on_the_fast_path_is_stopped_as_well(secured: Broker) -> None:
    admin = AdminClient(client(secured, "admin"))
    topic = "short-way"
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
    write = binding(topic, AclOperation.WRITE)
    add(admin, write)
    errors: list[KafkaError] = []
    producer = Producer(client(secured, "alice", **{"linger.ms": 0, "message.timeout.ms": 20_000}))
    stop = threading.Event()

    def keep_on() -> None:
        while not stop.is_set():
            try:
                producer.produce(
                    topic, b"x", on_delivery=lambda error, _: errors.append(error) if error else None
                )
                producer.poll(0.002)
            except KafkaException as refused:  # once it has read so in the metadata
                errors.append(refused.args[0])
                return

    writer = threading.Thread(target=keep_on)
    writer.start()
    try:
        time.sleep(0.5)
        assert not errors
        remove(admin, write)
        deadline_s = time.monotonic() + PATIENCE_S
        while not errors and time.monotonic() < deadline_s:
            time.sleep(0.05)
    finally:
        stop.set()
        writer.join()
        producer.purge()
    assert errors[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_transactions_and_idempotence_need_their_rights(secured: Broker) -> None:
    admin = AdminClient(client(secured, "admin"))
    topic = "transactional"
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
    producer = Producer(client(secured, "alice", **{"transactional.id": "alices-txn"}))
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    add(
        admin, binding(topic, AclOperation.WRITE),
        binding("alices-txn", AclOperation.WRITE, kind=ResourceKind.TRANSACTIONAL_ID),
    )  # fmt: skip
    producer = Producer(client(secured, "alice", **{"transactional.id": "alices-txn"}))
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.commit_transaction(PATIENCE_S)


def test_creating_topics_and_what_metadata_shows(secured: Broker) -> None:
    admin, alice = AdminClient(client(secured, "admin")), AdminClient(client(secured, "alice"))
    with pytest.raises(KafkaException) as refused:
        alice.create_topics([NewTopic("alices-own", 1)])["alices-own"].result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    add(admin, binding("alices-", AclOperation.CREATE, pattern=ResourcePatternType.PREFIXED))
    add(admin, binding("alices-", AclOperation.DESCRIBE, pattern=ResourcePatternType.PREFIXED))
    alice.create_topics([NewTopic("alices-own", 1)])["alices-own"].result(PATIENCE_S)
    seen = set(AdminClient(client(secured, "alice")).list_topics(timeout=PATIENCE_S).topics)
    assert "alices-own" in seen
    assert TOPIC not in seen


def test_a_producer_that_may_not_create_its_topic_is_told_so(secured: Broker) -> None:
    """It would wait for the topic until its time is up if it was told that the topic does not exist."""
    admin = AdminClient(client(secured, "admin"))
    add(admin, binding("not-to-be-made", AclOperation.WRITE, user="bob"))
    refused = produce(secured, "bob", "not-to-be-made", b"x", **{"message.timeout.ms": 600_000})
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    remove(admin, binding("not-to-be-made", AclOperation.WRITE, user="bob"))


def test_rules_that_make_no_sense_and_denials(secured: Broker) -> None:
    admin, alice = AdminClient(client(secured, "admin")), AdminClient(client(secured, "alice"))
    nonsense = AclBinding(
        ResourceKind.GROUP,
        "g",
        ResourcePatternType.LITERAL,
        "User:x",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    with pytest.raises(KafkaException, match="WRITE is nothing that can be done"):
        next(iter(admin.create_acls([nonsense]).values())).result(PATIENCE_S)
    with pytest.raises(KafkaException) as refused:
        next(iter(alice.create_acls([binding("t", AclOperation.READ)]).values())).result(PATIENCE_S)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_rules_survive_a_restart_and_lie_in_kafkas_nodes(tmp_path: Path) -> None:
    import asyncio

    options = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(options, data_dir=tmp_path / "data") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        add(
            admin,
            binding("kept", AclOperation.READ),
            binding("pre", AclOperation.READ, pattern=ResourcePatternType.PREFIXED),
        )
        broker.restart()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        rules = admin.describe_acls(any_filter("kept")).result(PATIENCE_S)
        assert [row.principal for row in rules] == ["User:alice"]
        tree = broker.inside.server.services.controller.tree
        data, _ = asyncio.run_coroutine_threadsafe(
            tree.get("/kafka-acl/Topic/kept"), broker.inside.loop
        ).result(PATIENCE_S)
        assert json.loads(data)["acls"][0]["operation"] == "Read"
        paths = asyncio.run_coroutine_threadsafe(
            tree.children("/kafka-acl-extended/prefixed/Topic"), broker.inside.loop
        ).result(PATIENCE_S)
        assert paths == ["pre"]
        # What cannot be read is not taken for no rule.
        asyncio.run_coroutine_threadsafe(
            tree.set("/kafka-acl/Topic/kept", b"nonsense"), broker.inside.loop
        ).result(PATIENCE_S)


def test_what_no_rule_names_may_be_open_to_everybody() -> None:
    """allow.everyone.if.no.acl.found, as Kafka has it: the first rule of a topic closes it for everybody else."""
    options = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS + ";",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(options) as broker:
        admin = AdminClient(client(broker, "admin"))
        admin.create_topics([NewTopic("open", 1)])["open"].result(PATIENCE_S)
        assert produce(broker, "alice", "open", b"x") is None
        add(admin, binding("open", AclOperation.WRITE, user="bob"))
        assert produce(broker, "bob", "open", b"x") is None
        error = produce(broker, "alice", "open", b"x")
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
