"""GSSAPI with tickets of a real Kerberos server: kafka-python and the Java client log in, and what must be refused is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients import foreign
from tests.security.kdc import REALM, Kdc
from tests.support.process import BrokerProcess, free_port

pytest.importorskip(
    "gssapi",
    reason="the package gssapi is not installed (pip install 'barnabas[kerberos]')",
    exc_type=ImportError,
)

TOPIC = "with-tickets"
PYTHON_CLIENT = """
import json, os, sys
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
options = dict(bootstrap_servers=sys.argv[1], security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI",
               sasl_kerberos_domain_name="localhost") | json.loads(sys.argv[3])
patience_ms = options.pop("patience_ms")
topic = sys.argv[2]
try:
    producer = KafkaProducer(max_block_ms=patience_ms, bootstrap_timeout_ms=patience_ms, **options)
    offset = producer.send(topic, b"a ticket's record", partition=0).get(60).offset
    producer.close()
    consumer = KafkaConsumer(consumer_timeout_ms=patience_ms, **options)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), offset)
    print(json.dumps({"value": next(consumer).value.decode()}))
    consumer.close()
except Exception as error:
    print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
    os._exit(0)  # the client would try on while the process ends
"""

AIOKAFKA_CLIENT = """
import asyncio, json, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
options = dict(bootstrap_servers=sys.argv[1], security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI",
               sasl_kerberos_service_name="kafka", sasl_kerberos_domain_name="localhost")
partition = TopicPartition(sys.argv[2], 0)
async def run():
    async with AIOKafkaProducer(**options) as producer:
        sent = await producer.send_and_wait(partition.topic, b"a ticket's record", partition=0)
    consumer = AIOKafkaConsumer(**options)
    consumer.assign([partition])
    async with consumer:
        consumer.seek(partition, sent.offset)
        print(json.dumps({"value": (await asyncio.wait_for(consumer.getone(), 60)).value.decode()}))
asyncio.run(run())
"""


class Realm:
    """The server, a broker with a principal of its own, and alice, who may write to TOPIC."""

    def __init__(self, folder: Path) -> None:
        self.kdc = Kdc(folder).start()
        service = self.kdc.keytab("kafka/localhost")
        self.keytabs = {name: self.kdc.keytab(name) for name in ("alice", "bob", "carol/admin")}
        self.kdc.keytab("http/localhost")  # another service
        jaas = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{service}" principal="kafka/localhost@{REALM}";'
        )
        port, self.plain_port = free_port(), free_port()
        options = {
            "listeners": f"SASL_PLAINTEXT://localhost:{port},PLAINTEXT://127.0.0.1:{self.plain_port}",
            # Go's clients ask for a ticket of the very name that they are told.
            "advertised.listeners": f"SASL_PLAINTEXT://localhost:{port},PLAINTEXT://127.0.0.1:{self.plain_port}",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
            "sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-$2](carol-.*)/L,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:carol-admin",
        }
        self.broker = BrokerProcess(
            folder / "data", options=options, port=port, environment=self.kdc.environment
        )
        self.bootstrap = f"localhost:{port}"

    def close(self) -> None:
        self.broker.stop()
        self.kdc.stop()

    def run_python(
        self, who: str, service: str = "kafka", patience_ms: int = 60_000, program: str = PYTHON_CLIENT
    ) -> dict[str, str]:
        """What a client with `who`'s tickets says. The library gets them by the keytab itself."""
        options = {"sasl_kerberos_service_name": service, "patience_ms": patience_ms}
        environment = {
            **self.kdc.environment, "KRB5CCNAME": f"FILE:{self.kdc.folder}/tickets-{who.replace('/', '-')}",
            "KRB5_CLIENT_KTNAME": f"FILE:{self.keytabs[who]}" if who in self.keytabs else "FILE:/nowhere",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", program, self.bootstrap, TOPIC, json.dumps(options)],
            env=environment, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        report: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
        return report


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    own_realm = Realm(tmp_path_factory.mktemp("realm"))
    try:
        own_realm.broker.start()
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{own_realm.plain_port}"})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(60)
        yield own_realm
    finally:
        own_realm.close()


@pytest.mark.parametrize("who", ["alice", "carol/admin"])
def test_kafka_python(realm: Realm, who: str) -> None:
    """alice by the default rule; carol/admin becomes carol-admin by the other one."""
    assert realm.run_python(who) == {"value": "a ticket's record"}


def test_aiokafka(realm: Realm) -> None:
    assert realm.run_python("alice", program=AIOKAFKA_CLIENT) == {"value": "a ticket's record"}


@pytest.mark.java
def test_the_java_client(realm: Realm, tmp_path: Path) -> None:
    file = tmp_path / "gssapi.properties"
    file.write_text(
        f"bootstrap.servers={realm.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\n"
        f"sasl.kerberos.service.name=kafka\nprobe.topic={TOPIC}\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'keyTab="{realm.keytabs["alice"]}" principal="alice@{REALM}";\n'
    )
    java, *words = foreign.java_program()
    command = [java, f"-Djava.security.krb5.conf={realm.kdc.config}", *words]
    assert foreign.run(command, realm.bootstrap, "logins", str(file))["logins"] == 1


@pytest.mark.go
@pytest.mark.parametrize("client", ["franz", "sarama"])
def test_go(realm: Realm, tmp_path: Path, client: str) -> None:
    row = {
        "name": "GSSAPI", "mechanism": "GSSAPI", "bootstrap": realm.bootstrap, "topic": TOPIC, "user": "alice",
        "realm": REALM, "keytab": str(realm.keytabs["alice"]), "krb5conf": str(realm.kdc.config),
    }  # fmt: skip
    file = tmp_path / "logins.json"
    file.write_text(json.dumps([row]))
    probe = [str(foreign.go_program("go", foreign.HERE / "go", "the Go modules"))]
    assert foreign.run(probe, "-", f"{client}-logins", str(file))["logins"] == 1


def test_who_has_a_ticket_and_no_right(realm: Realm) -> None:
    """bob is bob: he has logged in, and may do nothing."""
    assert "Authorization" in realm.run_python("bob")["error"]


def test_who_has_no_ticket_or_one_for_another_service(realm: Realm) -> None:
    assert "error" in realm.run_python("nobody", patience_ms=2_000)
    assert "error" in realm.run_python("alice", "http", patience_ms=2_000)
    log = realm.broker.log()
    assert "Traceback" not in log
    assert "login refused" in log
    assert (
        f"Cannot decrypt ticket for http/localhost@{REALM} using keytab key for kafka/localhost@{REALM}"
        in log
    )
    assert "Major" not in log


RAW_TOKENS = """
import os, random, struct, sys
import gssapi
from tests.security.peer import Peer
address = sys.argv[1]

def begin():
    name = gssapi.Name("kafka@localhost", gssapi.NameType.hostbased_service)
    context = gssapi.SecurityContext(name=name, usage="initiate", flags=[gssapi.RequirementFlag.mutual_authentication])
    return context, context.step(None)

def established(peer, version=1):
    assert peer.handshake("GSSAPI", version) == 0
    context, token = begin()
    error, answer = peer.token(token)
    assert error == 0, error
    assert context.step(answer) is None
    return context, token

with Peer(address) as peer:
    context, shown = established(peer)
    error, offer = peer.token(b"")
    assert (error, context.unwrap(offer).message) == (0, b"\\x01\\0\\0\\0"), error
    assert peer.token(context.wrap(b"\\x01\\0\\0\\0somebody else", False).message) == (0, b"")
    assert peer.works()
with Peer(address) as peer:  # the ticket of before: an authenticator counts once
    assert peer.handshake("GSSAPI") == 0
    assert peer.token(shown)[0] == 58
    assert not peer.works()
for choice in (b"\\x04\\0\\xff\\xff", b"\\x02\\0\\xff\\xffx", b"\\0\\0\\0\\0", b"\\x01"):
    with Peer(address) as peer:
        context, _ = established(peer)
        assert peer.token(b"")[0] == 0
        assert peer.token(context.wrap(choice, False).message)[0] == 58, choice
        assert not peer.works()
with Peer(address) as peer:  # a choice that the ticket's key did not seal
    established(peer)
    assert peer.token(b"")[0] == 0
    assert peer.token(b"\\x01\\0\\0\\0")[0] == 58
with Peer(address) as peer:
    established(peer)
    assert peer.token(b"not empty")[0] == 58
chance = random.Random(7)
for _ in range(20):
    _, token = begin()
    data = bytearray(token)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data))
        data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(1, 4))
    with Peer(address) as peer:
        assert peer.handshake("GSSAPI") == 0
        error = peer.token(bytes(data[: chance.randrange(1, len(data) + 1)]))[0]
        assert not peer.works(), bytes(data)
with Peer(address) as peer:  # tokens without requests around them, as clients of 0.10 send them
    assert peer.handshake("GSSAPI", 0) == 0
    context, token = begin()
    assert context.step(peer.frame(token)) is None
    offer = peer.frame(b"")
    peer.send(context.wrap(context.unwrap(offer).message, False).message)
    assert peer.works()  # nothing comes before its answer: Java's server has said all it has to say
with Peer(address) as peer:  # no handshake at all, as clients of 0.9
    context, token = begin()
    assert context.step(peer.frame(token)) is None
    offer = peer.frame(b"")
    peer.send(context.wrap(context.unwrap(offer).message, False).message)
    assert peer.works()
for first in (shown, b"\\x60", b"\\x60\\x82" + bytes(1000), b"\\x61\\0\\0"):
    with Peer(address) as peer:
        assert peer.frame(first) == b"", first
"""


def test_raw_tokens_and_nonsense(realm: Realm) -> None:
    """Tickets shown again, cut and changed; a client that wants a security layer; the broker goes on."""
    done = subprocess.run(
        [sys.executable, "-c", RAW_TOKENS, realm.bootstrap],
        env={
            **realm.kdc.environment, "KRB5_CLIENT_KTNAME": f"FILE:{realm.keytabs['alice']}",
            "KRB5CCNAME": f"FILE:{realm.kdc.folder}/tickets-raw", "PYTHONPATH": str(Path(__file__).parents[2]),
        },
        capture_output=True, text=True, timeout=240, cwd=os.getcwd(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in realm.broker.log()


def test_what_does_not_start(realm: Realm, tmp_path: Path) -> None:
    """One line that says which option is wrong."""
    key = realm.keytabs["alice"]
    for principal, keytab, complaint in (
        ("kafka/localhost", "/nowhere.keytab", "the keytab /nowhere.keytab cannot be read"),
        ("kafka/elsewhere", str(key), "Kerberos has no credentials for kafka/elsewhere"),
    ):
        jaas = f'com.sun.security.auth.module.Krb5LoginModule required keyTab="{keytab}" principal="{principal}";'
        options = {
            **realm.broker.options, "listeners": "SASL_PLAINTEXT://localhost:0",
            "advertised.listeners": "SASL_PLAINTEXT://localhost:9092",
            "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": jaas,
        }  # fmt: skip
        broker = BrokerProcess(tmp_path / "data", options=options, environment=realm.kdc.environment)
        with pytest.raises(AssertionError, match="the broker ended with 1"):
            broker.start()
        assert complaint in broker.log()
        assert "Traceback" not in broker.log()
        broker.stop()
        broker.log_path.unlink()
