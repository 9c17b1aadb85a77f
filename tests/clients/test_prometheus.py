"""Prometheus itself scrapes a broker under load and answers the queries of the dashboard and of the alert rules; promtool
checks the rules. Queries as published dashboards for Kafka write them find their series, too."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer

import requests

PACKAGING = Path(__file__).parents[2] / "packaging"
RULES = PACKAGING / "prometheus" / "barnabas-alerts.yml"
DASHBOARD = PACKAGING / "grafana" / "barnabas.json"
WAIT_S = 120
TOPIC = "orders"
PUBLISHED = (
    'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{topic=""}[30s]))',
    'sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesin_total{topic!=""}[30s]))',
    'sum(rate(kafka_server_brokertopicmetrics_bytesout_total{topic=""}[30s]))',
    'max(kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"})',
    'kafka_network_requestmetrics_totaltimems{request=~"FetchConsumer",quantile=~"0.50"}',
    "sum(rate(kafka_network_requestmetrics_totaltimems{}[30s]) - rate(kafka_network_requestmetrics_localtimems{}[30s]))",
    'sum(rate(kafka_network_requestmetrics_requests_total{request="Produce"}[30s]))',
    "sum(kafka_controller_kafkacontroller_activecontrollercount)",
    "sum(kafka_controller_kafkacontroller_offlinepartitionscount)",
    "sum(kafka_server_replicamanager_underreplicatedpartitions)",
    "sum(kafka_server_replicamanager_partitioncount) by (instance)",
    "rate(kafka_server_replicamanager_isrshrinks_total[30s])",
    "rate(kafka_server_replicamanager_isrexpands_total[30s])",
    "kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation='Produce'}",
    "sum(kafka_log_log_size) by (topic)",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_coordinator_group_groupmetadatamanager_numgroups",
)
"""Queries of dashboards that were made for Kafka with the JMX exporter's example configuration."""

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None,
    reason="prometheus is not installed (Debian: apt-get install prometheus)",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)
def test_promtool_accepts_the_alert_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert f"{len(rules)} rules found" in done.stdout


class Witness:
    """A broker under load, and a Prometheus that scrapes it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ends = threading.Event()
        command = [sys.executable, "-m", "barnabas", "start", "--listen", "127.0.0.1:0"]
        command += ["--data", str(folder / "data"), "--with", "metrics", "--metrics-listen", "127.0.0.1:0"]
        with (folder / "broker.log").open("wb") as log:
            self.broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.broker.stdout is not None
        ready = re.search(r"127\.0\.0\.1:\d+", self.broker.stdout.readline().decode())
        url = re.search(r"service=metrics url=http://(\S+)", (folder / "broker.log").read_text())
        assert ready is not None
        assert url is not None
        self.bootstrap, self.target = ready[0], url[1]
        scrape = {"job_name": "barnabas", "static_configs": [{"targets": [self.target]}]}
        config = {
            "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [scrape],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.url = f"http://127.0.0.1:{free_port()}"
        with (folder / "prometheus.log").open("wb") as log:
            self.prometheus = subprocess.Popen(
                [
                    "prometheus", f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'tsdb'}", f"--web.listen-address={self.url.removeprefix('http://')}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        self._load = threading.Thread(target=self._work)
        self._load.start()

    def _work(self) -> None:
        """A producer and a consumer, until the end."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TOPIC])
        while not self._ends.is_set():
            for _ in range(20):
                producer.produce(TOPIC, b"x" * 100)
            producer.poll(0)
            consumer.poll(0.02)
        producer.flush(WAIT_S)
        consumer.close()

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of Prometheus's API."""
        answer = requests.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=WAIT_S).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, text: str) -> list[dict[str, Any]]:
        """What a query finds now."""
        samples: list[dict[str, Any]] = self.ask("query", query=text)["result"]
        return samples

    def wait_for(self, text: str) -> list[dict[str, Any]]:
        """What a query finds, once it finds something."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                samples = self.query(text)
            except (requests.ConnectionError, AssertionError, ValueError):
                samples = []
            if samples:
                return samples
            assert time.monotonic() < deadline, (text, (self._folder / "prometheus.log").read_text()[-2000:])
            time.sleep(0.2)

    def end(self) -> None:
        self._ends.set()
        self._load.join()
        for process in (self.prometheus, self.broker):
            process.terminate()
            process.wait(WAIT_S)
        assert self.broker.stdout is not None
        self.broker.stdout.close()


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Witness]:
    started = Witness(tmp_path_factory.mktemp("prometheus"))
    try:
        started.wait_for(f'rate(kafka_server_brokertopicmetrics_bytesout_total{{topic="{TOPIC}"}}[30s]) > 0')
        yield started
    finally:
        started.end()


@needs_prometheus
def test_the_scrapes_succeed_under_load(witness: Witness) -> None:
    assert witness.query("up")[0]["value"][1] == "1"
    assert witness.wait_for("sum_over_time(up[1m]) >= 3")
    assert witness.query("scrape_samples_scraped > 200")


@needs_prometheus
@pytest.mark.parametrize("query", PUBLISHED)
def test_queries_of_published_dashboards_find_their_series(witness: Witness, query: str) -> None:
    assert witness.wait_for(query)


def dashboard_queries() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@needs_prometheus
@pytest.mark.parametrize("query", dashboard_queries())
def test_queries_of_our_dashboard_find_their_series(witness: Witness, query: str) -> None:
    assert witness.wait_for(query.replace("$__rate_interval", "30s"))


@needs_prometheus
def test_the_alert_rules_are_evaluated_and_none_fires(witness: Witness) -> None:
    rules = [rule for group in witness.ask("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(yaml.safe_load(RULES.read_text())["groups"][0]["rules"])
    assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
    for rule in rules:
        series = set(re.findall(r"\bkafka_\w+", rule["query"]))
        assert all(witness.query(name) for name in series), rule["name"]


@needs_prometheus
def test_what_prometheus_sums_is_what_was_written(witness: Witness) -> None:
    of_topics = 'sum(kafka_server_brokertopicmetrics_bytesin_total{topic!=""})'
    of_broker = 'sum(kafka_server_brokertopicmetrics_bytesin_total{topic=""})'
    assert witness.query(f"{of_topics} == {of_broker}")
