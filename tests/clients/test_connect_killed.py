"""kill -9 of Connect workers: each record is written once."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import requests
from tests.support.cluster import until
from tests.support.connect_worker import Worker, values, worker_options


@pytest.fixture
def name() -> str:
    return f"c-{uuid.uuid4().hex[:8]}"


@pytest.mark.soak
def test_no_record_is_lost_or_doubled_when_the_worker_is_killed(
    bootstrap: str, name: str, tmp_path: Path
) -> None:
    """kill -9 while lines are being read, again and again; each line is in the topic once."""
    source, count = tmp_path / "in.txt", 60_000
    source.write_text("".join(f"{number}\n" for number in range(count)))
    properties = tmp_path / "worker.properties"
    options = {
        **worker_options(bootstrap, name).worker_texts,
        "bootstrap.servers": bootstrap,
        "listeners": "http://127.0.0.1:0",
    }
    properties.write_text("".join(f"{key}={value}\n" for key, value in options.items()))
    connector = tmp_path / "lines.properties"
    connector.write_text(
        f"name={name}\nconnector.class=FileStreamSource\nfile={source}\ntopic={name}\nbatch.size=500\n"
        "value.converter=org.apache.kafka.connect.storage.StringConverter\n"
    )
    command = [
        sys.executable,
        "-c",
        "import sys; from barnabas.kafka_tools.servers.connect_worker import standalone; ",
    ]
    command[-1] += "sys.exit(standalone(sys.argv[1:]))"

    def ends() -> int:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(name, 0), 10)[1])
        finally:
            consumer.close()

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.list_topics(name, 10)
    for before in (1, 20_000, 40_000):
        process = subprocess.Popen([*command, str(properties), str(connector)], stderr=subprocess.DEVNULL)
        until(lambda before=before: ends() > before, "records are written")  # type: ignore[misc]
        process.send_signal(signal.SIGKILL)
        process.wait()
    process = subprocess.Popen([*command, str(properties), str(connector)], stderr=subprocess.DEVNULL)
    try:
        copies = values(bootstrap, name, count)
    finally:
        process.terminate()
        process.wait()
    assert copies == [str(number).encode() for number in range(count)]


@pytest.mark.soak
def test_a_worker_takes_over_what_a_killed_one_ran_and_nothing_is_doubled(
    bootstrap: str, name: str, tmp_path: Path
) -> None:
    source, count = tmp_path / "in.txt", 40_000
    source.write_text("".join(f"{number}\n" for number in range(count)))
    options = worker_options(bootstrap, name, **{"session.timeout.ms": "6000"})
    properties = tmp_path / "worker.properties"
    worker_texts = {**options.worker_texts, "bootstrap.servers": bootstrap, "listeners": "http://127.0.0.1:0"}
    properties.write_text("".join(f"{key}={value}\n" for key, value in worker_texts.items()))
    command = [
        sys.executable,
        "-c",
        "import sys; from barnabas.kafka_tools.servers.connect_worker import distributed; ",
    ]
    command[-1] += "sys.exit(distributed(sys.argv[1:]))"
    process = subprocess.Popen(
        [*command, str(properties)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    killed = process.stdout.readline().split()[2]
    other: Worker | None = None
    try:
        config = {
            "connector.class": "FileStreamSource",
            "file": str(source),
            "topic": name,
            "batch.size": "200",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        }
        answer = requests.post(f"{killed}/connectors", json={"name": name, "config": config}, timeout=60)
        assert answer.status_code == 201, answer.text
        assert values(bootstrap, name, 1)
        other = Worker(options)
        process.send_signal(signal.SIGKILL)
        copies = values(bootstrap, name, count)
        assert copies == [str(number).encode() for number in range(count)]
        mine = other.url.rpartition("/")[2]
        assert [task["worker_id"] for task in other.until(name, "RUNNING")["tasks"]] == [mine]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        if other is not None:
            other.stop()
