"""Groups of the consumer protocol (KIP-848), by librdkafka's implementation of it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.clients.test_groups import PARTITIONS, Member, fill, fresh, shares_all, until
from tests.support.admin import admin, create_topic
from tests.support.process import BrokerProcess


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose consumer groups beat fast and miss silent members soon."""
    options = {"group.consumer.session.timeout.ms": "3000", "group.consumer.heartbeat.interval.ms": "300"}
    process = BrokerProcess(tmp_path_factory.mktemp("quick") / "data", options=options).start()
    yield process
    process.stop()


def consumer(bootstrap: str, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
            **config,
        }
    )


class NewMember(Member):
    """A Member that speaks the consumer protocol."""

    def make(self, bootstrap: str, group: str, config: dict[str, Any]) -> Consumer:
        return consumer(bootstrap, group, **config)


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Starts members that leave at the end of the test, whatever happens."""
    members: list[Member] = []

    def make(kind: type[Member], *args: Any, **config: Any) -> Member:
        member = kind(*args, **config)
        members.append(member)
        member.start()
        return member

    yield make
    for member in members:
        if member.is_alive():
            member.leave()


def test_three_share_one_leaves_two_go_on(quick_broker: BrokerProcess, start: Callable[..., Any]) -> None:
    topic, group = fresh("new"), fresh("group")
    create_topic(quick_broker.bootstrap, topic, PARTITIONS)
    members = [start(NewMember, quick_broker.bootstrap, group, topic) for _ in range(3)]
    until(lambda: shares_all(members), "three members sharing six partitions")
    fill(quick_broker.bootstrap, topic, 600)
    until(lambda: sum(len(member.values) for member in members) >= 600, "all records read")
    assert Counter(value for member in members for value in member.values) == Counter(
        b"%d" % number for number in range(600)
    )
    members[0].leave()
    until(lambda: shares_all(members[1:]), "two members sharing six partitions")


def test_a_killed_member_is_replaced_after_its_session(
    quick_broker: BrokerProcess, start: Callable[..., Any]
) -> None:
    topic, group = fresh("killed"), fresh("group")
    create_topic(quick_broker.bootstrap, topic, PARTITIONS)
    script = textwrap.dedent(f"""
        from confluent_kafka import Consumer
        c = Consumer({{"bootstrap.servers": "{quick_broker.bootstrap}", "group.id": "{group}",
                       "group.protocol": "consumer"}})
        c.subscribe(["{topic}"])
        while not c.assignment():
            c.poll(0.1)
        print("owns", flush=True)
        while True:
            c.poll(0.1)
    """)
    victim = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    try:
        assert victim.stdout.readline() == b"owns\n"
        member = start(NewMember, quick_broker.bootstrap, group, topic)
        until(lambda: 0 < len(member.owned) < PARTITIONS, "both members own something")
        victim.kill()
        until(lambda: len(member.owned) == PARTITIONS, "the survivor owns everything")
    finally:
        victim.kill()
        victim.wait()
        victim.stdout.close()


def test_a_regular_expression_takes_in_new_topics(
    quick_broker: BrokerProcess, start: Callable[..., Any]
) -> None:
    prefix, group = fresh("regex"), fresh("group")
    create_topic(quick_broker.bootstrap, f"{prefix}-a", 2)
    create_topic(quick_broker.bootstrap, f"other-{prefix}", 2)
    member = start(NewMember, quick_broker.bootstrap, group, f"^{prefix}-.*")
    until(lambda: member.topics == {f"{prefix}-a"}, "the topic that matches")
    create_topic(quick_broker.bootstrap, f"{prefix}-b", 2)
    until(lambda: member.topics == {f"{prefix}-a", f"{prefix}-b"}, "the topic that was made later")


def test_named_topics_come_first_and_those_that_an_expression_matches_next(
    quick_broker: BrokerProcess,
) -> None:
    """As with Kafka, which matches after it has answered; librdkafka's own tests count the assignments."""
    prefix, named = fresh("mixed"), fresh("named")
    for name in (named, f"{prefix}-a", f"{prefix}-b"):
        create_topic(quick_broker.bootstrap, name, 2)
    assignments: list[set[str]] = []
    taken: list[set[str]] = []
    reader = consumer(quick_broker.bootstrap, fresh("group"))
    try:
        reader.subscribe(
            [named, f"^{prefix}-.*"],
            on_assign=lambda _, rows: assignments.append({row.topic for row in rows}),
            on_revoke=lambda _, rows: taken.append({row.topic for row in rows}),
        )

        def has(names: set[str]) -> bool:
            reader.poll(0.05)
            return {row.topic for row in reader.assignment()} == names

        until(lambda: has({named, f"{prefix}-a", f"{prefix}-b"}), "topics that are named and that match")
        assert assignments == [{named}, {f"{prefix}-a", f"{prefix}-b"}]
        reader.subscribe([named], on_revoke=lambda _, rows: taken.append({row.topic for row in rows}))
        until(lambda: has({named}), "only the topic that is named")
        assert taken == [{f"{prefix}-a", f"{prefix}-b"}]
    finally:
        reader.close()


def test_a_topic_that_grows_is_assigned_whole(quick_broker: BrokerProcess, start: Callable[..., Any]) -> None:
    from confluent_kafka.admin import NewPartitions

    topic, group = fresh("grows"), fresh("group")
    create_topic(quick_broker.bootstrap, topic, 2)
    member = start(NewMember, quick_broker.bootstrap, group, topic)
    until(lambda: member.owned == {0, 1}, "two partitions")
    client = admin(quick_broker.bootstrap)
    client.create_partitions([NewPartitions(topic, 4)])[topic].result(20)
    until(lambda: member.owned == {0, 1, 2, 3}, "four partitions")


def test_commits_outlive_members_and_the_broker(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    topic, group = fresh("commit"), fresh("group")
    create_topic(broker.bootstrap, topic, PARTITIONS)
    fill(broker.bootstrap, topic, 600)
    first = consumer(broker.bootstrap, group)
    first.subscribe([topic])
    read: list[Any] = []
    while len(read) < 250:
        read += first.consume(250 - len(read), 5)
    first.commit(asynchronous=False)
    first.close()
    broker.kill()
    broker.start()
    second = consumer(broker.bootstrap, group)
    second.subscribe([topic])
    while len(read) < 600:
        read += second.consume(600 - len(read), 5)
    assert second.poll(0.5) is None
    second.close()
    assert Counter(item.value() for item in read) == Counter(b"%d" % number for number in range(600))


def test_a_living_group_goes_on_after_a_crash_of_the_broker(
    tmp_path: Path, own_broker: Callable[..., BrokerProcess], start: Callable[..., Any]
) -> None:
    broker = own_broker(group__consumer__heartbeat__interval__ms="300")
    topic, group = fresh("crash"), fresh("group")
    create_topic(broker.bootstrap, topic, PARTITIONS)
    members = [start(NewMember, broker.bootstrap, group, topic) for _ in range(2)]
    until(lambda: shares_all(members), "two members sharing")
    before = [set(member.owned) for member in members]
    broker.kill()
    broker.start()
    fill(broker.bootstrap, topic, 60)
    until(lambda: sum(len(member.values) for member in members) >= 60, "all records read after the crash")
    assert [member.owned for member in members] == before


def test_a_stranger_may_not_commit_into_a_living_group(
    quick_broker: BrokerProcess, start: Callable[..., Any]
) -> None:
    topic, group = fresh("fenced"), fresh("group")
    create_topic(quick_broker.bootstrap, topic, PARTITIONS)
    member = start(NewMember, quick_broker.bootstrap, group, topic)
    until(lambda: len(member.owned) == PARTITIONS, "the member owns everything")
    stranger = consumer(quick_broker.bootstrap, group)
    with pytest.raises(KafkaException):
        stranger.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    stranger.close()


def test_members_of_both_protocols_share_one_group(
    quick_broker: BrokerProcess, start: Callable[..., Any]
) -> None:
    topic, group = fresh("mixed"), fresh("group")
    create_topic(quick_broker.bootstrap, topic, PARTITIONS)
    old = [start(Member, quick_broker.bootstrap, group, topic) for _ in range(2)]
    until(lambda: shares_all(old), "two members of the classic protocol")
    new = start(NewMember, quick_broker.bootstrap, group, topic)
    until(lambda: shares_all([*old, new]), "the upgraded group, with a member of the consumer protocol")
    fill(quick_broker.bootstrap, topic, 60)
    everyone = [*old, new]
    until(lambda: sum(len(row.values) for row in everyone) >= 60, "all records read")
    old[0].leave()
    until(lambda: shares_all([old[1], new]), "one of each")
    new.leave()
    until(lambda: shares_all([old[1]]), "the downgraded group")
    client = admin(quick_broker.bootstrap)
    described = client.describe_consumer_groups([group])[group].result(10)
    assert described.type.name == "CLASSIC"


def test_groups_are_listed_described_and_deleted(
    quick_broker: BrokerProcess, start: Callable[..., Any]
) -> None:
    topic, group = fresh("described"), fresh("group")
    create_topic(quick_broker.bootstrap, topic, PARTITIONS)
    member = start(NewMember, quick_broker.bootstrap, group, topic)
    client = admin(quick_broker.bootstrap)
    until(lambda: len(member.owned) == PARTITIONS, "the member owns everything")
    listed = {row.group_id: row for row in client.list_consumer_groups().result(10).valid}
    assert listed[group].type.name == "CONSUMER"
    described = client.describe_consumer_groups([group])[group].result(10)
    assert described.state.name == "STABLE"
    assert described.type.name == "CONSUMER"
    assert described.partition_assignor == "uniform"
    assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    assert len(described.members[0].target_assignment.topic_partitions) == PARTITIONS
    with pytest.raises(KafkaException):
        client.delete_consumer_groups([group])[group].result(10)
    member.leave()
    client.delete_consumer_groups([group])[group].result(10)


def test_an_old_static_member_keeps_its_partitions(
    quick_broker: BrokerProcess, start: Callable[..., Any]
) -> None:
    topic, group = fresh("static"), fresh("group")
    create_topic(quick_broker.bootstrap, topic, PARTITIONS)

    def member(name: str) -> Member:
        started: Member = start(
            NewMember, quick_broker.bootstrap, group, topic, **{"group.instance.id": name}
        )
        return started

    first, second = member("one"), member("two")
    until(lambda: shares_all([first, second]), "two static members share")
    owned = set(second.owned)
    second.leave()
    second = member("two")
    until(lambda: second.owned == owned, "the returned member owns what it had")


def test_the_protocol_can_be_switched_off(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(group__coordinator__rebalance__protocols="classic")
    create_topic(broker.bootstrap, "off", 1)
    client = consumer(broker.bootstrap, "g")
    client.subscribe(["off"])
    message = client.poll(20)
    assert message is not None
    assert "version not supported" in message.error().str()
    client.close()
