"""`barnabas start --with metrics`: what Prometheus reads is what clients have done."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

import requests
from tests.support import preloaded

WAIT_S = 120
RECORDS = 37
PARTITIONS = 3
CONNECTIONS = 5
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
Values = dict[tuple[str, tuple[str, ...]], float]


class Watched:
    """A broker with its metrics."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        command = [sys.executable, "-m", "barnabas", "start", "--listen", "127.0.0.1:0"]
        command += ["--data", str(folder / "data"), "--with", "metrics", "--metrics-listen", "127.0.0.1:0"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().decode()
        assert ready.startswith("ready"), self.log.read_text()
        match = re.search(r"127\.0\.0\.1:\d+", ready)
        assert match is not None
        self.bootstrap = match[0]
        url = re.search(r"service started service=metrics url=(\S+)", self.log.read_text())
        assert url is not None
        self.url = f"{url[1]}/metrics"

    def values(self) -> Values:
        """All values, by name and the values of the labels, in the order of their names."""
        answer = requests.get(self.url, timeout=WAIT_S)
        assert answer.status_code == 200, answer.text
        return {
            (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    def end(self) -> int:
        self.process.terminate()
        code = self.process.wait(WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    watched_process = Watched(tmp_path_factory.mktemp("metrics"))
    yield watched_process
    assert watched_process.end() == 0
    assert "Traceback" not in watched_process.log.read_text()


def produce(watched: Watched, topic: str) -> None:
    """Records of a client that other people wrote, the same number to each partition."""
    admin = AdminClient({"bootstrap.servers": watched.bootstrap})
    for done in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        done.result(WAIT_S)
    producer = Producer({"bootstrap.servers": watched.bootstrap})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(WAIT_S) == 0


def produce_one_by_one(watched: Watched, topic: str) -> None:
    """A request for each record, to the first partition."""
    producer = Producer({"bootstrap.servers": watched.bootstrap, "linger.ms": 0})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=0)
        assert producer.flush(WAIT_S) == 0


def test_logs_partitions_and_the_controller_are_as_clients_left_them(watched: Watched) -> None:
    produce(watched, "orders")
    values = watched.values()
    for partition in range(PARTITIONS):
        labels = (str(partition), "orders")
        assert values["kafka_log_log_logendoffset", labels] == RECORDS
        assert values["kafka_log_log_logstartoffset", labels] == 0
        assert values["kafka_log_log_size", labels] > RECORDS
    assert values["kafka_server_brokertopicmetrics_messagesin_total", ("orders",)] == RECORDS * PARTITIONS
    assert values["kafka_server_brokertopicmetrics_messagesin_total", ("",)] >= RECORDS * PARTITIONS
    replicas = values["kafka_server_replicamanager_partitioncount", ()]
    assert replicas == values["kafka_server_replicamanager_leadercount", ()] >= PARTITIONS
    assert replicas == values["kafka_controller_kafkacontroller_globalpartitioncount", ()]
    assert values["kafka_controller_kafkacontroller_activecontrollercount", ()] == 1
    for name in ("underreplicatedpartitions", "underminisrpartitioncount", "offlinereplicacount"):
        assert values[f"kafka_server_replicamanager_{name}", ()] == 0
    assert values["kafka_controller_kafkacontroller_offlinepartitionscount", ()] == 0
    assert values["kafka_controller_controllerstats_uncleanleaderelections_total", ()] == 0
    assert values["kafka_server_sessionexpirelistener_zookeepersyncconnects_total", ()] == 1


def test_messages_are_counted_since_the_start_whatever_way_they_take(tmp_path: Path) -> None:
    """Records of many requests, most of which take the fast paths, before and after a restart."""
    name = ("kafka_server_brokertopicmetrics_messagesin_total", ("orders",))
    watched = Watched(tmp_path)
    produce(watched, "orders")
    produce_one_by_one(watched, "orders")
    assert watched.values()[name] == RECORDS * PARTITIONS + RECORDS
    assert watched.end() == 0
    watched = Watched(tmp_path)
    assert watched.values()[name] == 0
    produce_one_by_one(watched, "orders")
    values = watched.values()
    assert values[name] == RECORDS
    assert values["kafka_log_log_logendoffset", ("0", "orders")] == 3 * RECORDS
    assert watched.end() == 0


def test_open_connections_are_counted(watched: Watched) -> None:
    host, port = watched.bootstrap.rsplit(":", 1)
    name = ("kafka_server_socket_server_metrics_connection_count", ("PLAINTEXT",))
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            opened.enter_context(socket.create_connection((host, int(port)), WAIT_S))
        deadline = time.monotonic() + WAIT_S
        while watched.values()[name] < CONNECTIONS:  # they are accepted a moment later
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_the_process_is_seen(watched: Watched) -> None:
    values = watched.values()
    assert values["process_resident_memory_bytes", ()] > 10_000_000
    assert values["process_cpu_seconds_total", ()] > 0


def test_openmetrics_for_a_scraper_that_asks_for_it(watched: Watched) -> None:
    answer = requests.get(watched.url, headers={"Accept": OPENMETRICS}, timeout=WAIT_S)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in openmetrics_families(answer.text)}
    assert "kafka_server_replicamanager_partitioncount" in names


def test_a_hundred_scrapes_at_once_and_one_that_does_not_read(watched: Watched) -> None:
    host, port = watched.url.removeprefix("http://").removesuffix("/metrics").rsplit(":", 1)
    with socket.create_connection((host, int(port)), WAIT_S) as idle:
        idle.sendall(b"GET /metrics HTTP/1.1\r\nHost: " + host.encode() + b"\r\n\r\n")
        with ThreadPoolExecutor(20) as pool:
            codes = list(
                pool.map(lambda _: requests.get(watched.url, timeout=WAIT_S).status_code, range(100))
            )
        produce(watched, "meanwhile")
    assert codes == [200] * 100


def test_a_web_page_of_another_origin_reads_nothing(watched: Watched) -> None:
    answer = requests.get(watched.url, headers={"Host": "evil.example.com"}, timeout=WAIT_S)
    assert answer.status_code in (400, 403, 421)
    assert "kafka_" not in answer.text


def read_all(watched: Watched, topic: str, records: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": watched.bootstrap,
            "group.id": f"readers of {topic}",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        for _ in range(records):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
    finally:
        consumer.close()


def test_requests_are_counted_and_measured_on_all_paths(watched: Watched) -> None:
    """What a real producer and a real consumer do: the numbers of the fast paths and of the general one together."""
    topic = "measured"
    before = watched.values()
    produce(watched, topic)
    produce_one_by_one(watched, topic)
    read_all(watched, topic, RECORDS * PARTITIONS + RECORDS)
    values = watched.values()

    def grown(name: str, *labels: str) -> float:
        return values[name, labels] - before.get((name, labels), 0)

    produced = sum(
        grown(name, *labels)
        for name, labels in values
        if name == "kafka_network_requestmetrics_requests_total" and labels[0] == "Produce"
    )
    assert produced >= RECORDS + 1
    topics = "kafka_server_brokertopicmetrics"
    assert grown(f"{topics}_totalproducerequests_total", topic) >= RECORDS + PARTITIONS
    written, read = grown(f"{topics}_bytesin_total", topic), grown(f"{topics}_bytesout_total", topic)
    sizes = sum(values["kafka_log_log_size", (str(number), topic)] for number in range(PARTITIONS))
    assert written == sizes
    assert read >= sizes
    assert grown(f"{topics}_totalfetchrequests_total", topic) >= 1
    for request in ("Produce", "FetchConsumer", "Fetch", "Metadata", "JoinGroup"):
        assert values["kafka_network_requestmetrics_totaltimems_count", (request,)] > 0
        for part in ("totaltimems", "localtimems", "responsesendtimems"):
            percentiles = [
                values[f"kafka_network_requestmetrics_{part}", (q, request)]
                for q in ("0.50", "0.99", "0.999")
            ]
            assert percentiles == sorted(percentiles)
    assert values["kafka_network_requestmetrics_remotetimems_sum", ("JoinGroup",)] > 0
    assert values["kafka_coordinator_group_groupmetadatamanager_numgroups", ()] >= 1
    assert 0 <= values["kafka_network_socketserver_networkprocessoravgidle_percent", ()] <= 1


def test_refused_writes_are_counted(watched: Watched) -> None:
    topic = "small"
    admin = AdminClient({"bootstrap.servers": watched.bootstrap})
    for done in admin.create_topics([NewTopic(topic, 1, 1, config={"max.message.bytes": "100"})]).values():
        done.result(WAIT_S)
    producer = Producer({"bootstrap.servers": watched.bootstrap})
    producer.produce(topic, b"x" * 1000)
    assert producer.flush(WAIT_S) == 0
    values = watched.values()
    assert values["kafka_server_brokertopicmetrics_failedproducerequests_total", (topic,)] >= 1
    assert values["kafka_server_brokertopicmetrics_bytesin_total", (topic,)] == 0


def test_totals_do_not_fall_when_a_topic_is_deleted(watched: Watched) -> None:
    produce(watched, "short-lived")
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    before = watched.values()
    admin = AdminClient({"bootstrap.servers": watched.bootstrap})
    for done in admin.delete_topics(["short-lived"]).values():
        done.result(WAIT_S)
    after = watched.values()
    assert (name, ("short-lived",)) in before
    assert (name, ("short-lived",)) not in after
    assert after[name, ("",)] == before[name, ("",)]


def test_clients_are_seen_by_their_software(watched: Watched) -> None:
    producer = Producer({"bootstrap.servers": watched.bootstrap})
    producer.produce("seen", "x")
    assert producer.flush(WAIT_S) == 0
    labels_of_clients = {
        labels[0]
        for name, labels in watched.values()
        if name == "kafka_server_socket_server_metrics_connections"
    }
    assert any("kafka" in software for software in labels_of_clients), labels_of_clients
    assert producer.list_topics(timeout=WAIT_S).topics


def tool(*arguments: str) -> str:
    """What a command prints."""
    done = preloaded.run(
        [sys.executable, "-m", "barnabas", *arguments], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_metrics_by_the_names_of_kafkas_mbeans(watched: Watched) -> None:
    produce(watched, "by.bean")
    url = watched.url.removesuffix("/metrics")
    pattern = "kafka.server:type=BrokerTopicMetrics,topic=by.bean,name=*PerSec"
    beans = json.loads(tool("metrics", pattern, "-u", url, "--json"))
    name = "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=by.bean"
    assert beans[name]["Count"] == RECORDS * PARTITIONS
    assert beans[name]["OneMinuteRate"] > 0
    assert all("topic=by.bean" in one for one in beans)
    shown = tool("metrics", "messagesinpersec,topic=by.bean", "-u", url)
    assert re.search(rf"{re.escape(name)} +Count +{RECORDS * PARTITIONS}\n", shown)
    times = json.loads(tool("metrics", "kafka.network:name=TotalTimeMs,*", "-u", url, "--json"))
    produced = times["kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce"]
    assert produced["50thPercentile"] <= produced["99thPercentile"] <= produced["999thPercentile"]
    assert produced["Count"] >= 1


def test_kafka_jmx(watched: Watched) -> None:
    produce(watched, "by.jmx")
    address = watched.url.removesuffix("/metrics").removeprefix("http://")
    name = "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=by.jmx"
    ask = ["kafka", "jmx", "--object-name", name, "--attributes", "Count", "--one-time", "true", "--jmx-url"]
    header, values = tool(*ask, address).splitlines()
    assert header == f'"time","{name}:Count"'
    assert values.split(",")[1] == str(RECORDS * PARTITIONS)
    of_java = f"service:jmx:rmi:///jndi/rmi://{address}/jmxrmi"
    lines = tool(*ask, of_java, "--report-format", "properties", "--date-format", "yyyy-MM-dd").splitlines()
    assert re.fullmatch(r"time=\d{4}-\d\d-\d\d", lines[0])
    assert lines[1:] == [f"{name}:Count={RECORDS * PARTITIONS}"]
    assert (
        tool(*ask, address, "--report-format", "tsv").splitlines()[1]
        == f"{name}:Count\t{RECORDS * PARTITIONS}"
    )


def test_a_command_without_a_metrics_service(watched: Watched) -> None:
    done = preloaded.run(
        [sys.executable, "-m", "barnabas", "metrics", "-u", "http://127.0.0.1:9"],
        capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 1
    assert "no broker shows its metrics at http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr


def test_slow_requests(watched: Watched) -> None:
    answer = requests.get(watched.url.replace("/metrics", "/slow"), timeout=WAIT_S)
    for request in answer.json()["requests"]:  # a busy machine makes some
        assert request["total_ms"] >= 100
        assert request["peer"]


def started(folder: Path, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
    """A broker that is ready, and its log."""
    log = folder / "log"
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "start",
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(folder / "data"),
    ]
    with log.open("wb") as opened:
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=opened)
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b"ready"), log.read_text()
    return process, log


def ended(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    assert process.stdout is not None
    process.stdout.close()
    return process.wait(WAIT_S)


def test_metrics_are_served_without_asking_for_the_service(tmp_path: Path) -> None:
    process, log = started(tmp_path, "--metrics", "127.0.0.1:0")
    try:
        url = re.search(r"metrics are served url=(\S+)", log.read_text())
        assert url is not None
        with ThreadPoolExecutor(5) as pool:  # the first ones find a server that is still being loaded
            answers = list(pool.map(lambda _: requests.get(url[1], timeout=WAIT_S), range(5)))
        assert [answer.status_code for answer in answers] == [200] * 5
        assert "kafka_server_replicamanager_partitioncount" in answers[0].text
    finally:
        assert ended(process) == 0
    assert "Traceback" not in log.read_text()


def test_a_broker_of_which_nobody_asks_anything_stops_at_once(tmp_path: Path) -> None:
    process, log = started(tmp_path, "--metrics", "127.0.0.1:0")
    assert ended(process) == 0
    assert "Traceback" not in log.read_text()


def test_a_port_that_is_taken_stops_no_broker(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process, log = started(tmp_path, "--metrics", address)
        assert ended(process) == 0
    line = next(line for line in log.read_text().splitlines() if "metrics are not served" in line)
    assert address in line
    assert "--metrics off" in line


def test_no_metrics_when_they_are_switched_off_or_misspelt(tmp_path: Path) -> None:
    process, log = started(tmp_path, "--metrics", "off")
    assert ended(process) == 0
    assert "metrics" not in log.read_text()
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "start", "--metrics", "9644"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 2
    assert "--metrics '9644' is not HOST:PORT or off" in done.stderr


def test_what_clients_push_about_themselves_is_exported(watched: Watched) -> None:
    tool("config", "set", "metrics", "all", "metrics=*", "interval.ms=1000", "-b", watched.bootstrap)
    producer = Producer({"bootstrap.servers": watched.bootstrap, "client.id": 'a "quoted" one'})
    deadline = time.monotonic() + WAIT_S
    while True:
        producer.produce("pushed", "x")
        assert producer.flush(WAIT_S) == 0
        text = requests.get(watched.url, timeout=WAIT_S).text
        pushed = [line for line in text.splitlines() if line.startswith("kafka_client_producer_")]
        if pushed:
            break
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert any('client_id="a \\"quoted\\" one"' in line for line in pushed)
    assert list(text_string_to_metric_families(text))
    shown = json.loads(
        tool("metrics", "kafka.producer:*", "-u", watched.url.removesuffix("/metrics"), "--json")
    )
    assert any("client-id=" in name for name in shown)
