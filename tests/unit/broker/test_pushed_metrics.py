"""What clients push becomes series whose names and labels Prometheus accepts, whatever clients choose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from prometheus_client.parser import text_string_to_metric_families

from barnabas.broker.api.measuring.clients import of_clients
from barnabas.broker.api.telemetry import Point, Values
from barnabas.cores.telemetry import Client
from barnabas.observe.metric import Sample
from barnabas.services.metrics_text import Labels, written


def exported(*points: Point) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    values = Values(Client(UUID(int=1), "app", "kafka", "4", "127.0.0.1", 9))
    values.take(list(points), 0)
    samples: list[Sample] = []
    services = cast("Any", SimpleNamespace(telemetry=SimpleNamespace(values={UUID(int=1): values})))
    for _ in of_clients(services, samples):
        pass
    text = written(samples, "", Labels())[0].decode()
    return {
        (
            sample.name,
            tuple(sorted((k, v) for k, v in sample.labels.items() if not k.startswith("client_"))),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("kafka_client")
    }


def test_names_labels_and_values() -> None:
    name = "org.apache.kafka.producer.node.request.latency.avg"
    samples = exported(
        Point(name, (("node.id", "1"),), 2.5, False),
        Point(name, (("node.id", "2"), ("topic", 'a"\n')), 3, False),
    )
    assert samples == {
        ("kafka_client_producer_node_request_latency_avg", (("node_id", "1"), ("topic", ""))): 2.5,
        ("kafka_client_producer_node_request_latency_avg", (("node_id", "2"), ("topic", 'a"\n'))): 3,
    }


def test_names_that_would_be_the_same_or_are_none() -> None:
    samples = exported(
        Point("x.a-b", (), 1, False),
        Point("x.a.b", (), 2, False),
        Point("x.c", (("a.b", "1"), ("a-b", "2"), ("9", "3"), ("client_id", "4"), ("", "5")), 3, False),
        Point('\n"ü', (), 4, False),
    )
    assert samples["kafka_client_x_a_b", ()] == 1
    labels = dict(next(labels for name, labels in samples if name == "kafka_client_x_c"))
    assert sorted(labels.values()) == ["1", "2", "3", "4", "5"]
    assert len(samples) == 3


def test_many_series() -> None:
    points = [Point("x.m", (("n", str(number)),), number, False) for number in range(1500)]
    assert len(exported(*points)) == 1500
