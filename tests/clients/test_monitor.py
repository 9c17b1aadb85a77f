"""`barnabas monitor` beside a broker: Burrow's API, as its readers ask it, about groups of real clients."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.cli_support import Cli
from tests.support.admin import KEPT, create_topic

WAIT_S = 120


@pytest.fixture(scope="module")
def monitor(bootstrap: str) -> Iterator[str]:
    """A monitor that looks twice a second; its address."""
    process = Cli(bootstrap).start(
        "monitor", "--name", "blue", "--also", "away=127.0.0.1:1", "--listen", "127.0.0.1:0", "--interval-s", "0.5",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("ready on ")
        yield line.split()[2]
    finally:
        process.terminate()
        process.wait(WAIT_S)
        assert process.stdout is not None
        process.stdout.close()


def ask(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def until(condition: Callable[[], Any]) -> Any:
    give_up = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    return found


def test_verdicts_reach_those_that_read_burrow(bootstrap: str, monitor: str) -> None:
    topic = f"burrow-{uuid4().hex[:8]}"
    create_topic(bootstrap, topic, 2, KEPT)
    kafka = f"{monitor}/v3/kafka"
    assert ask(kafka)["clusters"] == ["blue", "away"]
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(100):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(WAIT_S) == 0
    until(lambda: ask(f"{kafka}/blue/topic/{topic}").get("offsets") == [100, 0])

    names = [f"{topic}-{word}" for word in ("stall", "rewind", "done")]
    groups = {name: Consumer({"bootstrap.servers": bootstrap, "group.id": name}) for name in names}
    for step in range(3):
        for name, offset in zip(names, (50, 60 - step, 100), strict=True):
            groups[name].commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    for consumer in groups.values():
        consumer.close()

    def verdict(name: str) -> Any:
        """Once all three commits have been seen."""
        status = ask(f"{kafka}/blue/consumer/{name}/lag")["status"]
        rows = status["partitions"]
        return status if rows and round(rows[0]["complete"], 1) == 0.3 else None

    until(lambda: set(names) <= set(ask(f"{kafka}/blue/consumer")["consumers"]))
    for name, words, lag in zip(
        names, ({"STALL", "STOP"}, {"REWIND", "STOP"}, {"OK"}), (50, 42, 0), strict=True
    ):
        status = until(lambda name=name: verdict(name))
        (row,) = status["partitions"]
        # After longer than the commits took, a group that is behind counts as stopped.
        assert row["status"] in words
        assert status["status"] == ("OK" if name.endswith("done") else "ERR")
        assert (row["topic"], row["partition"], row["current_lag"], status["totallag"]) == (
            topic,
            0,
            lag,
            lag,
        )
        assert status["maxlag"] == row
        assert len(ask(f"{kafka}/blue/consumer/{name}")["topics"][topic][0]["offsets"]) == 10
    assert set(ask(f"{kafka}/blue/topic/{topic}/consumers")["consumers"]) == set(names)


def test_what_does_not_exist_and_a_cluster_that_is_away(monitor: str) -> None:
    kafka = f"{monitor}/v3/kafka"
    for path in ("/red", "/blue/topic/none", "/red/consumer", "/blue/consumer/none", "/away/topic/none"):
        assert ask(kafka + path)["error"] is True
    status = ask(f"{kafka}/blue/consumer/none/status")
    assert (status["error"], status["status"]["status"]) == (False, "NOTFOUND")
    assert ask(f"{kafka}/away/consumer")["consumers"] == []
    with urllib.request.urlopen(f"{monitor}/burrow/admin", timeout=WAIT_S) as answer:
        assert answer.read() == b"GOOD"
    assert ask(f"{monitor}/health")["clusters"]["blue"] == "ok"
