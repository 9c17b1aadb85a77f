"""`barnabas config samples`: the files that books type below config/, each used as its first lines say."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.cli_support import Cli
from tests.support.cluster import until
from tests.support.process import free_port, free_ports
from tests.support.zookeeper import zookeeper_jars

TIMEOUT_S = 120
FILES = [
    "server.properties", "server-1.properties", "server-2.properties", "kraft/server.properties",
    "zookeeper.properties", "producer.properties", "consumer.properties", "connect-standalone.properties",
    "connect-distributed.properties", "connect-file-source.properties", "connect-file-sink.properties",
    "schema-registry.properties",
]  # fmt: skip
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def port() -> int:
    """Of the first of three brokers."""
    return free_ports(3)


@pytest.fixture
def config(tmp_path: Path, port: int) -> Path:
    """The folder with the files, for ports that are free."""
    folder = tmp_path / "config"
    words = ("--port", str(port), "--zookeeper-port", str(free_port()), "--data", str(tmp_path / "data"))
    Cli("").out("config", "samples", str(folder), *words)
    return folder


def command_in(file: Path, last: bool = True) -> list[str]:
    """The command in the first lines of a file, as one that runs here."""
    lines = [line[1:].strip() for line in file.read_text().split("\n\n")[0].splitlines()]
    line = [line for line in lines if re.match(r"(kafka|zookeeper)-", line)][-1 if last else 0]
    tool, *words = shlex.split(line)
    if tool == "zookeeper-server-start":
        code = f"from barnabas.kafka_tools.servers.zookeeper import main; main({tool!r}, {words!r})"
        return [sys.executable, "-c", code]
    return [sys.executable, "-m", "barnabas", "kafka", tool, *words]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server with the command in a file, and waits until it is ready."""
    started: list[subprocess.Popen[str]] = []

    def run(file: Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(command_in(file), stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready"), file
        return process

    yield run
    for process in reversed(started):
        process.terminate()
        process.wait(TIMEOUT_S)


def run(*words: str, stdin: str = "") -> str:
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def answers(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def test_a_cluster_as_in_the_books(config: Path, port: int, start: Start) -> None:
    if zookeeper_jars() is None:
        pytest.skip("needs java, pyspark and kazoo")
    zookeeper = start(config / "zookeeper.properties")
    for name in ("server.properties", "server-1.properties", "server-2.properties"):
        start(config / name)
    address = (config / "server.properties").read_text().partition("zookeeper.connect=")[2].split()[0]
    kafka = (sys.executable, "-m", "barnabas", "kafka")
    new = ("--replication-factor", "3", "--partitions", "1", "--topic", "test")
    run(*kafka, "topics", "--create", "--zookeeper", address, *new)
    run(*command_in(config / "producer.properties"), stdin="one\ntwo\n")
    words = ("--from-beginning", "--max-messages", "2")
    assert run(*command_in(config / "consumer.properties"), *words) == "one\ntwo\n"
    at_third = ("--bootstrap-server", f"localhost:{port + 2}")
    assert run(*kafka, "consumer-groups", "--list", *at_third) == "test-consumer-group\n"
    described = run(*kafka, "topics", "--describe", "--topic", "test", "--zookeeper", address)
    assert "Configs: \n" in described
    zookeeper.terminate()
    zookeeper.wait(TIMEOUT_S)
    until(lambda: not answers(address), "ZooKeeper has ended with the command that ran it", TIMEOUT_S)
    assert {"0", "1", "2"} == set(re.search(r"Replicas: (\S+)", described)[1].split(","))  # type: ignore[index]


def test_a_single_broker_as_in_newer_books(config: Path, port: int, start: Start) -> None:
    file = config / "kraft" / "server.properties"
    words = command_in(file, last=False)
    assert words[4:7] == ["kafka-storage", "format", "-t"]
    run(*words[:7], "TEnKHiPCSI6nwZLLRd3sSQ", "-c", str(file))
    start(file)
    Cli(f"localhost:{port}").out("topic", "create", "quickstart-events")


def test_nothing_is_overwritten_unless_that_is_asked_for(tmp_path: Path) -> None:
    cli = Cli("")
    assert json.loads(cli.out("config", "samples", str(tmp_path), "--json")) == [
        str(tmp_path / name) for name in FILES
    ]
    changed = tmp_path / "server.properties"
    changed.write_text("broker.id=5\n")
    (tmp_path / "zookeeper.properties").unlink()
    complaint = cli("config", "samples", str(tmp_path), code=1).stderr.decode()
    assert f"{changed}, " in complaint
    assert "--force" in complaint
    assert changed.read_text() == "broker.id=5\n"
    assert not (tmp_path / "zookeeper.properties").exists()
    cli("config", "samples", str(tmp_path), "--force")
    assert "broker.id=0\n" in changed.read_text()
    assert "localhost:9092" in changed.read_text()


def test_a_folder_like_that_of_an_unpacked_kafka(tmp_path: Path) -> None:
    cli, home = Cli(""), tmp_path / "kafka"
    cli.out("config", "samples", "--home", str(home))
    assert {str(path.relative_to(home / "config")) for path in home.rglob("*.properties")} == set(FILES)
    done = subprocess.run(
        ["bash", "-c", "bin/kafka-topics.sh --version && ls bin"],
        cwd=home, capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    names = done.stdout.split()
    assert {
        "kafka-server-start.sh",
        "zookeeper-shell.sh",
        "connect-distributed.sh",
        "schema-registry-start",
    } < {*names}
    assert "barnabas" not in names
    assert "kafka-python" not in names
    (home / "bin" / "zkCli.sh").unlink()
    (home / "bin" / "zkCli.sh").write_text("mine")
    assert (
        "bin/zkCli.sh: there already" in cli("config", "samples", "--home", str(home), code=1).stderr.decode()
    )
