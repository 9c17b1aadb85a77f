"""--zookeeper HOST:PORT, as books type it: the brokers are the registered ones, and users are made before any runs."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.support import preloaded
from tests.support.process import BrokerProcess, free_port
from tests.support.zookeeper import ZooKeeperServer

TIMEOUT_S = 120
PASSWORDS = "SCRAM-SHA-256=[iterations=8192,password=kafka123],SCRAM-SHA-512=[password=kafka123]"
LOGIN = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="kafka123";'


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperServer) -> str:
    """A place of its own in the shared ZooKeeper."""
    root = f"/option-{uuid.uuid4().hex[:8]}"
    done = subprocess.run(
        [sys.executable, "-c", "from barnabas.kafka_tools.servers.zookeeper_shell import script; script()",
         zookeeper_server.address, "create", root],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return zookeeper_server.address + root


def kafka(tool: str, *words: str, code: int = 0) -> str:
    """What a tool prints; its errors when it is to fail."""
    done = preloaded.run(
        [sys.executable, "-m", "barnabas", "kafka", tool, *words],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == code, (words, done.stdout, done.stderr)
    return done.stderr if code else done.stdout


def broker_of(zookeeper: str, folder: Path, **options: str) -> BrokerProcess:
    texts = {name.replace("__", "."): value for name, value in options.items()}
    return BrokerProcess(folder, options={"zookeeper.connect": zookeeper, "broker.id": "7", **texts})


@pytest.fixture
def brokers() -> Iterator[list[BrokerProcess]]:
    """Brokers to be killed at the end of the test."""
    started: list[BrokerProcess] = []
    yield started
    for broker in started:
        broker.kill()


def test_the_brokers_are_those_that_are_registered(
    zookeeper: str, tmp_path: Path, brokers: list[BrokerProcess]
) -> None:
    complaint = kafka("topics", "--list", "--zookeeper", zookeeper, code=1)
    assert f"no broker is registered in the ZooKeeper at {zookeeper}" in complaint
    brokers.append(broker_of(zookeeper, tmp_path / "b").start())
    words = ("--replication-factor", "1", "--partitions", "1", "--topic", "test")
    assert kafka("topics", "--create", "--zookeeper", zookeeper, *words) == "Created topic test.\n"
    assert kafka("topics", "-list", "--zookeeper", zookeeper) == "test\n"
    brokers[0].stop()
    kafka("topics", "--list", "--zookeeper", zookeeper, code=1)


def test_the_first_users_are_made_before_the_first_broker(
    zookeeper: str, tmp_path: Path, brokers: list[BrokerProcess]
) -> None:
    user = ("--zookeeper", zookeeper, "--entity-type", "users", "--entity-name")
    for name in ("admin", "stocks consumer"):
        printed = kafka("configs", "--alter", "--add-config", PASSWORDS, *user, name)
        assert printed == f"Completed updating config for user {name}.\n"
    shown = (
        "SCRAM credential configs for user-principal 'stocks consumer' are SCRAM-SHA-256=iterations=8192, "
    )
    assert (
        kafka("configs", "--describe", *user, "stocks consumer") == f"{shown}SCRAM-SHA-512=iterations=4096\n"
    )
    broker = broker_of(
        zookeeper, tmp_path / "b", listeners=f"SASL_PLAINTEXT://127.0.0.1:{free_port()}",
        sasl__enabled__mechanisms="SCRAM-SHA-256,SCRAM-SHA-512", security__inter__broker__protocol="SASL_PLAINTEXT",
        sasl__mechanism__inter__broker__protocol="SCRAM-SHA-256", sasl__jaas__config=LOGIN.format("admin"),
    )  # fmt: skip
    broker.port = int(broker.options["listeners"].rpartition(":")[2])
    brokers.append(broker.start())

    def topics_of(name: str) -> dict[str, object]:
        login = {"sasl.username": name, "sasl.password": "kafka123", "sasl.mechanism": "SCRAM-SHA-512"}
        settings = {"bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT", **login}
        return dict(AdminClient(settings).list_topics(timeout=30).topics)

    assert topics_of("stocks consumer") == {}
    complaint = kafka("topics", "--list", "--zookeeper", zookeeper, code=1)
    assert f"no listener for PLAINTEXT, but for SASL_PLAINTEXT ({broker.bootstrap})" in complaint
    assert "--command-config FILE" in complaint
    (tmp_path / "client.properties").write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={LOGIN.format('admin')}\n"
    )
    login = ("--command-config", str(tmp_path / "client.properties"))
    words = ("--replication-factor", "1", "--partitions", "1", "--topic", "test")
    kafka("topics", "--create", "--zookeeper", zookeeper, *words, *login)

    # Users of a broker that runs: it hears of them, as Kafka's does.
    kafka("configs", "--alter", "--add-config", PASSWORDS, *user, "late")
    assert list(topics_of("late")) == ["test"]
    kafka("configs", "--alter", "--delete-config", "SCRAM-SHA-256", *user, "late")
    assert "SCRAM-SHA-256" not in kafka("configs", "--describe", *user, "late")
    listed = kafka("configs", "--describe", *user, "late", "--bootstrap-server", broker.bootstrap, *login)
    assert listed == (
        "SCRAM credential configs for user-principal 'late' are SCRAM-SHA-512=iterations=4096\n"
    )


def test_a_password_that_is_missing_is_refused(zookeeper: str) -> None:
    words = ("--zookeeper", zookeeper, "--entity-type", "users", "--entity-name", "a", "--alter")
    complaint = kafka("configs", *words, "--add-config", "SCRAM-SHA-256=[iterations=8192]", code=1)
    assert "SCRAM-SHA-256 needs a password" in complaint
