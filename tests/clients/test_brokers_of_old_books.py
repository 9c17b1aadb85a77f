"""Brokers as old books configure them: `port=` and `host.name=` instead of listeners, three of them on one ZooKeeper; and a
broker that lacks zookeeper.connect says that it is alone.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import until
from tests.support.examples import one_in
from tests.support.process import free_ports
from tests.support.zookeeper import ZooKeeperServer

ALONE = "this broker is alone"


@pytest.mark.parametrize(
    "host", one_in(2, [{"host.name": "localhost"}, {}]), ids=["with host.name", "without"]
)
def test_three_brokers_with_ports(
    zookeeper_server: ZooKeeperServer, tmp_path: Path, host: dict[str, str]
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    root = f"{zookeeper_server.address}/old-{uuid.uuid4().hex[:8]}"
    first = free_ports(3)
    brokers: list[subprocess.Popen[str]] = []
    try:
        for number in range(3):
            file = tmp_path / f"server-{number}.properties"
            lines = {
                "broker.id": number,
                "port": first + number,
                **host,
                "log.dirs": tmp_path / f"kafka-logs-{number}",
                "zookeeper.connect": root,
            }
            file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
            command = [sys.executable, "-m", "barnabas", "kafka", "server-start", str(file)]
            with (tmp_path / f"{number}.log").open("w") as log:
                brokers.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True))
            ready_line = brokers[-1].stdout
            assert ready_line is not None
            assert ready_line.readline().startswith("ready")
        admin = AdminClient({"bootstrap.servers": f"localhost:{first + 2}"})
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(60)
        metadata = until(lambda: admin.list_topics("t", timeout=10), "an answer")
        assert sorted(metadata.topics["t"].partitions[0].isrs) == [0, 1, 2]
        assert sorted(node.port for node in metadata.brokers.values()) == [first, first + 1, first + 2]
        assert not any(ALONE in log.read_text() for log in tmp_path.glob("*.log"))
    finally:
        for broker in brokers:
            broker.terminate()
        for broker in brokers:
            broker.wait(120)


@pytest.mark.parametrize(
    ("options", "is_alone"),
    [
        ({"broker.id": "2"}, True),
        ({"broker.id": "1"}, True),
        ({"node.id": "3"}, True),
        ({"node.id": "1", "controller.quorum.voters": "1@a:1,2@b:1"}, True),
        ({"broker.id": "0"}, False),
        ({"node.id": "1", "controller.quorum.voters": "1@a:1"}, False),
        ({}, False),
    ],
)
def test_a_broker_alone_says_so(
    own_broker: Callable[..., Any], options: dict[str, str], is_alone: bool
) -> None:
    broker = own_broker(**{name.replace(".", "__"): value for name, value in options.items()})
    lines = [line for line in broker.log().splitlines() if ALONE in line]
    assert len(lines) == is_alone
    assert all("zookeeper.connect" in line for line in lines)
