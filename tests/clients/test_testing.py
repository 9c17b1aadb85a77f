"""barnabas.testing as other people's tests use it, with clients that somebody else wrote."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer

from barnabas.config.option import ConfigError
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
        assert len(admin(broker.bootstrap).list_topics(timeout=120).topics["greetings"].partitions) == 2
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
        low, high = consumer.get_watermark_offsets(_partition("old"), timeout=120)
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
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_faults_name_apis_that_exist() -> None:
    with Broker() as broker, pytest.raises(ValueError, match="there are"):
        broker.faults.drop_answers("Teleport")


def test_in_a_running_event_loop() -> None:
    """aiokafka's users: the block, as both forms, inside of a loop that runs."""

    async def use() -> list[bytes | None]:
        with Broker():
            pass
        async with Broker() as broker:
            producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
            await producer.start()
            await producer.send_and_wait("t", b"hello")
            await producer.stop()
            consumer = AIOKafkaConsumer("t", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
            await consumer.start()
            message = await consumer.getone()
            await consumer.stop()
            return [message.value]

    assert asyncio.run(use()) == [b"hello"]


def test_options_are_checked_when_they_are_given() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitons is not a known option.*num\.partitions"):
        Broker({"num.partitons": "3"})
    with pytest.raises(TypeError, match=r"num\.partitions: 3 is not a string; write '3'"):
        Broker({"num.partitions": 3})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"must be|whole number"):
        Broker({"num.partitions": "many"})


def test_slips_in_calls_say_what_is_wrong() -> None:
    with Broker(manual_clock=True) as broker:
        with pytest.raises(ValueError, match="did you mean 'Produce'"):
            broker.faults.drop_answers("Prodcue")
        with pytest.raises(ValueError, match="cannot be moved back"):
            broker.advance(-1000)


def test_start_and_stop_alone_leave_no_folder() -> None:
    code = (
        "from barnabas.testing import Broker\nb = Broker()\nb.start()\nprint(b.data_dir.parent)\nb.stop()\n"
        "assert b.data_dir.exists()\nb.start()\nb.stop()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert not Path(done.stdout.strip()).exists()
    broker = Broker()
    broker.start()
    folder = broker.data_dir.parent
    broker.close()
    assert not folder.exists()


def test_stop_in_a_forked_child_ends_and_leaves_the_parents_broker_alone() -> None:
    code = (
        "import os, sys\nfrom barnabas.testing import Broker\nwith Broker() as b:\n"
        "    child = os.fork()\n    if child == 0:\n        b.close()\n        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n    assert b.data_dir.exists()\n    b.snapshot()"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)


def test_moving_the_clock_compacts() -> None:
    options = {"log.cleaner.backoff.ms": "600000", "log.cleaner.min.cleanable.ratio": "0.01"}
    with Broker(options, manual_clock=True) as broker:
        lag_ms = "60000"
        config = {"cleanup.policy": "compact", "segment.bytes": "100", "min.compaction.lag.ms": lag_ms}
        create_topic(broker.bootstrap, "t", config=config)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        for key, value in ((b"k", b"old"), (b"k", b"new"), (b"l", b"last")):
            producer.produce("t", value, key)
            producer.flush(30)
        assert read(broker, "t", 3) == [b"old", b"new", b"last"]
        broker.advance(120_000)
        assert read(broker, "t", 2, "others") == [b"new", b"last"]


def test_the_plugin_costs_other_runs_nothing() -> None:
    code = (
        "import sys, barnabas.testing.plugin\n"
        "heavy = {n for n in sys.modules if n.startswith(('barnabas.broker', 'barnabas.wire', "
        "'uvloop'))}\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_fixture_sets_the_brokers_options(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import pytest

            @pytest.fixture(scope="session")
            def kafka_broker_options():
                return {"num.partitions": "7"}

            def test_options(kafka_broker, fresh_kafka_broker):
                from confluent_kafka.admin import AdminClient
                for broker in (kafka_broker, fresh_kafka_broker):
                    config = {"bootstrap.servers": broker.bootstrap}
                    from confluent_kafka import Producer
                    found = Producer(config).list_topics("t", timeout=120).topics["t"]
                    while found.error is not None:
                        found = Producer(config).list_topics("t", timeout=120).topics["t"]
                    assert len(found.partitions) == 7
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
