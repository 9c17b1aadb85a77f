"""barnabas.testing as other people's tests use it, with clients that somebody else wrote."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from barnabas.testing import Broker
from tests.support.admin import admin, create_topic


def produce(broker: Broker, topic: str, *values: bytes, **config: Any) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **config})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: errors.append(error))
    producer.flush(30)
    return errors


def read(broker: Broker, topic: str, count: int, group: str = "readers") -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            values.append(message.value())
    consumer.close()
    return values


def test_a_broker_for_one_block() -> None:
    with Broker({"num.partitions": "2"}) as broker:
        folder = broker.data_dir
        assert produce(broker, "greetings", b"hello") == [None]
        assert read(broker, "greetings", 1) == [b"hello"]
        assert len(admin(broker.bootstrap).list_topics(timeout=10).topics["greetings"].partitions) == 2
    assert not folder.exists()


def test_data_that_is_kept(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        produce(broker, "kept", b"1")
    with Broker(data_dir=tmp_path / "data") as broker:
        assert read(broker, "kept", 1) == [b"1"]
        broker.restart()
        assert read(broker, "kept", 1, "others") == [b"1"]


def test_the_clock_ends_sessions_and_retention() -> None:
    with Broker(manual_clock=True) as broker:
        create_topic(broker.bootstrap, "old", config={"retention.ms": "60000"})
        produce(broker, "old", b"1")
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "session.timeout.ms": 45000,
             "heartbeat.interval.ms": 40000}
        )  # fmt: skip
        consumer.subscribe(["old"])
        while not consumer.assignment():
            consumer.poll(0.1)
        client = admin(broker.bootstrap)
        assert client.describe_consumer_groups(["g"])["g"].result(10).state.name == "STABLE"
        broker.advance(120_000)
        assert client.describe_consumer_groups(["g"])["g"].result(10).state.name == "EMPTY"
        low, high = consumer.get_watermark_offsets(_partition("old"), timeout=10)
        assert (low, high) == (1, 1)
        consumer.close()


def _partition(topic: str) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(topic, 0)


def test_restore_takes_back_what_came_after_the_snapshot() -> None:
    with Broker() as broker:
        produce(broker, "events", b"before")
        snapshot = broker.snapshot()
        produce(broker, "events", b"after")
        broker.restore(snapshot)
        produce(broker, "events", b"instead")
        assert read(broker, "events", 2) == [b"before", b"instead"]


def test_a_lost_acknowledgement_makes_an_idempotent_producer_repeat_itself_without_a_duplicate() -> None:
    with Broker() as broker:
        create_topic(broker.bootstrap, "once")
        broker.faults.drop_answers("Produce")
        assert produce(broker, "once", b"1", **{"enable.idempotence": True}) == [None]
        produce(broker, "once", b"2")
        assert read(broker, "once", 2) == [b"1", b"2"]


def test_a_late_answer() -> None:
    with Broker(manual_clock=True) as broker:
        create_topic(broker.bootstrap, "late")
        broker.faults.delay("Produce", 400)
        errors: list[Any] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        producer.produce("late", b"delayed", on_delivery=lambda error, message: errors.append(error))
        while not broker.faults.happened:
            producer.poll(0.01)
        assert produce(broker, "late", b"in between") == [None]
        assert errors == []
        broker.advance(400)
        producer.flush(30)
        assert errors == [None]
        assert read(broker, "late", 2) == [b"in between", b"delayed"]


def test_a_refused_connection() -> None:
    with Broker() as broker:
        broker.faults.refuse_connections(2)
        assert produce(broker, "made", b"1") == [None]
        assert broker.faults.happened == 2


def test_a_fenced_producer_is_told_so() -> None:
    with Broker() as broker:
        create_topic(broker.bootstrap, "fenced")
        errors: list[Any] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("fenced", b"1", on_delivery=lambda error, message: errors.append(error))
        producer.flush(20)
        broker.faults.fence_producers()
        producer.produce("fenced", b"2", on_delivery=lambda error, message: errors.append(error))
        producer.flush(20)
        assert errors[0] is None
        assert errors[1].name() == "INVALID_PRODUCER_EPOCH"
        assert read(broker, "fenced", 1) == [b"1"]


def test_the_plugin_has_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent("""
            from barnabas.client.blocking import BlockingClient, NewTopic

            def test_shared(kafka_broker, kafka_bootstrap):
                with BlockingClient(kafka_bootstrap) as client:
                    client.create_topics([NewTopic("a", 1)])

            def test_fresh(fresh_kafka_broker):
                with BlockingClient(fresh_kafka_broker.bootstrap) as client:
                    assert "a" not in client.topics()
                fresh_kafka_broker.advance(1000)
        """)
    )
    # The first -p keeps an installed plugin of the same name out: one module cannot be loaded twice.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:barnabas",
        "-p",
        "barnabas.testing.plugin",
        ".",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_faults_name_apis_that_exist() -> None:
    with Broker() as broker, pytest.raises(KeyError):
        broker.faults.drop_answers("Teleport")
