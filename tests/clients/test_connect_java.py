"""Apache Kafka's own Connect worker beside ours: the same topics, carried over and back; Java connectors on our brokers."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import requests
from barnabas.connect.worker.settings import WorkerOptions
from tests.clients.foreign import fingerprint, made, maven, need
from tests.support.cluster import until
from tests.support.connect_worker import Worker, values, worker_options
from tests.support.process import free_port

POM = Path(__file__).parent / "java" / "connect" / "pom.xml"
JSON = "org.apache.kafka.connect.json.JsonConverter"


@contextmanager
def kafkas_worker(options: WorkerOptions, bootstrap: str, folder: Path) -> Iterator[str]:
    """Apache Kafka 4.3's worker with the same options; its URL."""
    java = need("java")
    jars = made(
        f"connect-{fingerprint(POM.parent, 'pom.xml')}", lambda place: maven(POM, place, "Kafka's Connect")
    )
    url = f"http://127.0.0.1:{free_port()}"
    options_given = {
        **options.worker_texts,
        "bootstrap.servers": bootstrap,
        "listeners": url,
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "500",
        **{f"{part}.storage.replication.factor": "1" for part in ("config", "offset", "status")},
    }
    properties = folder / "worker.properties"
    properties.write_text("".join(f"{name}={text}\n" for name, text in options_given.items()))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", main, str(properties)]
    with (folder / "java.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def answers() -> bool:
        assert process.poll() is None, (folder / "java.log").read_text()[-2000:]
        try:
            return requests.get(url, timeout=5).status_code == 200
        except requests.RequestException:
            return False

    try:
        until(answers, "Kafka's worker answers", 180)
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.mark.soak
@pytest.mark.java
def test_connectors_are_carried_over_to_kafkas_worker_and_back(bootstrap: str, tmp_path: Path) -> None:
    name = f"c-{uuid.uuid4().hex[:8]}"
    options = worker_options(bootstrap, f"g-{name}", **{"key.converter": JSON, "value.converter": JSON})
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    lines: list[str] = []

    def add(line: str) -> None:
        lines.append(line)
        with source.open("a") as file:
            file.write(f"{line}\n")
        whole = "".join(f"{one}\n" for one in lines)
        until(lambda: sink.exists() and sink.read_text() == whole, f"{line} was copied", 120)

    def ask(path: str) -> Any:
        return requests.get(url + path, timeout=30).json()

    source.touch()
    ours = Worker(options)
    ours.create(name, connector_class="FileStreamSource", file=str(source), topic=name)
    ours.create(f"{name}-sink", connector_class="FileStreamSink", file=str(sink), topics=name)
    add("one")
    until(lambda: ours.ask("GET", f"/connectors/{name}-sink/offsets")["offsets"], "the sink has committed")
    ours.stop()
    with kafkas_worker(options, bootstrap, tmp_path) as url:
        assert sorted(ask("/connectors")) == [name, f"{name}-sink"]
        add("two")
        until(
            lambda: ask(f"/connectors/{name}/offsets")["offsets"][0]["offset"] == {"position": 8},
            "its offset is there",
        )
        wanted = {"connector.class": "FileStreamSource", "name": "x", "tasks.max": "0"}
        place = "/connector-plugins/FileStreamSource/config/validate"
        theirs = requests.put(url + place, json=wanted, timeout=30).json()
        classes = {(row["class"], row["type"]) for row in ask("/connector-plugins?connectorsOnly=false")}
    ours = Worker(options)
    try:
        add("three")
        ours.until(name, "RUNNING")
        assert len(values(bootstrap, name, 3)) == 3
        same = ours.ask("PUT", place, wanted)
        _compare(theirs, same)
        mine = {
            (row["class"], row["type"]) for row in ours.ask("GET", "/connector-plugins?connectorsOnly=false")
        }
        assert classes <= mine
    finally:
        ours.stop()


def _compare(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """The same options with the same definitions and errors; sources have dead letters as well here."""
    assert {key: theirs[key] for key in theirs if key != "configs"} == {
        key: ours[key] for key in ours if key != "configs"
    }
    mine = {row["value"]["name"]: row for row in ours["configs"]}
    for row in theirs["configs"]:
        name = row["value"]["name"]
        if name.endswith(".plugin.version"):
            continue
        assert mine[name]["value"]["errors"] == row["value"]["errors"], name
        for part, value in row["definition"].items():
            differs = part in ("documentation", "order_in_group", "default_value") or part == "display_name"
            assert differs or mine[name]["definition"][part] == value, (name, part)
    assert {name for name in mine if "deadletter" not in name} == {
        row["value"]["name"] for row in theirs["configs"]
    }
