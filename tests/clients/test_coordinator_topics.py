"""The topics that coordinators keep their state in: deleted under running clients, groups begin anew."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.admin import admin, create_topic
from tests.support.process import BrokerProcess


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_when_its_topic_is_deleted(tmp_path: Path, protocol: str) -> None:
    broker = BrokerProcess(tmp_path / "data", options={"offsets.topic.num.partitions": "3"}).start()
    try:
        topic, group = f"t-{uuid.uuid4().hex[:8]}", "g"
        create_topic(broker.bootstrap, topic, 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(10):
            producer.produce(topic, str(number))
        producer.flush(30)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        read_and_commit(consumer, 10)
        administrator = admin(broker.bootstrap)
        administrator.delete_topics(["__consumer_offsets"])["__consumer_offsets"].result(30)
        for number in range(10):
            producer.produce(topic, str(number))
        producer.flush(30)
        read_and_commit(consumer, 20)
        other = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "another"})
        other.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        assert other.committed([TopicPartition(topic, 0)], 30)[0].offset == 3
        other.close()
        consumer.close()
        broker.restart()
        assert committed(broker.bootstrap, group, topic) == 20
        assert committed(broker.bootstrap, "another", topic) == 3
    finally:
        broker.stop()
    assert "met a bug" not in broker.log()


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    offset: int = consumer.committed([TopicPartition(topic, 0)], 30)[0].offset
    consumer.close()
    return offset


def read_and_commit(consumer: Consumer, offset: int) -> None:
    """Read up to `offset` and commit it, however often the group has to begin anew for that."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is None or message.error() is not None:
            continue
        try:
            done = consumer.commit(message=message, asynchronous=False)
        except KafkaException:
            continue  # the group begins anew: what was read is read again
        if done is not None and done[0].offset == offset and done[0].error is None:
            return
    raise AssertionError(f"offset {offset} was not committed")
