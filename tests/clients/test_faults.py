"""kill -9 under load: every acknowledged record is there once, in order, and the broker comes back by itself."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.clients.drivers import Confluent
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

KILLS = 3


def test_acknowledged_records_survive_kill_nine_once(own_broker: Callable[..., BrokerProcess]) -> None:
    from confluent_kafka import KafkaException, Producer

    broker = own_broker()
    create_topic(broker.bootstrap, "killed", 2)
    acknowledged: list[bytes] = []
    failures: list[str] = []

    def report(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())
        else:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 200,
            "message.timeout.ms": 60000,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    stop = threading.Event()
    sent = 0

    def load() -> None:
        nonlocal sent
        while not stop.is_set():
            try:
                producer.produce("killed", b"%d" % sent, partition=sent % 2, on_delivery=report)
            except (BufferError, KafkaException):
                producer.poll(0.05)
                continue
            sent += 1
            producer.poll(0)
            if sent % 100 == 0:
                time.sleep(0.001)

    loader = threading.Thread(target=load)
    loader.start()
    for _ in range(KILLS):
        reached = len(acknowledged) + 2000
        deadline = time.monotonic() + 120
        while len(acknowledged) < reached and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(acknowledged) >= reached, broker.log()[-2000:]
        broker.kill()
        broker.start()
    stop.set()
    loader.join(30)
    assert producer.flush(60) == 0
    assert not failures, failures[:3]
    messages = Confluent().consume(broker.bootstrap, "killed", 2, sent)
    for partition in (0, 1):
        values = [int(item.value or b"-1") for item in messages if item.partition == partition]
        assert values == list(range(partition, sent, 2)), "lost, repeated or out of order"


def test_committed_offsets_survive_kill_nine(own_broker: Callable[..., BrokerProcess]) -> None:
    from confluent_kafka import Consumer, TopicPartition

    broker = own_broker()
    create_topic(broker.bootstrap, "offsets", 1)
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "keeper", "enable.auto.commit": False}
    consumer = Consumer(config)
    consumer.commit(offsets=[TopicPartition("offsets", 0, 42)], asynchronous=False)
    broker.kill()
    broker.start()
    again = Consumer(config)
    assert again.committed([TopicPartition("offsets", 0)], timeout=120)[0].offset == 42
    consumer.close()
    again.close()


def test_a_broker_whose_only_disk_fails_ends_and_comes_back(own_broker: Callable[..., BrokerProcess]) -> None:
    from tests.clients.drivers import Message

    broker = own_broker()
    create_topic(broker.bootstrap, "full", 1)
    kept = [Message(0, None, b"%d" % number) for number in range(100)]
    assert Confluent().produce(broker.bootstrap, "full", kept, codec="none", acks=-1) == 100
    # A limit of file sizes does what a full disk does: a batch is written in part, then not at all.
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
    lost = [Message(0, None, bytes(10_000)) for _ in range(20)]
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 2000, "log_level": 0})
    for row in lost:
        producer.produce("full", row.value)
    producer.flush(5)
    assert broker.process is not None
    assert broker.process.wait(timeout=120) == 1
    assert "every log dir is offline" in broker.log()
    assert "Traceback" not in broker.log()
    broker.start()
    messages = Confluent().consume(broker.bootstrap, "full", 1, 100)
    assert [item.value for item in messages[:100]] == [item.value for item in kept]
