"""The services beside a broker are measured, too; a collector of OpenTelemetry is sent everything."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

import requests
from tests.support.cluster import until

WAIT_S = 120
RECORDS, READ = 30, 10
NAMES = ("registry", "rest", "reporting", "monitor")


class Collector:
    """Takes what is pushed; the messages are read with OpenTelemetry's own library."""

    def __init__(self) -> None:
        self.refuses = False
        self.received: list[ExportMetricsServiceRequest] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = 503 if collector.refuses else 200
                if self.path != "/v1/metrics" or self.headers["content-type"] != "application/x-protobuf":
                    status = 404
                elif status == 200:
                    collector.received.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def metrics(self) -> dict[str, object]:
        """The metrics of the last message, by name."""
        resource = self.received[-1].resource_metrics[0]
        return {metric.name: metric for metric in resource.scope_metrics[0].metrics}

    def end(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Place:
    """A broker with four services. urls: of the services."""

    def __init__(self, folder: Path, collector: Collector) -> None:
        self.collector, self.log = collector, folder / "log"
        command = [sys.executable, "-m", "barnabas", "start", "--listen", "127.0.0.1:0"]
        command += ["--data", str(folder / "data"), "--with", ",".join(NAMES), "--metrics", "127.0.0.1:0"]
        command += ["--monitor-data", str(folder / "monitor"), "--monitor-interval-s", "0.5"]
        command += ["--otlp", collector.url, "--otlp-interval-s", "0.5"]
        for name in NAMES:
            command += [f"--{name}-listen", "127.0.0.1:0"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().decode()
        assert ready.startswith("ready"), self.log.read_text()
        match = re.search(r"127\.0\.0\.1:\d+", ready)
        assert match is not None
        self.bootstrap = match[0]
        text = self.log.read_text()
        self.urls = dict(re.findall(r"service started service=(\w+) url=(\S+)", text))
        metrics = re.search(r"metrics are served url=(\S+)/metrics", text)
        assert metrics is not None
        self.urls["metrics"] = metrics[1]

    def values(self, name: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """All values that a service shows, by name and labels."""
        answer = requests.get(f"{self.urls[name]}/metrics", timeout=WAIT_S)
        assert answer.status_code == 200, answer.text
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    def value(self, of: str, name: str, **labels: str) -> float | None:
        """One value, where these labels and perhaps others stand; None if there is none."""
        wanted = set(labels.items())
        return next(
            (v for (n, its_labels), v in self.values(of).items() if n == name and wanted <= its_labels), None
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    collector = Collector()
    started = Place(tmp_path_factory.mktemp("place"), collector)
    yield started
    started.process.terminate()
    assert started.process.wait(WAIT_S) == 0
    assert started.process.stdout is not None
    started.process.stdout.close()
    collector.end()
    assert "Traceback" not in started.log.read_text()


def register(place: Place, subject: str) -> None:
    answer = requests.post(
        f"{place.urls['registry']}/subjects/{subject}/versions",
        json={"schema": '"string"'},
        headers={"content-type": "application/vnd.schemaregistry.v1+json"},
        timeout=WAIT_S,
    )
    assert answer.status_code == 200, answer.text


def test_requests_are_counted_by_their_declared_path_on_every_service(place: Place) -> None:
    register(place, "a")
    register(place, "b")
    assert requests.get(f"{place.urls['registry']}/no/such/path/7", timeout=WAIT_S).status_code == 404
    requests.request("BREW", f"{place.urls['registry']}/subjects", timeout=WAIT_S)
    for page in ("registry", "rest", "metrics"):
        route = {"service": "registry", "route": "/subjects/{subject}/versions"}
        assert place.value(page, "barnabas_http_requests_total", method="POST", status="200", **route) == 2
        assert place.value(page, "barnabas_http_request_seconds_count", **route) == 2
    values = place.values("registry")
    assert place.value("registry", "barnabas_http_requests_total", route="", status="404", method="GET") == 1
    assert not any("BREW" in dict(labels).values() for _, labels in values)
    assert place.value("registry", "kafka_schema_registry_subjects") == 2
    assert place.value("registry", "kafka_schema_registry_master_slave_role") == 1


def test_the_monitor_exports_lag_in_records_and_seconds(place: Place) -> None:
    producer = Producer({"bootstrap.servers": place.bootstrap})
    for number in range(RECORDS):
        producer.produce("lagging", str(number), partition=0)
    assert producer.flush(WAIT_S) == 0
    consumer = Consumer(
        {"bootstrap.servers": place.bootstrap, "group.id": "slow", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["lagging"])
    read = []
    while len(read) < READ:
        read += consumer.consume(1, WAIT_S)
    consumer.commit(read[-1], asynchronous=False)
    consumer.close()

    def lag() -> float | None:
        return place.value("monitor", "kafka_consumergroup_group_sum_lag", group="slow")

    until(lambda: lag() == RECORDS - READ, "it is so", WAIT_S)
    seconds = place.value("monitor", "kafka_consumergroup_group_lag_seconds", group="slow", topic="lagging")
    assert seconds is not None
    assert seconds > 0
    assert place.value("monitor", "kafka_partition_latest_offset", topic="lagging", partition="0") == RECORDS


def test_a_collector_of_opentelemetry_is_sent_all_metrics_even_after_it_was_away(place: Place) -> None:
    collector = place.collector
    until(lambda: bool(collector.received), "it is so", WAIT_S)
    collector.refuses = True
    until(lambda: "metrics cannot be pushed" in place.log.read_text(), "it is so", WAIT_S)
    assert "503" in place.log.read_text()
    register(place, "c")
    collector.received.clear()
    collector.refuses = False

    def counted() -> int:
        metric = collector.metrics().get("barnabas_http_request_seconds") if collector.received else None
        points = [] if metric is None else metric.histogram.data_points  # type: ignore[attr-defined]
        for point in points:
            labels = {one.key: one.value.string_value for one in point.attributes}
            if labels["route"] == "/subjects/{subject}/versions":
                assert sum(point.bucket_counts) == point.count
                assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
                return int(point.count)
        return 0

    until(lambda: counted() >= 1, "it is so", WAIT_S)
    metrics = collector.metrics()
    messages = metrics["kafka_server_brokertopicmetrics_messagesin_total"].sum  # type: ignore[attr-defined]
    assert messages.is_monotonic
    assert any(point.as_double >= 1 for point in messages.data_points)
    assert metrics["kafka_server_replicamanager_partitioncount"].gauge.data_points[0].as_double > 0  # type: ignore[attr-defined]
    names = {
        attribute.key: attribute.value.string_value
        for attribute in collector.received[-1].resource_metrics[0].resource.attributes
    }
    assert names["service.name"] == "barnabas"
    assert names["service.instance.id"].endswith("/1")


def test_an_address_that_is_none_is_named() -> None:
    command = [sys.executable, "-m", "barnabas", "start", "--otlp", "localhost:4318"]
    ended = subprocess.run(command, capture_output=True, timeout=WAIT_S, check=False)
    assert ended.returncode != 0
    assert b"--otlp 'localhost:4318' is not the address of an HTTP service" in ended.stderr
    assert b"Traceback" not in ended.stderr
