"""Client quotas: set with the command line, felt by librdkafka."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.clients.cli_support import Cli
from tests.support.admin import create_topic
from tests.support.process import BrokerProcess

RATE_BYTES_S = 50_000
MESSAGE = b"m" * 20_000
MESSAGES = 10


@pytest.fixture(scope="module")
def short_windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that averages over two seconds, so that a burst is felt at once."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("quotas") / "data", options={"quota.window.num": "2"}
    ).start()
    yield process
    process.stop()


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def produce(bootstrap: str, topic: str, client_id: str) -> tuple[float, list[float]]:
    """(seconds it took, throttle times in seconds)."""
    told: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "batch.size": 25_000,
            "max.in.flight": 1,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    begun = time.monotonic()
    for _ in range(MESSAGES):
        producer.produce(topic, MESSAGE)
    assert producer.flush(60) == 0
    return time.monotonic() - begun, told


def consume(bootstrap: str, topic: str, client_id: str) -> list[float]:
    """Throttle times in seconds."""
    told: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": fresh("g"),
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 20_000,
            "queued.max.messages.kbytes": 20,
            "fetch.queue.backoff.ms": 5,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    consumer.subscribe([topic])
    count = 0
    while count < MESSAGES:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        count += 1
    consumer.close()
    return told


def test_a_noisy_producer_waits_and_others_do_not(short_windows: BrokerProcess) -> None:
    bootstrap = short_windows.bootstrap
    cli, topic, noisy = Cli(bootstrap), fresh("produced"), fresh("noisy")
    create_topic(bootstrap, topic)
    cli("quota", "set", "--client", noisy, f"producer_byte_rate={RATE_BYTES_S}")
    noisy_s, told = produce(bootstrap, topic, noisy)
    polite_s, untold = produce(bootstrap, topic, fresh("polite"))
    assert noisy_s > 1.5
    assert max(told) > 0
    assert polite_s < noisy_s / 2
    assert untold == []


def test_a_greedy_consumer_waits(short_windows: BrokerProcess) -> None:
    bootstrap = short_windows.bootstrap
    cli, topic, greedy = Cli(bootstrap), fresh("consumed"), fresh("greedy")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, fresh("writer"))
    cli("quota", "set", "--client", greedy, f"consumer_byte_rate={RATE_BYTES_S}")
    assert max(consume(bootstrap, topic, greedy)) > 0
    assert consume(bootstrap, topic, fresh("modest")) == []


def test_request_time_is_limited(short_windows: BrokerProcess) -> None:
    bootstrap = short_windows.bootstrap
    cli, topic, busy = Cli(bootstrap), fresh("timed"), fresh("busy")
    create_topic(bootstrap, topic)
    cli("quota", "set", "--client", busy, "request_percentage=0.01")
    busy_s, _ = produce(bootstrap, topic, busy)
    assert busy_s > 0.5


def test_quotas_are_listed_and_removed(short_windows: BrokerProcess) -> None:
    cli = Cli(short_windows.bootstrap)
    user, client = fresh("user"), fresh("client")
    cli("quota", "set", "--user", user, "--client", client, "producer_byte_rate=1000")
    cli("quota", "set", "--user", user, "consumer_byte_rate=2000")
    assert user in cli.out("quota", "list").decode()
    cli("quota", "unset", "--user", user, "consumer_byte_rate")
    listed = cli.out("quota", "list").decode()
    assert "producer_byte_rate" in listed
    cli("quota", "unset", "--user", user, "--client", client, "producer_byte_rate")
    assert client not in cli.out("quota", "list").decode()


def test_quotas_hold_after_a_restart(own_broker: Any) -> None:
    broker = own_broker(quota__window__num="2")
    create_topic(broker.bootstrap, "kept")
    Cli(broker.bootstrap)("quota", "set", "--client", "noisy", f"producer_byte_rate={RATE_BYTES_S}")
    broker.restart()
    taken_s, told = produce(broker.bootstrap, "kept", "noisy")
    assert taken_s > 1.5
    assert max(told) > 0
