"""Brokers that trust each other by TLS and SCRAM alone: replication, transactions, stops and kills over SASL_SSL."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from cryptography.x509.oid import ExtendedKeyUsageOID

from barnabas.broker.net.peers import PeerLost, PeerRefused, Peers
from barnabas.config.loader import BrokerConfig
from barnabas.config.option import ConfigError
from barnabas.runtime.machine import Machine
from barnabas.security import folder as secured
from barnabas.security.authority import Authority, write_private
from barnabas.security.between import BetweenBrokers
from barnabas.security.openness import findings
from barnabas.testing import Broker
from barnabas.wire.messages.list_groups import ListGroupsRequest
from tests.cluster.test_replication import ALL, Load, read, until_equal
from tests.security.issuer import Issuer
from tests.security.peer import Peer
from tests.security.test_tls import await_said
from tests.support.cluster import Cluster, until
from tests.support.zookeeper import ZooKeeperServer

USER = "broker"
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("between") / "secure"
    secured.create(directory, [], ["alice"])
    return directory


def options(folder: Path) -> dict[str, str]:
    return {**secured.options(folder), **secured.between_options(folder)}


@pytest.fixture(scope="module")
def cluster(
    zookeeper_server: ZooKeeperServer, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    lines = (folder / "clients" / "admin" / "librdkafka.properties").read_text().splitlines()
    client = dict(line.split("=", 1) for line in lines)
    del client["bootstrap.servers"]
    brokers = Cluster(
        tmp_path_factory.mktemp("cluster"),
        zookeeper_server,
        chroot="/between",
        options={**options(folder), "audit.topic": "audited"},
        security_protocol="SASL_SSL",
        client=client,
    )
    try:
        yield brokers.start()
    finally:
        brokers.close()


def test_three_brokers_that_speak_nothing_but_sasl_ssl(cluster: Cluster) -> None:
    """Produce with acks=all through the kill of a leader and a controlled stop; a transaction over all of them."""
    topic = NewTopic("between", 3, 3, config={"min.insync.replicas": "2"})
    admin = cluster.admin()
    admin.create_topics([topic])["between"].result(60)
    cluster.until_in_sync("between", ALL)
    with Load(cluster, "between") as load:
        load.until_more()
        leader = cluster.leader("between")
        cluster.brokers[leader].kill()
        load.until_more()
        cluster.until_in_sync("between", [broker for broker in ALL if broker != leader])
        cluster.start_again(leader)
        cluster.until_in_sync("between", ALL)
        stopped = cluster.leader("between", 1)
        assert cluster.brokers[stopped].stop() == 0
        others = [broker for broker in ALL if broker != stopped]
        assert {row.leader for row in cluster.topic("between").partitions.values()} <= set(others)
        load.until_more()
        cluster.start_again(stopped)
        cluster.until_in_sync("between", ALL)
    assert sorted(read(cluster, "between", 3)) == sorted(load.acknowledged)
    for index in range(3):
        until_equal(cluster, "between", index)

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "between", **cluster.client}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for index in range(3):
        producer.produce("between", b"in a transaction", partition=index)
    producer.commit_transaction(60)
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers", **cluster.client})
    try:
        for index in range(3):
            last_value = until(
                lambda at=index: read_last(reader, at), f"the transaction's record in partition {index}"
            )
            assert last_value == b"in a transaction"
    finally:
        reader.close()
    for broker in cluster.brokers.values():
        assert "Traceback" not in broker.log()
        assert "login refused" not in broker.log()


def test_no_broker_tells_who_exists(cluster: Cluster, folder: Path) -> None:
    """All show the same salt for a user who does not exist, as they do for one who does; and one for each mechanism."""
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))

    def shown(address: str, user: str, mechanism: str) -> tuple[bytes, bytes]:
        with Peer(address) as peer:
            peer.sock = context.wrap_socket(peer.sock, server_hostname="127.0.0.1")
            assert peer.handshake(mechanism) == 0
            error, answer = peer.token(f"n,,n={user},r=abc".encode())
            assert error == 0
            _, salt, iterations = answer.split(b",")
            return salt, iterations

    addresses = [broker.bootstrap for broker in cluster.brokers.values()]
    for user in ("alice", "nobody"):
        answers = {
            mechanism: {shown(address, user, mechanism) for address in addresses}
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        }
        assert [len(rows) for rows in answers.values()] == [1, 1], answers
        assert len(set.union(*answers.values())) == 2, answers


def test_mechanisms_are_taken_away_and_added_one_broker_after_the_other(
    cluster: Cluster, folder: Path
) -> None:
    """Clients of the other mechanism stay connected, and nothing of theirs is lost."""
    admin = cluster.admin()
    admin.create_topics([NewTopic("mechanisms", 3, 3, config={"min.insync.replicas": "2"})])[
        "mechanisms"
    ].result(60)
    cluster.until_in_sync("mechanisms", ALL)
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))

    def takes(broker: int, mechanism: str) -> bool:
        with Peer(cluster.brokers[broker].bootstrap) as peer:
            peer.sock = context.wrap_socket(peer.sock, server_hostname="127.0.0.1")
            return peer.handshake(mechanism) == 0

    def enable(broker: int, mechanisms: str) -> None:
        entry = ConfigEntry(
            "listener.name.sasl_ssl.sasl.enabled.mechanisms",
            mechanisms,
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)
        with_it = "SCRAM-SHA-256" in mechanisms
        until(lambda: takes(broker, "SCRAM-SHA-256") is with_it, f"broker {broker} has {mechanisms}")
        assert takes(broker, "SCRAM-SHA-512")

    other = {**cluster.client, "sasl.mechanism": "SCRAM-SHA-256", "log_level": "0"}
    stays = AdminClient({**other, "bootstrap.servers": cluster.brokers[1].bootstrap})
    assert stays.list_topics("mechanisms", timeout=60).topics["mechanisms"].error is None
    with Load(cluster, "mechanisms") as load:
        for mechanisms in ("SCRAM-SHA-512", "SCRAM-SHA-512,SCRAM-SHA-256"):
            for broker in ALL:
                enable(broker, mechanisms)
                load.until_more()
    late = AdminClient({**other, "bootstrap.servers": cluster.bootstrap})
    assert late.list_topics("mechanisms", timeout=60).topics["mechanisms"].error is None
    assert sorted(read(cluster, "mechanisms", 3)) == sorted(load.acknowledged)


def test_one_audit_topic_has_what_all_brokers_deny(cluster: Cluster, folder: Path) -> None:
    """The topic has one partition: two of the three brokers send their records to its leader."""
    lines = (folder / "clients" / "alice" / "librdkafka.properties").read_text().splitlines()
    alice = dict(line.split("=", 1) for line in lines)

    def ask_all() -> set[int]:
        for broker in cluster.brokers.values():
            admin = AdminClient({**alice, "bootstrap.servers": broker.bootstrap})
            assert admin.list_topics("between", timeout=60).topics["between"].error is not None
        for message in reader.consume(100, 1.0):
            if message.error() is None:
                row = json.loads(message.value())
                if row["principal"] == "User:alice":
                    assert row["resource"] == "TOPIC:LITERAL:between"
                    denied_by.add(row["broker"])
        return denied_by

    denied_by: set[int] = set()
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "auditors", **cluster.client})
    reader.assign([TopicPartition("audited", 0, OFFSET_BEGINNING)])
    try:
        until(lambda: ask_all() == set(ALL), "denials of every broker")
    finally:
        reader.close()


def read_last(reader: Consumer, partition: int) -> bytes | None:
    """The value of the last record of a partition that a reader of committed records sees."""
    end = reader.get_watermark_offsets(TopicPartition("between", partition), timeout=30)[1]
    reader.assign([TopicPartition("between", partition, end - 2)])  # behind it stands the marker
    message = reader.poll(10)
    return None if message is None or message.error() else message.value()


# --- one broker, and the connections that another one would make to it ------------------------------------------


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    with Broker({**options(folder), "listeners": "SASL_SSL://127.0.0.1:0"}) as started:
        yield started


async def ask(broker: Broker, more: dict[str, str], times: int = 1) -> list[object]:
    """Groups of the broker, or the error, as another broker with these options gets them."""
    config = BrokerConfig(more)
    host, _, port = broker.bootstrap.rpartition(":")
    peers = Peers(2, lambda _: (host, int(port)), Machine().connect, BetweenBrokers(config))
    answers: list[object] = []
    try:
        for _ in range(times):
            try:
                answer = await peers.call(1, ListGroupsRequest(), 2, 30)
                answers.append(answer.error_code)
            except PeerLost as error:
                answers.append(error)
    finally:
        peers.close()
    return answers


def as_another(folder: Path, **more: str) -> dict[str, str]:
    texts = {name: text for name, text in options(folder).items() if name != "scram.users.file"}
    password = (folder / secured.BROKER_LOGIN).read_text().partition("=")[2].strip()
    texts["sasl.jaas.config"] = f'{JAAS} username="{USER}" password="{password}";'
    texts["listeners"] = "SASL_SSL://127.0.0.1:0"
    return {**texts, **{name.replace("_", "."): text for name, text in more.items()}}


def test_a_broker_logs_in_to_another(broker: Broker, folder: Path) -> None:
    assert asyncio.run(ask(broker, as_another(folder), 3)) == [0, 0, 0]


def test_a_wrong_password_is_one_line_of_the_log(
    broker: Broker, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = as_another(folder, sasl_jaas_config=f'{JAAS} username="{USER}" password="guessed";')
    with caplog.at_level(logging.INFO, "barnabas"):
        errors = asyncio.run(ask(broker, wrong, 3))
    assert [type(error) for error in errors] == [PeerRefused] * 3
    assert "refuses the login of 'broker' by SCRAM-SHA-512" in str(errors[0])
    assert "guessed" not in caplog.text
    messages = [record.message for record in caplog.records if record.name == "barnabas.peers"]
    assert messages == ["no connection to another broker; it is tried again"]
    assert caplog.text.count("login refused") == 1, "the others were not even tried"


def test_a_certificate_of_somebody_else_is_not_trusted(broker: Broker, folder: Path, tmp_path: Path) -> None:
    secured.create(tmp_path / "other", [], [])
    other = as_another(folder, ssl_truststore_location=str(tmp_path / "other" / "ca.pem"))
    (error,) = asyncio.run(ask(broker, other))
    assert isinstance(error, PeerRefused)
    assert "is not trusted" in str(error)


def test_a_certificate_for_servers_alone(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its broker serves clients; another one that asks brokers for certificates refuses it, and all three places say why."""
    authority = Authority.load((folder / "ca-key.pem").read_bytes(), (folder / "ca.pem").read_bytes())
    for name, purpose in (
        ("server", ExtendedKeyUsageOID.SERVER_AUTH),
        ("client", ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        issued = authority.issue(name, ["127.0.0.1"], purposes=[purpose])
        write_private(tmp_path / f"{name}.pem", b"".join(issued))
    asking = {**as_another(folder), "ssl.client.auth": "required"}
    asking |= {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"}
    of_server = {**asking, "ssl.keystore.location": str(tmp_path / "server.pem")}
    of_client = {**asking, "ssl.keystore.location": str(tmp_path / "client.pem")}
    with Broker(asking) as broker:
        (error,) = asyncio.run(ask(broker, of_server))
        assert isinstance(error, PeerLost)
        assert "it refuses this side's certificate: its extendedKeyUsage does not name clientAuth" in str(
            error
        )
        await_said(
            caplog, "the client's certificate is refused: its extendedKeyUsage does not name clientAuth"
        )
        assert asyncio.run(ask(broker, asking)) == [0]
    assert "other brokers will refuse this broker's certificate" in caplog.text
    assert "other brokers refuse the certificate" in " ".join(findings(BrokerConfig(of_server)))
    assert not any(
        "refuse" in finding for finding in findings(BrokerConfig({**of_server, "ssl.client.auth": "none"}))
    )
    with Broker({**of_client, "security.inter.broker.protocol": "SSL"}) as broker:
        (error,) = asyncio.run(ask(broker, asking))
        assert isinstance(error, PeerRefused)
        assert "is not trusted: its extendedKeyUsage does not name serverAuth" in str(error)
    assert any("clients refuse" in finding for finding in findings(BrokerConfig(of_client)))


def test_a_name_that_is_not_in_the_certificate(broker: Broker, folder: Path, tmp_path: Path) -> None:
    """Checked unless ssl.endpoint.identification.algorithm is empty."""
    config = BrokerConfig(as_another(folder))
    context = BetweenBrokers(config).tls()
    assert context is not None
    assert context.check_hostname
    unchecked = BetweenBrokers(
        BrokerConfig(as_another(folder, ssl_endpoint_identification_algorithm=""))
    ).tls()
    assert unchecked is not None
    assert not unchecked.check_hostname


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"sasl.mechanism.inter.broker.protocol": "ANONYMOUS"}, "with one of PLAIN"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "not among sasl.enabled.mechanisms"),
        ({"sasl.jaas.config": f"{JAAS} user_a=b;"}, "no user to log in"),
        ({"ssl.truststore.location": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
        ({"inter.broker.listener.name": "SASL_SSL"}, "must not be set together"),
        ({"security.inter.broker.protocol": "SSL"}, "must be the protocol of one of listeners"),
    ],
)  # fmt: skip
def test_what_cannot_work_stops_the_start(folder: Path, more: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace(".", r"\.")):
        BetweenBrokers(BrokerConfig({**as_another(folder), **more}))


def test_a_token_in_a_file(
    folder: Path, issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read again for each login; one that has expired, or is none, is refused."""
    file = tmp_path / "token"
    bearer = {
        "sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{issuer.file}", "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "tests", "sasl.oauthbearer.token.endpoint.url": f"file://{file}",
    }  # fmt: skip
    another = {**as_another(folder), **bearer}
    with pytest.raises(ConfigError, match=r"the token cannot be read: .*No such file"):
        BetweenBrokers(BrokerConfig(another))
    file.write_text("nonsense")
    with pytest.raises(ConfigError, match="this is not a signed token"):
        BetweenBrokers(BrokerConfig(another))
    with pytest.raises(ConfigError, match="brokers read their token from a file"):
        BetweenBrokers(BrokerConfig({**another, "sasl.oauthbearer.token.endpoint.url": "https://x"}))
    file.write_text(issuer.token(USER) + "\n")
    with Broker({**options(folder), **bearer, "listeners": "SASL_SSL://127.0.0.1:0"}) as broker:
        assert asyncio.run(ask(broker, another, 2)) == [0, 0]
        file.write_text(issuer.token("somebody"))
        assert asyncio.run(ask(broker, another)) == [0]  # let in; what it may do, access rules say
        file.write_text(issuer.token(USER, exp=1))
        (error,) = asyncio.run(ask(broker, another))
    assert isinstance(error, PeerRefused)
    assert "a broker refuses the token of 'broker'" in str(error)
    assert file.read_text() not in caplog.text


def test_a_login_is_renewed_before_it_ends(folder: Path) -> None:
    """With a lifetime of a quarter of a second a connection outlives many of them."""

    async def run() -> None:
        short = {"connections.max.reauth.ms": "250", "listeners": "SASL_SSL://127.0.0.1:0"}
        with await asyncio.to_thread(Broker, {**options(folder), **short}) as broker:
            host, _, port = broker.bootstrap.rpartition(":")
            config = BrokerConfig(as_another(folder))
            machine = Machine()
            opened: list[object] = []

            async def connect(*address: object) -> object:
                opened.append(address)
                return await machine.connect(*address)  # type: ignore[arg-type]

            peers = Peers(2, lambda _: (host, int(port)), connect, BetweenBrokers(config))  # type: ignore[arg-type]
            try:
                loop = asyncio.get_running_loop()
                until_s = loop.time() + 1
                while loop.time() < until_s:
                    assert (await peers.call(1, ListGroupsRequest(), 2, 30)).error_code == 0
                    await asyncio.sleep(0.02)
            finally:
                peers.close()
            assert len(opened) == 1

    asyncio.run(run())
