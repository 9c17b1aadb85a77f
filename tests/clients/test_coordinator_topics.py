"""The topics that coordinators keep their state in: deleted under running clients, groups begin anew."""

from __future__ import annotations

import logging
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


def test_transactions_end_when_their_topic_is_deleted(tmp_path: Path) -> None:
    """Nobody waits for them, their producers are fenced, and the next ones go on."""
    options = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    broker = BrokerProcess(tmp_path / "data", options=options).start()
    try:
        broker.restart()  # so that leader epochs are not the first ones
        topic = f"t-{uuid.uuid4().hex[:8]}"
        create_topic(broker.bootstrap, topic, 1)
        names = [f"id-{number}" for number in range(4)]
        open_ones = [transactional(broker.bootstrap, name) for name in names]
        for producer in open_ones:
            producer.begin_transaction()
            producer.produce(topic, b"committed")
            producer.commit_transaction(30)
            producer.begin_transaction()
            producer.produce(topic, b"open")
            assert producer.flush(30) == 0
        plain = Producer({"bootstrap.servers": broker.bootstrap})
        plain.produce(topic, b"behind them")
        assert plain.flush(30) == 0
        administrator = admin(broker.bootstrap)
        administrator.delete_topics(["__transaction_state"])["__transaction_state"].result(30)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": "read_committed"}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = [consumer.poll(30).value() for _ in range(5)]
        assert seen == [b"committed"] * 4 + [b"behind them"]
        for producer in open_ones:
            with pytest.raises(KafkaException):
                producer.commit_transaction(30)
        next_one = transactional(broker.bootstrap, names[0])
        next_one.begin_transaction()
        next_one.produce(topic, b"after")
        next_one.commit_transaction(30)
        assert consumer.poll(30).value() == b"after"
        consumer.close()
    finally:
        broker.stop()
    assert "met a bug" not in broker.log()


def transactional(bootstrap: str, name: str) -> Producer:
    quiet = logging.getLogger("fenced on purpose")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "logger": quiet})
    producer.init_transactions(30)
    return producer
