"""Share groups with librdkafka's share consumer (a preview since 2.15)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from tests.support.admin import create_topic, set_group_option
from tests.support.process import BrokerProcess

pytestmark = pytest.mark.skipif(
    not hasattr(confluent_kafka, "ShareConsumer"), reason="this confluent-kafka has no share consumer"
)


@contextmanager
def member(bootstrap: str, group: str, topic: str, mode: str) -> Iterator[Any]:
    options = {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": mode}
    consumer = confluent_kafka.ShareConsumer(options)
    try:
        consumer.subscribe([topic])
        yield consumer
    finally:
        consumer.close()


def begin(bootstrap: str, name: str, count: int) -> None:
    """A topic and a group of this name; the group begins at the topic's start."""
    create_topic(bootstrap, name, 1)
    set_group_option(bootstrap, name, "share.auto.offset.reset", "earliest")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(name, str(number))
    assert producer.flush(30) == 0


def records(consumer: Any) -> list[Any]:
    """The next poll that has any."""
    for _ in range(100):
        batch = consumer.poll(0.2)
        if batch:
            assert all(message.error() is None for message in batch)
            return list(batch)
    raise AssertionError("nothing was delivered")


def test_what_one_member_releases_another_gets(broker: BrokerProcess) -> None:
    from confluent_kafka import AcknowledgeType

    begin(broker.bootstrap, "rd-share", 6)
    with member(broker.bootstrap, "rd-share", "rd-share", "explicit") as consumer:
        seen: list[int] = []
        while len(seen) < 6:
            for message in records(consumer):
                number = int(message.value())
                seen.append(number)
                released = AcknowledgeType.RELEASE if number >= 4 else AcknowledgeType.ACCEPT
                consumer.acknowledge(message, released)
            consumer.commit_sync(20)
    again: dict[int, int] = {}
    with member(broker.bootstrap, "rd-share", "rd-share", "implicit") as consumer:
        while len(again) < 2:
            for message in records(consumer):
                again[int(message.value())] = message.delivery_count()
        consumer.commit_sync(20)
    assert again == {4: 2, 5: 2}


def test_many_records_over_several_fetches(broker: BrokerProcess) -> None:
    count = 20_000
    begin(broker.bootstrap, "rd-many", count)
    seen: list[int] = []
    with member(broker.bootstrap, "rd-many", "rd-many", "implicit") as consumer:
        while len(seen) < count:
            seen += [int(message.value()) for message in records(consumer)]
        consumer.commit_sync(20)
    assert sorted(seen) == list(range(count))
