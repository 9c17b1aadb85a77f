"""`barnabas start --workers 2`: two brokers on one machine without ZooKeeper; the first keeps the metadata."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from barnabas.local.process_list import processes
from tests.support.admin import create_topic
from tests.support.cluster import until
from tests.support.process import free_ports

PATIENCE_S = 120


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def first(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "start",
        "--data",
        str(folder),
        "--listen",
        f"127.0.0.1:{port}",
    ]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--workers", "2"], stdout=subprocess.PIPE, stderr=log, text=True
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("ready"), (folder / "log").read_text()
            yield process
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
            process.stdout.close()


def worker_pid(folder: Path) -> int | None:
    """The process of worker 2."""
    pids = [
        pid for pid, words in processes() if "--worker" in words and f"log.dirs={folder}/worker2" in words
    ]
    return pids[0] if pids else None


def test_each_leads_and_a_killed_one_comes_back(
    first: subprocess.Popen[str], folder: Path, port: int
) -> None:
    bootstrap = f"127.0.0.1:{port}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create_topic(bootstrap, "shared", partitions=4)
    topic = admin.list_topics("shared", timeout=PATIENCE_S).topics["shared"]
    assert sorted(part.leader for part in topic.partitions.values()) == [1, 1, 2, 2]
    assert all(len(part.replicas) == 1 for part in topic.partitions.values())
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(400):
        producer.produce("shared", str(number), partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0
    victim = worker_pid(folder)
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    mine = [number for number, part in topic.partitions.items() if part.leader == 1]
    for number in range(400, 500):  # the first goes on with what it leads
        producer.produce("shared", str(number), partition=mine[number % 2])
    assert producer.flush(PATIENCE_S) == 0
    for number in range(500, 600):
        producer.produce("shared", str(number), partition=number % 4)
    assert producer.flush(PATIENCE_S) == 0
    assert worker_pid(folder) not in (None, victim)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["shared"])
    read: list[int] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(read) < 600:
        assert time.monotonic() < deadline, f"{len(read)} of 600"
        messages = consumer.consume(500, timeout=0.2)
        read += [int(message.value()) for message in messages if message.error() is None]
    consumer.close()
    assert sorted(read) == list(range(600))


def test_workers_end_with_the_first(folder: Path, tmp_path: Path) -> None:
    """Killed, it can stop nobody: the others see it and stop by themselves."""
    port = free_ports(2)
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "start",
        "--data",
        str(tmp_path),
        "--listen",
        f"127.0.0.1:{port}",
    ]
    process = subprocess.Popen(
        [*command, "--workers", "2"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    assert worker_pid(tmp_path) is not None
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: worker_pid(tmp_path) is None, "worker 2 has ended")


def test_bad_numbers_are_refused(tmp_path: Path) -> None:
    for number in ("0", "65", "x"):
        command = [sys.executable, "-m", "barnabas", "start", "--data", str(tmp_path), "--workers", number]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1


def test_a_stop_ends_all(first: subprocess.Popen[str], folder: Path) -> None:
    """Last in this file."""
    first.terminate()
    assert first.wait(PATIENCE_S) == 0
    assert worker_pid(folder) is None
