"""Brokers that log in to each other with tickets of a real Kerberos server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.config.broker_zookeeper import ZNODES_CONNECT, ZNODES_SERVE
from barnabas.config.loader import BrokerConfig
from barnabas.config.option import ConfigError
from barnabas.security.between import BetweenBrokers
from tests.security.kdc import REALM, Kdc
from tests.support.cluster import until
from tests.support.process import BrokerProcess, free_port, free_ports

pytest.importorskip(
    "gssapi",
    reason="the package gssapi is not installed (pip install 'barnabas[kerberos]')",
    exc_type=ImportError,
)

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PATIENCE_S = 60
SERVE, CONNECT = ZNODES_SERVE.name, ZNODES_CONNECT.name


def options_of(keytab: Path, **more: str) -> dict[str, str]:
    """Those of a broker that is kafka/localhost."""
    jaas = f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="kafka/localhost@{REALM}";'
    return {
        "listeners": "SASL_PLAINTEXT://localhost:0",
        "sasl.enabled.mechanisms": "GSSAPI",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": jaas,
        **{name.replace("_", "."): text for name, text in more.items()},
    }


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    started = Kdc(tmp_path_factory.mktemp("kdc")).start()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    return kdc.keytab("kafka/localhost")


@pytest.fixture(scope="module")
def brokers(
    kdc: Kdc, keytab: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[BrokerProcess]]:
    """Two, who may do everything as the user kafka; clients come by another listener."""
    folder = tmp_path_factory.mktemp("brokers")
    processes = []
    first = free_ports(4)
    for number in (1, 2):
        inside, outside = first + 2 * number - 2, first + 2 * number - 1
        texts = {
            **options_of(keytab),
            "broker.id": str(number),
            SERVE if number == 1 else CONNECT: str(folder / "znodes.sock"),
            "listeners": f"SASL_PLAINTEXT://localhost:{inside},PLAINTEXT://127.0.0.1:{outside}",
            "offsets.topic.num.partitions": "1",
            "connections.max.reauth.ms": "2000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:kafka;User:ANONYMOUS",
        }
        processes.append(
            BrokerProcess(folder / f"b{number}", options=texts, port=outside, environment=kdc.environment)
        )
    try:
        for broker in processes:
            broker.start()
        yield processes
    finally:
        for broker in reversed(processes):  # the first keeps the metadata
            broker.stop()


def test_replication_by_tickets_alone(brokers: list[BrokerProcess]) -> None:
    """Both brokers lead some partition and follow another; logins are renewed every other second meanwhile."""
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("tickets", 2, 2, config={"min.insync.replicas": "2"})
    until(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "both brokers")
    admin.create_topics([topic])["tickets"].result(PATIENCE_S)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": PATIENCE_S * 1000}
    )
    acknowledged = []
    for number in range(20):
        producer.produce(
            "tickets", b"%d" % number, partition=number % 2, on_delivery=lambda e, m: acknowledged.append(e)
        )
    assert producer.flush(PATIENCE_S) == 0
    assert acknowledged == [None] * 20
    partitions = admin.list_topics("tickets", timeout=10).topics["tickets"].partitions
    assert {partition.leader for partition in partitions.values()} == {1, 2}
    assert [sorted(partition.isrs) for partition in partitions.values()] == [[1, 2], [1, 2]]
    for broker in brokers:
        log = broker.log()
        assert "Traceback" not in log
        assert "login refused" not in log
        assert "no connection to another broker" not in log


ASK = """
import asyncio, json, sys
from barnabas.broker.net.peers import PeerLost, Peers
from barnabas.config.broker_zookeeper import ZNODES_CONNECT, ZNODES_SERVE
from barnabas.config.loader import BrokerConfig
from barnabas.runtime.machine import Machine
from barnabas.security.between import BetweenBrokers
from barnabas.wire.messages.list_groups import ListGroupsRequest

async def ask(host, port, options):
    peers = Peers(2, lambda _: (host, port), Machine().connect, BetweenBrokers(BrokerConfig(options)))
    try:
        return (await peers.call(1, ListGroupsRequest(), 2, 30)).error_code
    except PeerLost as error:
        return f"{type(error).__name__}: {error}"
    finally:
        peers.close()

print(json.dumps(asyncio.run(ask(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])))))
"""


def ask(
    broker: BrokerProcess, kdc: Kdc, options: dict[str, str], host: str = "localhost", **environment: str
) -> object:
    """What another broker with these options gets of a broker: an error code, or what its log says."""
    port = broker.options["listeners"].partition(",")[0].rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-c", ASK, host, port, json.dumps(options)],
        env={**kdc.environment, **environment}, capture_output=True, text=True, timeout=240, cwd=os.getcwd(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_login_and_who_is_refused(
    brokers: list[BrokerProcess], kdc: Kdc, keytab: Path, tmp_path: Path
) -> None:
    broker, good = brokers[0], options_of(keytab)
    assert ask(broker, kdc, good) == 0
    # Reached by a name for which the server knows no broker.
    refusal = str(ask(broker, kdc, good, "127.0.0.1"))
    assert refusal.startswith(
        f"PeerRefused: the Kerberos login of kafka/localhost@{REALM} to kafka@127.0.0.1 failed"
    )
    # A server that is away.
    config = tmp_path / "krb5.conf"
    port = free_port()
    text = kdc.config.read_text()
    config.write_text(text[: text.index("kdc = ")] + f"kdc = 127.0.0.1:{port}\n }}\n")
    refusal = str(ask(broker, kdc, good, KRB5_CONFIG=str(config)))
    assert refusal.startswith("PeerRefused: the Kerberos login of"), refusal


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"sasl.jaas.config": f"{MODULE} required useTicketCache=true;"}, "need keyTab and principal"),
        ({"sasl.jaas.config": f'{MODULE} required keyTab="/no" principal="kafka/localhost";'}, "/no cannot be read"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "not among sasl.enabled.mechanisms"),
    ],
)  # fmt: skip
def test_what_cannot_work_stops_the_start(keytab: Path, more: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace(".", r"\.")):
        BetweenBrokers(BrokerConfig({**options_of(keytab), **more}))
