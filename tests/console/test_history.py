"""Graphs of the past: those of a monitor, and of the console itself where there is none."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.console.history import POINTS_MAX, thinned
from tests.console.conftest import WAIT_S, ConsoleProcess, running


def test_many_points_become_means() -> None:
    points = [(float(second), float(second % 2)) for second in range(10 * POINTS_MAX)]
    means = thinned(points)
    assert len(means) == POINTS_MAX
    assert {value for _, value in means} == {0.5}
    assert means[-1][0] == points[-1][0]
    assert thinned(points[:5]) == points[:5]


@pytest.fixture(scope="module")
def watched(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    folder = tmp_path_factory.mktemp("history")
    command = [sys.executable, "-m", "barnabas", "monitor", "-b", bootstrap, "--listen", "127.0.0.1:0"]
    command += ["--data", str(folder / "kept"), "--interval-s", "0.5", "--name", "called-otherwise"]
    with (folder / "monitor").open("wb") as log:
        monitor = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        assert monitor.stdout is not None
        ready = monitor.stdout.readline().decode()
        assert ready.startswith("ready on "), (folder / "monitor").read_text()
        with running(bootstrap, folder / "log", "--monitor", ready.split()[2]) as console:
            yield console
            monitor.terminate()
            monitor.wait(WAIT_S)
            page = console.page("/topics")
            assert "Topics" in page
            assert "The monitor does not answer" in console.page()  # the rest of the page is there
    finally:
        monitor.kill()
        monitor.wait(WAIT_S)


def test_throughput_disk_and_lag_of_a_monitor_are_drawn(watched: ConsoleProcess) -> None:
    topic, group = f"past-{uuid.uuid4().hex[:8]}", f"past-{uuid.uuid4().hex[:8]}"
    watched.post("/topics", {"name": topic, "partitions": 1})
    consumer = Consumer({"bootstrap.servers": watched.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    producer = Producer({"bootstrap.servers": watched.bootstrap})
    limit_s = time.monotonic() + WAIT_S
    seen: list[dict] = []

    def is_lag_known() -> bool:
        return any(graph["unit"] == "records" and graph["lines"][0]["points"][-1][1] > 0 for graph in seen)

    while not (is_lag_known() and {graph["unit"] for graph in seen} >= {"records/s", "bytes", "seconds"}):
        assert time.monotonic() < limit_s, seen
        producer.produce(topic, b"x" * 100)
        producer.flush()
        time.sleep(0.5)
        seen = [
            graph
            for path in (f"/groups/{group}", f"/topics/{topic}")
            for graph in watched.data(path, since="1h")["history"]["graphs"]
        ]
    history = watched.data(since="1h")["history"]
    assert {graph["unit"] for graph in history["graphs"]} >= {"records", "bytes"}
    assert history["failure"] is None
    page = watched.page(f"/groups/{group}", since="1h")
    assert "Lag, in records" in page
    assert 'aria-current="true">1h' in page
