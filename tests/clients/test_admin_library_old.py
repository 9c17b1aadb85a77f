"""`barnabas.admin` against brokers that are as old as Kafka 0.11 and 1.0: a relay announces their versions, takes no others,
and has a real broker behind it, which serves every version."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer

from barnabas.admin import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    ChangeKind,
    ConfigChange,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    MemberKey,
    NewTopic,
    ResourceError,
    TopicPartition,
    back_to_default,
    set_to,
)
from barnabas.client.errors import ClientError, UnsupportedByBroker
from barnabas.wire.errors import ErrorCode
from tests.support.process import BrokerProcess
from tests.support.scripted import OldBroker, Versions

# Source: the version ranges in the message definitions of these releases.
KAFKA_0_11: Versions = {
    0: (0, 3), 1: (0, 5), 2: (0, 2), 3: (0, 4), 8: (0, 3), 9: (0, 3), 10: (0, 1), 11: (0, 2), 12: (0, 1), 13: (0, 1),
    14: (0, 1), 15: (0, 1), 16: (0, 1), 17: (0, 0), 18: (0, 1), 19: (0, 2), 20: (0, 1), 21: (0, 0), 22: (0, 0),
    23: (0, 0), 24: (0, 0), 25: (0, 0), 26: (0, 0), 27: (0, 0), 28: (0, 0), 29: (0, 0), 30: (0, 0), 31: (0, 0),
    32: (0, 0), 33: (0, 0),
}  # fmt: skip
KAFKA_1_0: Versions = {
    **KAFKA_0_11, 0: (0, 5), 1: (0, 6), 3: (0, 5), 17: (0, 1), 34: (0, 0), 35: (0, 0), 36: (0, 0), 37: (0, 0),
}  # fmt: skip


@pytest.fixture(params=[KAFKA_0_11, KAFKA_1_0], ids=["0.11", "1.0"])
def old(request: pytest.FixtureRequest, own_broker: Callable[..., BrokerProcess]) -> Iterator[OldBroker]:
    relay = OldBroker(request.param)
    broker = own_broker(advertised__listeners=f"PLAINTEXT://{relay.bootstrap}")
    relay.behind = ("127.0.0.1", broker.port)
    yield relay
    relay.close()
    assert relay.refused == [], "a version was asked that the broker does not announce"


def test_what_an_old_broker_can_do(old: OldBroker) -> None:
    with Admin(old.bootstrap) as admin:
        name = f"old-{uuid.uuid4().hex[:8]}"
        resource = ConfigResource(ConfigKind.TOPIC, name)
        topics_and_records(admin, name)
        options(admin, resource)
        groups(admin, old.bootstrap, name)
        (node,) = admin.cluster.describe(rights=True).brokers
        with pytest.raises(ResourceError, match=r"set authorizer\.class\.name on the brokers"):
            admin.acls.list()
        if 35 in old.versions:
            (log_dir,) = admin.log_dirs.describe()[node.id]
            assert {replica.partition.topic for replica in log_dir.replicas} >= {name}
            admin.topics.add_partitions({name: 3}).require()
            assert len(admin.topics.describe([name])[name].partitions) == 3
        else:
            assert isinstance(admin.log_dirs.describe().failed[node.id], UnsupportedByBroker)
            assert isinstance(admin.topics.add_partitions({name: 3}).failed[name], UnsupportedByBroker)
        assert admin.topics.delete([name]).done == {name: None}
        newer(admin, name)


def topics_and_records(admin: Admin, name: str) -> None:
    created = admin.topics.create([NewTopic(name, configs={"retention.ms": "60000"}), NewTopic("no name")])
    assert list(created.done) == [name]
    assert created[name].id is None
    assert name in admin.topics.list(rights=True)
    assert admin.topics.describe([name], rights=True)[name].rights is None
    key = TopicPartition(name, 0)
    assert admin.records.offsets({key: LATEST})[key].offset == 0
    assert admin.records.offsets({key: EARLIEST}, read_committed=True)[key].offset == 0
    assert isinstance(admin.records.offsets({key: MAX_TIMESTAMP}).failed[key], UnsupportedByBroker)
    assert admin.records.delete({key: 0}).done == {key: 0}


def options(admin: Admin, resource: ConfigResource) -> None:
    configs = admin.configs.describe([resource], synonyms=True, documentation=True)[resource]
    assert configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert configs["segment.ms"].source is ConfigSource.DEFAULT_CONFIG
    # Changes become a replacement of all options: what is not named stays.
    admin.configs.alter({resource: set_to({"segment.ms": "70000"})}).require()
    configs = admin.configs.describe([resource])[resource]
    assert (configs["retention.ms"].value, configs["segment.ms"].value) == ("60000", "70000")
    admin.configs.alter({resource: back_to_default(["retention.ms"])}).require()
    assert admin.configs.describe([resource])[resource]["retention.ms"].is_default
    append = [ConfigChange("cleanup.policy", ChangeKind.APPEND, "compact")]
    assert "whole lists only" in str(admin.configs.alter({resource: append}).failed[resource])


def groups(admin: Admin, bootstrap: str, topic: str) -> None:
    group = f"{topic}-group"
    key = TopicPartition(topic, 0)
    admin.groups.alter_offsets(group, {key: 0}).require()
    assert admin.groups.offsets([group])[group][key].offset == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.subscribe([topic])
    for _ in range(300):
        consumer.poll(0.1)
        if consumer.assignment():
            break
    described = admin.groups.describe([group, "not-there"], rights=True)
    (member,) = described[group].members
    assert member.assigned == (key,)
    missing = described.failed["not-there"]
    assert isinstance(missing, ResourceError)
    assert missing.code == ErrorCode.GROUP_ID_NOT_FOUND
    assert group in {row.name for rows in admin.groups.list().require().values() for row in rows}
    removed = admin.groups.remove_members(group, [MemberKey(None, member.id)])
    assert removed.done == {MemberKey(None, member.id): None}
    consumer.close()


def newer(admin: Admin, name: str) -> None:
    """What came later is refused by name, and never sent."""
    calls: list[Callable[[], object]] = [
        admin.quotas.describe,
        admin.users.describe,
        admin.replicas.reassignments,
        admin.cluster.quorum,
        lambda: admin.replicas.elect([(name, 0)]).require(),
        lambda: admin.transactions.list().require(),
        lambda: admin.transactions.describe(["t"]).require(),
        lambda: admin.share_groups.describe(["g"]).require(),
        lambda: admin.groups.delete(["g"]).require(),
        lambda: admin.groups.delete_offsets("g", [(name, 0)]),
    ]
    for call in calls:
        with pytest.raises(UnsupportedByBroker, match="does not serve"):
            call()
    topic_id = uuid.uuid4()
    error = admin.topics.delete([topic_id]).failed[topic_id]
    assert isinstance(error, ClientError)
    assert "by name only" in str(error)
