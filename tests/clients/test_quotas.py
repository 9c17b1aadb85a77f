"""Client quotas: set with the command line, felt by librdkafka and kafka-python.

The broker's clock stands still, so what a client has used and how long it is told to wait depend on nothing but
what it sent. That it does wait is measured from below only: a slow machine makes no test fail.
"""

from __future__ import annotations

import socket
import struct
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka.admin import KafkaAdminClient
from kafka.errors import ThrottlingQuotaExceededError

from barnabas.testing import Broker
from tests.clients.cli_support import Cli
from tests.support.admin import admin, create_topic

RATE_BYTES_S = 50_000
MESSAGE = b"m" * 20_000
MESSAGES = 5
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""The request in version 0, without a client id."""


@pytest.fixture(scope="module")
def still() -> Iterator[Broker]:
    """A broker that averages over two seconds and whose clock does not move by itself."""
    with Broker({"quota.window.num": "2", "controller.quota.window.num": "2"}, manual_clock=True) as broker:
        yield broker


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def produce(
    bootstrap: str, topic: str, client_id: str, messages: int = MESSAGES
) -> tuple[float, list[float]]:
    """(seconds it took, throttle times in seconds)."""
    throttles: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "batch.size": 25_000,
            "max.in.flight": 1,
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
        }
    )
    begun = time.monotonic()
    for _ in range(messages):
        producer.produce(topic, MESSAGE)
    assert producer.flush(60) == 0
    return time.monotonic() - begun, throttles


def consume(bootstrap: str, topic: str, client_id: str) -> list[float]:
    """Throttle times in seconds."""
    throttles: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": fresh("g"),
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 20_000,
            "queued.max.messages.kbytes": 20,
            "fetch.queue.backoff.ms": 5,
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
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
    return throttles


def test_a_noisy_producer_waits_and_others_do_not(still: Broker) -> None:
    cli, topic, noisy = Cli(still.bootstrap), fresh("produced"), fresh("noisy")
    create_topic(still.bootstrap, topic)
    cli("quota", "set", "--client", noisy, f"producer_byte_rate={RATE_BYTES_S}")
    noisy_s, throttles = produce(still.bootstrap, topic, noisy)
    _, untold = produce(still.bootstrap, topic, fresh("polite"))
    assert max(throttles) > 0
    assert noisy_s >= min(throttles)
    assert untold == []


def test_a_greedy_consumer_waits(still: Broker) -> None:
    cli, topic, greedy = Cli(still.bootstrap), fresh("consumed"), fresh("greedy")
    create_topic(still.bootstrap, topic)
    produce(still.bootstrap, topic, fresh("writer"))
    cli("quota", "set", "--client", greedy, f"consumer_byte_rate={RATE_BYTES_S}")
    assert max(consume(still.bootstrap, topic, greedy)) > 0
    assert consume(still.bootstrap, topic, fresh("modest")) == []


def test_request_time_is_limited(still: Broker) -> None:
    cli, topic, busy = Cli(still.bootstrap), fresh("timed"), fresh("busy")
    create_topic(still.bootstrap, topic)
    cli("quota", "set", "--client", busy, "request_percentage=0.0001")
    _, throttles = produce(still.bootstrap, topic, busy, messages=2)
    assert max(throttles) > 0


def test_quotas_are_listed_and_removed(still: Broker) -> None:
    cli = Cli(still.bootstrap)
    user, client = fresh("user"), fresh("client")
    cli(
        "quota",
        "set",
        "--user",
        user,
        "--client",
        client,
        "producer_byte_rate=1000",
        "consumer_byte_rate=2000",
    )
    cli("quota", "unset", "--user", user, "--client", client, "consumer_byte_rate")
    mine = [row for row in cli.json("quota", "list") if row["user"] == user]
    assert [(row["client"], row["quota"], row["value"]) for row in mine] == [
        (client, "producer_byte_rate", 1000)
    ]


def test_a_pair_keeps_its_quota_when_its_user_loses_the_last() -> None:
    with Broker({"quota.window.num": "2"}, manual_clock=True) as broker:
        cli, topic = Cli(broker.bootstrap), "paired"
        create_topic(broker.bootstrap, topic)
        cli("quota", "set", "--user", "ANONYMOUS", "--client", "noisy", f"producer_byte_rate={RATE_BYTES_S}")
        cli("quota", "set", "--user", "ANONYMOUS", "producer_byte_rate=1000000000")
        cli("quota", "unset", "--user", "ANONYMOUS", "producer_byte_rate")
        broker.restart()
        assert max(produce(broker.bootstrap, topic, "noisy")[1]) > 0
        assert produce(broker.bootstrap, topic, "other")[1] == []
        cli("quota", "unset", "--user", "ANONYMOUS", "--client", "noisy", "producer_byte_rate")
        broker.advance(10_000)
        assert produce(broker.bootstrap, topic, "noisy")[1] == []


# --- topic changes --------------------------------------------------------------------------------------------


def test_a_client_that_knows_is_told_when_it_may_change_topics_again(still: Broker) -> None:
    """Half a partition per second, two seconds' worth at once: any request passes, then credit must come back."""
    client_id, names = fresh("maker"), [fresh("made") for _ in range(3)]
    Cli(still.bootstrap)("quota", "set", "--client", client_id, "controller_mutation_rate=0.5")
    wanted = {"num_partitions": 3, "replication_factor": 1}

    def change(method: str, *arguments: Any) -> None:
        """A client for each change: one that was told to wait refuses to send anything for so long."""
        maker = KafkaAdminClient(bootstrap_servers=still.bootstrap, client_id=client_id)
        try:
            getattr(maker, method)(*arguments)
        finally:
            maker.close()

    change("create_topics", {names[0]: wanted})
    with pytest.raises(ThrottlingQuotaExceededError):
        change("create_topics", {names[1]: wanted})
    with pytest.raises(ThrottlingQuotaExceededError):
        change("delete_topics", [names[0]])
    with pytest.raises(ThrottlingQuotaExceededError):
        change("create_partitions", {names[0]: 4})
    assert names[1] not in admin(still.bootstrap).list_topics(timeout=120).topics
    still.advance(4000)  # nothing is owed any more
    change("delete_topics", [names[0]])
    still.advance(6000)
    change("create_topics", {names[2]: wanted})


def test_an_older_client_is_let_through_and_waits_afterwards(still: Broker) -> None:
    """librdkafka asks in version 4 of CreateTopics, which has no word for it: both topics are there."""
    from confluent_kafka.admin import AdminClient, NewTopic

    client_id = fresh("maker")
    Cli(still.bootstrap)("quota", "set", "--client", client_id, "controller_mutation_rate=5")
    client = AdminClient({"bootstrap.servers": still.bootstrap, "client.id": client_id})
    begun = time.monotonic()
    for name, count in ((fresh("made"), 12), (fresh("made"), 1)):
        client.create_topics([NewTopic(name, count, 1)])[name].result(30)
    assert time.monotonic() - begun >= (12 - 2 * 5) / 5 * 0.99


def test_topics_that_are_made_by_asking_about_them_count_too() -> None:
    options = {"controller.quota.window.num": "2", "num.partitions": "12"}
    with Broker(options, manual_clock=True) as broker:
        Cli(broker.bootstrap)("quota", "set", "--client", "asker", "controller_mutation_rate=5")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "asker"})
        producer.produce("asked-for", b"1")
        assert producer.flush(30) == 0
        maker = KafkaAdminClient(bootstrap_servers=broker.bootstrap, client_id="asker")
        with pytest.raises(ThrottlingQuotaExceededError):
            maker.create_topics({"made": {"num_partitions": 1, "replication_factor": 1}})
        maker.close()


# --- connections ----------------------------------------------------------------------------------------------


def connect(broker: Broker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=120)


def is_served(sock: socket.socket) -> bool:
    """False when the broker closes the connection instead of answering."""
    try:
        sock.sendall(API_VERSIONS)
        return len(sock.recv(4)) == 4
    except ConnectionError:
        return False


def test_connections_of_an_address_that_come_too_fast_are_closed_after_a_wait() -> None:
    with Broker({"quota.window.num": "2"}, manual_clock=True) as broker:
        cli = Cli(broker.bootstrap)
        cli("quota", "set", "--ip", "127.0.0.1", "connection_creation_rate=3")
        assert [is_served(connect(broker)) for _ in range(5)] == [True, True, True, False, False]
        broker.advance(2000)
        assert is_served(connect(broker))
        broker.advance(2000)  # the command below connects more than once
        cli("quota", "unset", "--ip", "127.0.0.1", "connection_creation_rate")
        assert all(is_served(connect(broker)) for _ in range(5))


def test_an_address_has_so_many_connections() -> None:
    options = {"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "10.0.0.9:1,localhost:4"}
    with Broker(options) as broker:
        sockets = [connect(broker)]
        # The name is looked up while connections are accepted already.
        while not all(map(is_served, sockets)) or len(sockets) < 4:
            sockets = [sock for sock in sockets if is_served(sock)] + [connect(broker)]
        assert not is_served(connect(broker))
        sockets.pop().close()
        while not is_served(connect(broker)):
            pass  # until the broker has noticed


def test_connections_over_the_limits_of_broker_and_listener_wait_for_their_turn() -> None:
    options = {"listener.name.plaintext.max.connections": "2"}
    with Broker(options) as broker:
        sockets = [connect(broker) for _ in range(3)]
        assert is_served(sockets[0])
        assert is_served(sockets[1])
        sockets[2].sendall(API_VERSIONS)
        sockets[0].close()
        assert len(sockets[2].recv(4)) == 4


def test_connections_that_come_too_fast_for_the_broker_wait() -> None:
    """One per second, two at once: the fourth is served all the same, when the third has waited."""
    options = {"max.connection.creation.rate": "1", "quota.window.num": "2"}
    with Broker(options, manual_clock=True) as broker:
        begun = time.monotonic()
        assert all(is_served(connect(broker)) for _ in range(3))
        assert time.monotonic() - begun >= 0.99


def test_quotas_hold_after_a_restart() -> None:
    with Broker({"quota.window.num": "2"}, manual_clock=True) as broker:
        create_topic(broker.bootstrap, "kept")
        Cli(broker.bootstrap)("quota", "set", "--client", "noisy", f"producer_byte_rate={RATE_BYTES_S}")
        broker.restart()
        assert max(produce(broker.bootstrap, "kept", "noisy")[1]) > 0
