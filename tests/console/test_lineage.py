"""Where a topic's records come from and go to, as the services tell it: connectors, groups, links."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import requests
from barnabas.testing import Broker
from tests.console.conftest import WAIT_S, ConsoleProcess, running

FILES = "org.apache.kafka.connect.file.FileStream"
TEXT = "org.apache.kafka.connect.storage.StringConverter"


def await_flow(console: ConsoleProcess, path: str, name: str) -> dict[str, Any]:
    """The flow of this name, once the page has it with topics on both sides of what it has."""
    limit_s = time.monotonic() + WAIT_S
    while True:
        found = next((flow for flow in console.data(path)["flows"] if flow["name"] == name), None)
        if found is not None and found["reads"]:
            return dict(found)
        assert time.monotonic() < limit_s, console.data(path)
        time.sleep(0.2)


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("lineage")
    with Broker() as source, Broker() as broker:
        command = [
            sys.executable,
            "-m",
            "barnabas",
            "connect",
            "start",
            "-b",
            broker.bootstrap,
            "--listen",
            "127.0.0.1:0",
        ]
        with (folder / "worker").open("wb") as log:
            worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        try:
            assert worker.stdout is not None
            ready = worker.stdout.readline().decode()
            assert ready.startswith("ready on "), (folder / "worker").read_text()
            connect = ready.split()[2]
            _fill(source, broker, connect, folder)
            with running(broker.bootstrap, folder / "log", "--connect", connect) as console:
                yield console
        finally:
            worker.terminate()
            worker.wait(WAIT_S)


def _fill(source: Broker, broker: Broker, connect: str, folder: Path) -> None:
    """A file → lines → a file, lines → group `readers`, orders of another cluster → orders → group `shop`."""
    (folder / "in.txt").write_text("one\ntwo\n")
    common = {"tasks.max": "1", "key.converter": TEXT, "value.converter": TEXT}
    for name, more in (
        ("reads", {"connector.class": f"{FILES}SourceConnector", "file": str(folder / "in.txt"), "topic": "lines"}),
        ("writes", {"connector.class": f"{FILES}SinkConnector", "file": str(folder / "out.txt"), "topics": "lines"}),
    ):  # fmt: skip
        answer = requests.post(
            f"{connect}/connectors", json={"name": name, "config": {**common, **more}}, timeout=WAIT_S
        )
        assert answer.status_code == 201, answer.text
    producer = Producer({"bootstrap.servers": source.bootstrap})
    producer.produce("orders", b"1")
    producer.flush()
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "mirror",
        "link",
        "create",
        "east",
        "--from",
        source.bootstrap,
    ]
    subprocess.run([*command, "-b", broker.bootstrap, "--topics", "orders"], check=True, timeout=WAIT_S)
    for topic, group in (("lines", "readers"), ("orders", "shop")):
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        limit_s = time.monotonic() + WAIT_S
        while (message := consumer.poll(1)) is None or message.error():
            assert time.monotonic() < limit_s
        consumer.commit(message, asynchronous=False)
        consumer.close()


def test_a_topic_shows_what_writes_it_and_what_reads_it(beside: ConsoleProcess) -> None:
    reads = await_flow(beside, "/topics/lines/lineage", "reads")
    assert (reads["kind"], reads["writes"]) == ("connector", [{"kind": "topic", "name": "lines"}])
    writes = await_flow(beside, "/topics/lines/lineage", "writes")
    assert writes["reads"] == [{"kind": "topic", "name": "lines"}]
    assert writes["writes"] == [{"kind": "FileStreamSink", "name": ""}]
    found = beside.data("/topics/lines/lineage")
    assert {flow["name"] for flow in found["flows"]} == {"reads", "writes", "readers"}
    columns = {box["whole"]: box["x"] for box in found["picture"]["boxes"]}
    assert columns["lines"] < columns["readers"]


def test_a_copy_of_another_cluster_shows_its_source_and_its_readers(beside: ConsoleProcess) -> None:
    link = await_flow(beside, "/topics/orders/lineage", "east")
    assert link["kind"] == "link"
    assert link["reads"][0]["kind"] == "cluster"
    assert {flow["name"] for flow in beside.data("/topics/orders/lineage")["flows"]} == {"east", "shop"}


def test_the_whole_cluster_is_one_picture_with_ways_to_each_topic(beside: ConsoleProcess) -> None:
    found = beside.data("/lineage")
    assert {flow["name"] for flow in found["flows"]} >= {"reads", "writes", "readers", "east", "shop"}
    page = beside.page("/lineage")
    assert 'href="/clusters/local/topics/lines/lineage"' in page
    assert 'href="/clusters/local/connectors/writes"' in page
    assert beside.page("/topics/nowhere/lineage", 404)


def test_a_service_that_is_away_is_named_and_the_rest_is_shown(
    beside: ConsoleProcess, tmp_path: Path
) -> None:
    with running(beside.bootstrap, tmp_path / "log", "--connect", "http://127.0.0.1:9") as console:
        found = console.data("/lineage")
    assert {flow["name"] for flow in found["flows"]} >= {"readers", "shop"}
    [reason] = found["unknown"]
    assert "The Connect worker does not answer" in str(reason)
