"""What a coordinator refuses, ends and forgets, as clients feel it: the rules of classic groups and of offsets."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka.admin import KafkaAdminClient

from barnabas.testing import Broker
from tests.support.admin import admin, create_topic
from tests.support.process import BrokerProcess

PARTITIONS = 4
NOTHING = -1001
"""librdkafka's word for no offset."""


@pytest.fixture(scope="module")
def strict() -> Iterator[Broker]:
    """Groups of two at most; short sessions are allowed, so that nobody waits for long."""
    options = {
        "group.max.size": "2",
        "group.min.session.timeout.ms": "500",
        "offset.metadata.max.bytes": "100",
    }
    with Broker(options) as broker:
        create_topic(broker.bootstrap, "t", PARTITIONS)
        yield broker


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def member(strict: Broker) -> Iterator[Callable[..., Any]]:
    """Makes consumers that have asked for `t`."""
    consumers: list[Any] = []

    def make(group: str, **config: Any) -> Any:
        consumer = Consumer(
            {
                "bootstrap.servers": strict.bootstrap,
                "group.id": group,
                "session.timeout.ms": 3000,
                "heartbeat.interval.ms": 100,
                **{name.replace("_", "."): value for name, value in config.items()},
            }
        )
        consumer.subscribe(["t"])
        consumers.append(consumer)
        return consumer

    yield make
    for consumer in consumers:
        consumer.close()


def poll_until(check: Callable[[], bool], *consumers: Any) -> None:
    """pytest's own time-out ends what never comes true."""
    while not check():
        for consumer in consumers:
            consumer.poll(0.05)


def error_of(consumer: Any, *others: Any) -> str:
    """The name of the first error that a consumer is told, while others go on."""
    while True:
        message = consumer.poll(0.05)
        if message is not None and message.error() is not None:
            return str(message.error().name())
        for other in others:
            other.poll(0.05)


def all_of(consumer: Any) -> bool:
    return len(consumer.assignment()) == PARTITIONS


def test_a_full_group_takes_nobody_else(member: Callable[..., Any]) -> None:
    group = fresh("full")
    two = [member(group) for _ in range(2)]
    poll_until(lambda: all(len(row.assignment()) == PARTITIONS / 2 for row in two), *two)
    assert error_of(member(group), *two) == "GROUP_MAX_SIZE_REACHED"


def test_members_must_have_a_protocol_in_common(member: Callable[..., Any]) -> None:
    group = fresh("mismatched")
    first = member(group, partition_assignment_strategy="range")
    poll_until(lambda: all_of(first), first)
    second = member(group, partition_assignment_strategy="cooperative-sticky")
    assert error_of(second, first) == "INCONSISTENT_GROUP_PROTOCOL"


def test_a_static_member_is_fenced_by_its_successor(member: Callable[..., Any]) -> None:
    group = fresh("static")
    first = member(group, group_instance_id="one")
    poll_until(lambda: all_of(first), first)
    second = member(group, group_instance_id="one")
    poll_until(lambda: all_of(second), second)
    with pytest.raises(KafkaException) as error:
        first.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    assert error.value.args[0].name() in ("FENCED_INSTANCE_ID", "_FENCED", "_FATAL")


def test_who_does_not_poll_loses_its_partitions(member: Callable[..., Any]) -> None:
    group = fresh("slow")
    slow = member(group, max_poll_interval_ms=1000, session_timeout_ms=1000)
    poll_until(lambda: all_of(slow), slow)
    quick = member(group)
    poll_until(lambda: all_of(quick), quick)  # nobody polls `slow` in the meantime
    assert error_of(slow, quick) == "_MAX_POLL_EXCEEDED"


def test_offsets_with_too_long_a_note_are_refused(strict: Broker) -> None:
    consumer = Consumer({"bootstrap.servers": strict.bootstrap, "group.id": fresh("notes")})
    consumer.commit(offsets=[TopicPartition("t", 0, 1, "x" * 90)], asynchronous=False)
    with pytest.raises(KafkaException) as error:
        consumer.commit(offsets=[TopicPartition("t", 0, 2, "x" * 101)], asynchronous=False)
    assert error.value.args[0].name() == "OFFSET_METADATA_TOO_LARGE"
    (committed,) = consumer.committed([TopicPartition("t", 0)], timeout=120)
    assert (committed.offset, committed.metadata) == (1, "x" * 90)
    consumer.close()


def test_many_groups_are_asked_about_at_once(strict: Broker) -> None:
    groups = [fresh("many") for _ in range(50)]
    for number, group in enumerate(groups):
        consumer = Consumer({"bootstrap.servers": strict.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("t", number % PARTITIONS, number)], asynchronous=False)
        consumer.close()
    client = KafkaAdminClient(bootstrap_servers=strict.bootstrap)
    offsets = client.list_group_offsets(dict.fromkeys(groups))
    client.close()
    for number, group in enumerate(groups):
        ((place, committed),) = offsets[group].items()
        assert (place.partition, committed.offset) == (number % PARTITIONS, number)


def groups_of(bootstrap: str) -> set[str]:
    client = admin(bootstrap)  # held: a client that is collected drops what it was asked
    return {row.group_id for row in client.list_consumer_groups().result(30).valid}


def test_offsets_of_an_empty_group_expire() -> None:
    with Broker({"offsets.retention.minutes": "1"}, manual_clock=True) as broker:
        create_topic(broker.bootstrap, "t", 1)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        place = TopicPartition("t", 0)

        def committed() -> int:
            offset: int = consumer.committed([place], timeout=120)[0].offset
            return offset

        consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
        interval_ms = 600_000  # at which the broker looks for them
        broker.advance(50_000)
        assert committed() == 7
        assert groups_of(broker.bootstrap) == {"g"}
        broker.advance(interval_ms)
        assert committed() == NOTHING
        assert groups_of(broker.bootstrap) == set()
        consumer.close()


def log_bytes(broker: BrokerProcess) -> int:
    total = 0
    for path in Path(broker.data_dir).glob("__consumer_offsets-0/*.log"):
        with contextlib.suppress(FileNotFoundError):  # replaced by a compacted one just now
            total += path.stat().st_size
    return total


def test_what_groups_have_overwritten_leaves_the_disk(own_broker: Callable[..., BrokerProcess]) -> None:
    """The offsets topic is compacted; what is left of it tells the same after a crash."""
    broker = own_broker(
        offsets__topic__num__partitions="1",
        offsets__topic__segment__bytes="20000",
        log__cleaner__backoff__ms="50",
        log__cleaner__min__cleanable__ratio="0.01",
    )
    create_topic(broker.bootstrap, "t", 2)
    kept = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "kept"})
    gone = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "gone"})
    gone.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    written = 0
    for number in range(200):
        kept.commit(offsets=[TopicPartition("t", number % 2, number, "x" * 2000)], asynchronous=False)
        written += 2000
    kept.close()
    gone.close()
    client = admin(broker.bootstrap)
    client.delete_consumer_groups(["gone"])["gone"].result(30)
    while log_bytes(broker) > written / 4:
        time.sleep(0.05)  # until the cleaner has been here
    broker.kill()
    broker.start()
    again = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "kept"})
    committed = again.committed([TopicPartition("t", 0), TopicPartition("t", 1)], timeout=120)
    assert [item.offset for item in committed] == [198, 199]
    again.close()
    assert groups_of(broker.bootstrap) == {"kept"}


def test_members_that_come_together_are_assigned_together() -> None:
    """With an interval between assignments the second member waits for the clock, and so does whoever asks."""
    options = {"group.consumer.assignment.interval.ms": "5000"}
    with Broker(options, manual_clock=True) as broker:
        create_topic(broker.bootstrap, "t", PARTITIONS)
        client = admin(broker.bootstrap)

        def join() -> Any:
            consumer = Consumer(
                {"bootstrap.servers": broker.bootstrap, "group.id": "g", "group.protocol": "consumer"}
            )
            consumer.subscribe(["t"])
            return consumer

        def described() -> Any:
            return client.describe_consumer_groups(["g"])["g"].result(30)

        first = join()
        poll_until(lambda: all_of(first), first)
        second = join()
        poll_until(lambda: len(described().members) == 2, first, second)
        other = KafkaAdminClient(bootstrap_servers=broker.bootstrap)  # librdkafka has no word for this state
        assert "Assigning" in str(other.list_groups())
        other.close()
        broker.advance(5000)
        poll_until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
        poll_until(lambda: described().state.name == "STABLE", first, second)
        first.close()
        second.close()
