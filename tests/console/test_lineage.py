"""Where a topic's records come from and go to, as the services tell it: connectors, groups, links."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer

from barnabas.testing import Broker
from tests.console.conftest import WAIT_S, ConsoleProcess, running
from tests.support.cluster import until
from tests.support.connect_worker import Worker, worker_options

FILES = "org.apache.kafka.connect.file.FileStream"
TEXT = "org.apache.kafka.connect.storage.StringConverter"


def await_flow(console: ConsoleProcess, path: str, name: str) -> dict[str, Any]:
    """The flow of this name, once the page has it with what it reads."""

    def look() -> dict[str, Any] | None:
        flows = (flow for flow in console.data(path)["flows"] if flow["name"] == name and flow["reads"])
        return next(flows, None)

    flow = until(look, f"{path} shows {name}", WAIT_S)
    assert flow is not None
    return flow


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("lineage")
    with Broker() as source, Broker() as broker:
        worker = Worker(worker_options(broker.bootstrap, "lineage"))
        try:
            _fill(source, broker, worker, folder)
            with running(broker.bootstrap, folder / "log", "--connect", worker.url) as console:
                yield console
        finally:
            worker.stop()


def _fill(source: Broker, broker: Broker, worker: Worker, folder: Path) -> None:
    """A file → lines → a file, lines → group `readers`, orders of another cluster → orders → group `shop`."""
    (folder / "in.txt").write_text("one\ntwo\n")
    common = {"tasks_max": "1", "key_converter": TEXT, "value_converter": TEXT}
    ends = {"reads": ("Source", "in.txt", "topic"), "writes": ("Sink", "out.txt", "topics")}
    for name, (kind, file, topic) in ends.items():
        more = {"connector_class": f"{FILES}{kind}Connector", "file": str(folder / file), topic: "lines"}
        worker.create(name, **common, **more)
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
        message = until(lambda reader=consumer: read(reader), f"a record of {topic}", WAIT_S)
        assert message is not None
        consumer.commit(message, asynchronous=False)
        consumer.close()


def read(consumer: Consumer) -> Message | None:
    message = consumer.poll(1)
    return None if message is None or message.error() else message


def test_a_topic_shows_what_writes_it_and_what_reads_it(beside: ConsoleProcess) -> None:
    reads = await_flow(beside, "/topics/lines/lineage", "reads")
    assert (reads["kind"], reads["writes"]) == ("connector", [{"kind": "topic", "name": "lines"}])
    writes = await_flow(beside, "/topics/lines/lineage", "writes")
    assert writes["reads"] == [{"kind": "topic", "name": "lines"}]
    assert writes["writes"] == [{"kind": "FileStreamSink", "name": ""}]
    page = beside.data("/topics/lines/lineage")
    assert {flow["name"] for flow in page["flows"]} == {"reads", "writes", "readers"}
    columns = {box["whole"]: box["x"] for box in page["picture"]["boxes"]}
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
