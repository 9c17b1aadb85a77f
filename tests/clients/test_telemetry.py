"""Client telemetry (KIP-714): librdkafka and the Java client push metrics of their own, and we show them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from barnabas.broker.api.telemetry import (
    Point,
    Telemetry,
    Values,
    read_points,
)
from barnabas.config.loader import BrokerConfig
from barnabas.cores.telemetry import Client
from barnabas.records.compression import Codec, compress
from barnabas.runtime.clock import ManualClock
from barnabas.testing import Broker
from tests.clients.cli_support import Cli
from tests.clients.test_java import probe  # noqa: F401 - a fixture
from tests.support.admin import create_topic

INTERVAL_MS = "200"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Broker]:
    """A broker that asks every client for all of its metrics, often."""
    with Broker() as broker:
        Cli(broker.bootstrap)("config", "set", "metrics", "all", "metrics=*", f"interval.ms={INTERVAL_MS}")
        yield broker


def shown(broker: Broker, prefix: str, client_id: str) -> dict[str, float]:
    """What `barnabas clients --metrics` says of one client; values of one name are summed."""
    values: dict[str, float] = {}
    for row in Cli(broker.bootstrap).json("clients", "--metrics", prefix):
        if row["client_id"] == client_id:
            for metric in row["metrics"]:
                values[metric["name"]] = values.get(metric["name"], 0) + metric["value"]
    return values


def until(check: Callable[[], bool], meanwhile: Callable[[], Any]) -> None:
    """pytest's own time-out ends what never comes true."""
    while not check():
        meanwhile()


def test_librdkafka_pushes(receiver: Broker) -> None:
    create_topic(receiver.bootstrap, "pushed")
    producer = Producer(
        {"bootstrap.servers": receiver.bootstrap, "client.id": "rd", "enable.metrics.push": True}
    )
    producer.produce("pushed", b"1")
    producer.flush(30)
    cli, pushes, names = Cli(receiver.bootstrap), 0, set()
    while pushes < 2:
        producer.poll(0.1)
        for row in cli.json("clients", "--metrics", "org.apache.kafka.producer"):
            if row["client_id"] == "rd":
                pushes, names = row["pushes"], {metric["name"] for metric in row["metrics"]}
    assert "org.apache.kafka.producer.connection.creation.total" in names


def test_the_java_client_pushes_what_is_asked(receiver: Broker, probe: list[str]) -> None:  # noqa: F811
    done = subprocess.run(
        [*probe, receiver.bootstrap, "telemetry", str(4 * int(INTERVAL_MS))],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert json.loads(done.stdout.strip().splitlines()[-1])["ok"] is True, done.stdout + done.stderr
    values: dict[str, float] = {}
    sent = "org.apache.kafka.producer.record.send.total"
    # What it says when it closes may still be on its way.
    until(
        lambda: values.get(sent, 0) >= 100,
        lambda: values.update(shown(receiver, "org.apache.kafka.producer", "java-telemetry")),
    )
    assert values[sent] == 100
    assert len(values) > 20


@pytest.mark.parametrize("codec", list(Codec))
def test_pushes_in_every_compression(codec: Codec) -> None:
    message = MetricsData()
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name="sent")
    metric.sum.aggregation_temporality = 1
    metric.sum.data_points.add(as_double=2.5).attributes.add(key="node").value.string_value = "1"
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name="queue")
    metric.gauge.data_points.add(as_int=7)
    metric = message.resource_metrics.add().scope_metrics.add().metrics.add(name="latency")
    metric.histogram.data_points.add(count=2, sum=30.0)
    points = read_points(codec, compress(codec, message.SerializeToString()))
    assert points == [
        Point("sent", (("node", "1"),), 2.5, True),
        Point("queue", (), 7.0, False),
        Point("latency.count", (), 2.0, False),
        Point("latency.sum", (), 30.0, False),
    ]
    values = Values(Client.__new__(Client))
    values.take(points, 1)
    values.take(points, 2)
    assert values.series[("sent", (("node", "1"),))] == 5.0
    assert values.series[("queue", ())] == 7.0


@pytest.mark.parametrize("data", [b"\xff\xff\xff", compress(Codec.ZSTD, bytes(64 << 20))])
def test_damaged_and_swollen_pushes_are_refused(data: bytes) -> None:
    for codec in Codec:
        with pytest.raises(ValueError, match=r"."):
            read_points(codec, data)


def test_what_clients_push_is_bounded() -> None:
    """One client with more names than fit, and more clients than fit: the newest stay."""
    telemetry = Telemetry(BrokerConfig(), ManualClock())
    points = [Point(f"{number}-{'x' * 1000}", (), 1.0, False) for number in range(1000)]
    for number in range(1, 101):
        telemetry.keep(Client(UUID(int=number), "c", "", "", "", 0), points)
    assert 800 < len(telemetry.values[UUID(int=100)].series) < 1000
    assert 60 < len(telemetry.values) < 70
    assert set(telemetry.values) == {UUID(int=number) for number in range(101 - len(telemetry.values), 101)}
    telemetry.expire()
    assert not telemetry.values, "nobody of them is known to the core"


def test_nobody_is_bothered_without_a_subscription(probe: list[str]) -> None:  # noqa: F811
    """The Java client asks once, and then again after five minutes; librdkafka is not even told that it could."""
    with Broker() as broker:
        create_topic(broker.bootstrap, "quiet")
        rd = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "rd"})
        rd.produce("quiet", b"1")
        rd.flush(30)
        java = subprocess.Popen([*probe, broker.bootstrap, "telemetry", "60000"], stdout=subprocess.DEVNULL)
        used: dict[str, set[str]] = {"rd": set(), "java-telemetry": set()}

        def look() -> None:
            for row in Cli(broker.bootstrap).json("clients")["clients"]:
                if row["client_id"] in used:
                    used[row["client_id"]].update(row["apis"])

        try:
            until(lambda: {"GetTelemetrySubscriptions", "Produce"} <= used["java-telemetry"], look)
        finally:
            java.kill()
            java.wait()
        assert "PushTelemetry" not in used["java-telemetry"]
        assert "Produce" in used["rd"]
        assert "GetTelemetrySubscriptions" not in used["rd"]
        assert Cli(broker.bootstrap).json("clients", "--metrics", "") == []
