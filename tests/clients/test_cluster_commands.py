"""`barnabas cluster start` and its sisters: three brokers and ZooKeeper over one folder."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.process import free_ports
from tests.support.zookeeper import zookeeper_jars

pytestmark = pytest.mark.skipif(zookeeper_jars() is None, reason="needs java, pyspark and kazoo")
PATIENCE_S = 240


def barnabas(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a cluster")


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports(3)


@pytest.fixture(scope="module")
def cluster(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    zookeeper_port = free_ports(1)
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "cluster",
        "start",
        "--data",
        str(folder),
        "--port",
        str(port),
    ]
    command += ["--racks", "a,b,c", "--zookeeper-port", str(zookeeper_port), "-o", "log.retention.hours=24"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(process.communicate()[1])
        assert line == (
            f"ready: 3 brokers at localhost:{port},localhost:{port + 1},localhost:{port + 2}, "
            f"ZooKeeper at 127.0.0.1:{zookeeper_port}, folder {folder}\n"
        )
        yield process
    finally:
        barnabas("cluster", "stop", "--data", folder)
        process.wait(PATIENCE_S)


def members(folder: Path) -> dict[str, int | None]:
    shown = barnabas("cluster", "status", "--data", folder, "--json").stdout
    return {row["name"]: row["pid"] for row in json.loads(shown)}


def test_all_serve_and_each_has_its_rack(cluster: subprocess.Popen[str], folder: Path, port: int) -> None:
    from confluent_kafka.admin import AdminClient

    metadata = AdminClient({"bootstrap.servers": f"localhost:{port + 2}"}).list_topics(timeout=PATIENCE_S)
    assert {node: broker.port for node, broker in metadata.brokers.items()} == {
        1: port,
        2: port + 1,
        3: port + 2,
    }
    assert "broker.rack=b\n" in (folder / "broker-2" / "server.properties").read_text()
    status = barnabas("cluster", "status", "--data", folder)
    assert status.returncode == 0
    assert [line.split("  ")[0] for line in status.stdout.splitlines()] == [
        "NAME", "zookeeper", "broker 1", "broker 2", "broker 3",
    ]  # fmt: skip


def test_each_broker_tells_the_same_addresses(cluster: subprocess.Popen[str], port: int) -> None:
    """A client takes another name of a broker for a broker that moved: it reconnects, and sends again what was under way."""
    from kafka import KafkaAdminClient

    addresses = []
    for number in range(3):
        client = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port + number}")
        addresses.append(sorted((row["host"], row["port"]) for row in client.describe_cluster()["brokers"]))
        client.close()
    assert addresses == [[("localhost", port), ("localhost", port + 1), ("localhost", port + 2)]] * 3


def test_a_second_start_and_wrong_numbers_are_refused(
    cluster: subprocess.Popen[str], folder: Path, port: int
) -> None:
    for arguments, why in (
        (("start", "--data", folder), f"a cluster runs over {folder}"),
        (("start", "--data", folder / "other", "--port", str(port)), f"port {port} is in use"),
        (("start-broker", "1", "--data", folder), "broker 1 runs already"),
        (("start-broker", "4", "--data", folder), "there is no broker 4: this cluster has brokers 1 to 3"),
        (("kill", "0", "--data", folder), "there is no broker 0"),
        (("stop", "--data", folder / "none"), "is no cluster's folder"),
        (("start", "--data", folder / "x", "--racks", "a,b"), "--racks names 2 racks for 3 brokers"),
        (("start", "--data", folder / "x", "--zookeepers", "2"), "an ensemble has 1, 3 or 5 servers"),
        (("start", "--data", folder / "x", "--port", "65534"), "ports 65534 to 65536 do not all exist"),
        (("start", "--data", folder / "x", "-o", "nonsense"), "is not NAME=VALUE"),
    ):
        refused = barnabas("cluster", *arguments)
        assert refused.returncode == 1, refused
        assert why in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert None not in members(folder).values()


def test_kill_and_start_again(cluster: subprocess.Popen[str], folder: Path) -> None:
    before = members(folder)
    killed = barnabas("cluster", "kill", "2", "--data", folder)
    assert (killed.returncode, killed.stderr) == (0, f"killed broker 2 (process {before['broker 2']})\n")
    assert members(folder) == {**before, "broker 2": None}
    assert barnabas("cluster", "status", "--data", folder).returncode == 1
    assert barnabas("cluster", "kill", "2", "--data", folder).returncode == 1
    started = barnabas("cluster", "start-broker", "2", "--data", folder)
    assert started.returncode == 0, started.stderr
    assert members(folder).keys() == before.keys()
    assert None not in members(folder).values()


def test_sigterm_stops_all_in_order(cluster: subprocess.Popen[str], folder: Path) -> None:
    """Last in this file. Brokers first, since they tell ZooKeeper that they leave."""
    cluster.send_signal(signal.SIGTERM)
    assert cluster.wait(PATIENCE_S) == 0
    assert cluster.stderr is not None
    stopped = [line for line in cluster.stderr.read().splitlines() if line.endswith("stopped")]
    assert stopped == ["broker 1 stopped", "broker 2 stopped", "broker 3 stopped", "zookeeper stopped"]
    assert set(members(folder).values()) == {None}
    assert "no process of the cluster" in barnabas("cluster", "stop", "--data", folder).stderr


def free_low_ports(count: int) -> int:
    """The first of so many free ports in a row, which outgoing connections do not take meanwhile, being so low."""
    for at in range(400):
        first = 20_000 + (os.getpid() + at) % 400 * count
        with contextlib.ExitStack() as sockets:
            try:
                for port in range(first, first + count):
                    sockets.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no ports are free")


def test_a_zookeeper_on_another_address(tmp_path: Path) -> None:
    from barnabas.local.zookeeper import serves

    port = free_low_ports(25)
    command = [sys.executable, "-m", "barnabas", "zookeeper", "start", "--data", str(tmp_path)]
    refused = subprocess.run([*command, "--host", "203.0.113.9"], capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    assert "--host 203.0.113.9: this machine cannot listen there" in refused.stderr
    process = subprocess.Popen(
        [*command, "--host", "127.0.0.2", "--port", str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready: zookeeper.connect=127.0.0.2:{port}\n"
        assert serves(port, "127.0.0.2")
        assert not serves(port, "127.0.0.1")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    assert process.returncode == 0


def test_an_ensemble_that_loses_one(tmp_path: Path) -> None:
    from barnabas.local.zookeeper import serves

    port = free_low_ports(25)  # the servers' own ports are 11 and 21 above those of clients
    command = [sys.executable, "-m", "barnabas", "zookeeper", "start", "--data", str(tmp_path)]
    stderr_file = tmp_path / "stderr"
    with stderr_file.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--servers", "3", "--port", str(port)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    try:
        assert process.stdout is not None
        hosts = ",".join(f"127.0.0.1:{port + at}" for at in range(3))
        assert process.stdout.readline() == f"ready: zookeeper.connect={hosts}\n"
        listed = subprocess.run(
            ["ps", "-ww", "-eo", "pid=,args="], capture_output=True, text=True, check=True
        ).stdout
        (line,) = [line for line in listed.splitlines() if str(tmp_path / "zookeeper-1" / "zoo.cfg") in line]
        os.kill(int(line.split()[0]), signal.SIGKILL)
        until(lambda: not serves(port) and serves(port + 1) and serves(port + 2), "the two others serve")
        until(lambda: "zookeeper 1 has ended" in stderr_file.read_text(), "what has ended is named")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    assert process.returncode == 0
    assert "zookeeper 3 stopped" in stderr_file.read_text()
