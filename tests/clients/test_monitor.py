"""`barnabas monitor` beside a broker: Burrow's API, as its readers ask it, about groups of real clients."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.clients.cli_support import Cli
from tests.support.admin import KEPT, create_topic

WAIT_S = 120


@pytest.fixture(scope="module")
def monitor(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A monitor that looks twice a second; its address."""
    process = Cli(bootstrap).start(
        "monitor", "--name", "blue", "--also", "away=127.0.0.1:1", "--listen", "127.0.0.1:0", "--interval-s", "0.5",
        "--data", str(tmp_path_factory.mktemp("history")),
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
    while not (outcome := condition()):
        assert time.monotonic() < give_up
        time.sleep(0.1)
    return outcome


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
    none = f"none-{uuid4().hex[:8]}"  # others use this broker, too
    for path in (
        "/red",
        f"/blue/topic/{none}",
        "/red/consumer",
        f"/blue/consumer/{none}",
        f"/away/topic/{none}",
    ):
        assert ask(kafka + path)["error"] is True, path
    status = ask(f"{kafka}/blue/consumer/{none}/status")
    assert (status["error"], status["status"]["status"]) == (False, "NOTFOUND")
    assert ask(f"{kafka}/away/consumer")["consumers"] == []
    with urllib.request.urlopen(f"{monitor}/burrow/admin", timeout=WAIT_S) as answer:
        assert answer.read() == b"GOOD"
    until(lambda: ask(f"{monitor}/health")["clusters"]["blue"] == "ok")  # after the first look
    assert ask(f"{monitor}/health")["history"] == "ok"


def test_the_history_is_read_in_every_format(bootstrap: str, monitor: str, tmp_path: Path) -> None:
    pytest.importorskip("plotext")
    pytest.importorskip("matplotlib")
    cli = Cli(bootstrap)
    until(lambda: ask(f"{monitor}/v1/series?name=cluster_brokers&cluster=blue")["series"])
    rows = cli.json("metrics", "history", "--monitor", monitor, "--label", "cluster=blue")
    assert {"cluster_brokers", "cluster_partitions", "disk_used_bytes"} <= {row["name"] for row in rows}
    where = ("metrics", "history", "cluster_brokers", "--monitor", monitor, "--label", "cluster=blue")
    (series,) = cli.json(*where)["series"]
    assert series["labels"] == {"cluster": "blue"}
    assert all(mean >= 1 and time.time() - at_s < 3600 for at_s, mean, _ in series["points"])
    plot = cli.out(*where).decode()
    assert "cluster_brokers, brokers" in plot
    assert "┤" in plot
    assert cli.out(*where, "--output", "csv").decode().splitlines()[0] == "time,name,cluster,mean,max"
    assert "from 1 to 1" in cli.out(*where, "--output", "table").decode().replace(",", "")
    picture = tmp_path / "brokers.png"
    cli(*where, "--output", "png", "--file", str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    for bad, word in (
        (("--since", "yesterday"), "duration"),
        (("--label", "x"), "NAME=VALUE"),
    ):
        assert word in cli(*where, *bad, code=2 if "x" in bad else 1).stderr.decode()
    assert (
        "nothing is kept" in cli("metrics", "history", "none", "--monitor", monitor, code=1).stderr.decode()
    )
    assert (
        "no monitor answers"
        in cli("metrics", "history", "--monitor", "http://127.0.0.1:1", code=1).stderr.decode()
    )
