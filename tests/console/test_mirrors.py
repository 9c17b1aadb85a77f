"""Links that copy topics of another cluster: created, watched, compared, promoted after a preview, deleted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import requests
from barnabas.admin import Admin
from barnabas.testing import Broker
from tests.console.conftest import WAIT_S, ConsoleProcess, running


@pytest.fixture(scope="module")
def source() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def target(source: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    log = tmp_path_factory.mktemp("mirrors") / "log"
    with Broker() as broker, running(broker.bootstrap, log, "--also", f"there={source.bootstrap}") as console:
        yield console


def await_until(is_so: Callable[[], Any]) -> None:
    limit_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < limit_s
        time.sleep(0.1)


def events(url: str) -> list[dict[str, Any]]:
    """The events of a stream that ends."""
    lines = requests.get(url, timeout=WAIT_S).text.splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def test_a_link_from_its_creation_to_its_end(source: Broker, target: ConsoleProcess, tmp_path: Path) -> None:
    admin = AdminClient({"bootstrap.servers": source.bootstrap})
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(WAIT_S)
    producer = Producer({"bootstrap.servers": source.bootstrap})
    for number in range(100):
        producer.produce("orders", str(number), partition=number % 2)
    producer.flush()
    form = {"name": "east", "source": source.bootstrap, "topics": "ord.*"}
    assert "is not of the form" in target.send("/mirrors/check", {**form, "client": "x"}, 400).text
    assert "topics" in target.send("/mirrors/check", {**form, "topics": "("}, 400).text
    assert "The link can be created" in target.send("/mirrors/check", form, 200).text
    assert target.data("/mirrors")["links"] == []
    target.send("/mirrors", form)

    def copied() -> bool:
        rows = target.data("/mirrors/east")["partitions"]
        return [row["end"] for row in rows] == [50, 50] and {row["state"] for row in rows} == {"in sync"}

    await_until(copied)
    [topic] = target.data("/mirrors/east")["topics"]
    assert (topic["topic"], topic["lag"], topic["partitions"]) == ("orders", 0, 2)
    assert source.bootstrap in target.page("/mirrors")
    progress = events(f"{target.api}/mirrors/east/verify")
    assert [one["event"] for one in progress] == ["progress", "found", "found", "done"]
    assert progress[-1]["said"] == "100 records in 2 ranges: both sides are the same."

    preview = target.post("/mirrors/east/preview", {"move": "failover"})
    assert [(row["end"], row["not_copied"]) for row in preview["tails"]] == [(50, 0), (50, 0)]
    assert preview["commands"][0].startswith("barnabas mirror link failover east --preview")
    assert target.data("/mirrors/east")["summary"]["state"] == "mirroring"
    assert "Fail over now" in target.send("/mirrors/east/preview", {"move": "failover"}, 200).text
    target.send("/mirrors/east/act", {"action": "pause"})
    assert target.data("/mirrors/east")["summary"]["state"] == "paused"
    target.send("/mirrors/east/act", {"action": "resume"})
    assert "promote" in target.send("/mirrors/east/act", {"action": "delete", "confirm": "east"}, 409).text
    target.send("/mirrors/east/promote", {"move": "failover"})
    assert target.data("/mirrors/east")["summary"]["state"] == "promoted"
    assert "Bring the source back" in target.page("/mirrors/east")
    target.post("/topics/orders/produce", {"value": "written here", "partition": 0})
    bring_back(source, target)
    target.page("/mirrors/east", 404)


def bring_back(source: Broker, target: ConsoleProcess) -> None:
    """Fail back, which copies what was written here to the source; then promote, and reverse, by which the link is there."""
    page = target.send("/mirrors/east/return/preview", {"move": "failback"}, 200).text
    assert "0 offsets would be removed at the source, and 1 copied to it" in page
    assert "Do it now" in page
    assert target.data("/mirrors/east")["summary"]["state"] == "promoted"
    target.send("/mirrors/east/return", {"move": "failback"})
    assert target.data("/mirrors/east")["summary"]["state"] == "mirroring"
    with Admin(source.bootstrap) as admin:
        assert admin.links.describe() == []
        assert [place.end for place in admin.records.bounds([("orders", 0)]).require().values()] == [51]
        assert (
            "promote it first" in target.send("/mirrors/east/return/preview", {"move": "reverse"}, 409).text
        )
        target.send("/mirrors/east/promote", {"move": "failover"})
        wrong = target.post("/mirrors/east/return", {"move": "sideways"}, 400)
        assert "failback, reverse" in wrong["message"]
        done = target.post("/mirrors/east/return", {"move": "reverse"})
        assert done["commands"][0].startswith("barnabas mirror link reverse east -b")
        assert target.data("/mirrors")["links"] == []
        assert [link.name for link in admin.links.describe()] == ["east"]
