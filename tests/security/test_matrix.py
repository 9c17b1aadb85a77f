"""Every client by every way to be let in: TLS, a certificate, PLAIN, SCRAM and OAUTHBEARER, all on one broker.

Each way may use one topic and no other, so that a client that is taken for somebody else, or for nobody, fails. The
programs in other languages take all ways at once, so that each runtime starts once.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.admin import ResourceType as ResourceKind

from barnabas.client.blocking import BlockingClient
from barnabas.client.options import ClientOptions
from barnabas.terminal.probe import NotKafka, require_kafka
from barnabas.testing import Broker
from tests.clients import foreign
from tests.security.certificates import Certificates
from tests.security.issuer import Issuer
from tests.security.test_authorizer import add, binding
from tests.security.test_tls import PATIENCE_S

PASSWORD = 'correct horse; "battery" = staple'
QUOTED = PASSWORD.replace('"', '\\"')
USERS = {"PLAIN": "paul", "SCRAM-SHA-256": "sam", "SCRAM-SHA-512": "sue", "OAUTHBEARER": "olga"}
WAYS = ("tls", "certificate", *USERS)
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer"
PREFIXED = ResourcePatternType.PREFIXED
LISTENERS = {"FREE": "PLAINTEXT", "TLS": "SSL", "CERTIFICATE": "SSL", "LOGIN": "SASL_SSL"}


def topic_of(name: str) -> str:
    """The topic that this way may use."""
    return f"by-{name.lower()}"


@dataclass(frozen=True)
class Way:
    """One way to be let in, as a client needs to know it. token: made when it is asked for."""

    name: str
    bootstrap: str
    certificates: Certificates
    issuer: Issuer

    @property
    def mechanism(self) -> str:
        return self.name if self.name in USERS else ""

    @property
    def user(self) -> str:
        return USERS.get(self.name, "")

    @property
    def topic(self) -> str:
        return topic_of(self.name)

    @property
    def token(self) -> str:
        return self.issuer.token(self.user)

    @property
    def protocol(self) -> str:
        return "SASL_SSL" if self.mechanism else "SSL"

    def file(self, name: str) -> str:
        return self.certificates.file(name)

    def as_json(self) -> dict[str, str]:
        """For the programs in other languages."""
        row = {"name": self.name, "bootstrap": self.bootstrap, "topic": self.topic, "mechanism": self.mechanism,
               "ca": self.file("ca.pem")}  # fmt: skip
        if self.mechanism:
            row |= {"user": self.user, "password": PASSWORD, "token": self.token}
        if self.name == "certificate":
            row |= {"cert": self.file("client.pem"), "key": self.file("client-key.pem")}
        return row


@pytest.fixture(scope="module")
def broker(certificates: Certificates, issuer: Issuer) -> Iterator[Broker]:
    plain = f'user_{USERS["PLAIN"]}="{QUOTED}"'
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in LISTENERS.items()),
        "ssl.keystore.location": certificates.file("server-store.pem"),
        "listener.name.certificate.ssl.truststore.location": certificates.file("ca.pem"),
        "listener.name.certificate.ssl.client.auth": "required",
        "listener.name.certificate.ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
        "sasl.enabled.mechanisms": ",".join(USERS),
        "listener.name.login.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {plain};",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{issuer.file}",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "tests",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Broker(options) as started:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{started.ports['FREE']}"})
        topics = [NewTopic(topic_of(name), 1) for name in WAYS]
        for future in admin.create_topics(topics).values():
            future.result(PATIENCE_S)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            user = USERS[mechanism.name.replace("_", "-")]
            change = UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(PATIENCE_S)
        for name, user in {**USERS, "certificate": "client"}.items():
            add(
                admin, binding(topic_of(name), AclOperation.READ, user=user),
                binding(topic_of(name), AclOperation.WRITE, user=user),
                binding("login", AclOperation.READ, user=user, kind=ResourceKind.GROUP, pattern=PREFIXED),
            )  # fmt: skip
        yield started


@pytest.fixture(scope="module")
def ways(broker: Broker, certificates: Certificates, issuer: Issuer) -> dict[str, Way]:
    listeners = {"tls": "TLS", "certificate": "CERTIFICATE"}
    return {
        name: Way(name, f"127.0.0.1:{broker.ports[listeners.get(name, 'LOGIN')]}", certificates, issuer)
        for name in WAYS
    }


# --- a client with the wrong protocol -------------------------------------------------------------------------------

SAID = {
    (
        "FREE",
        "SASL_PLAINTEXT",
    ): "takes no login, but security.protocol=SASL_PLAINTEXT asks for one; leave it out",
    ("FREE", "SSL"): "does not speak TLS; leave out security.protocol=SSL",
    ("TLS", "PLAINTEXT"): "wants TLS; add -X security.protocol=SSL ",
    ("TLS", "SASL_PLAINTEXT"): "wants TLS; add -X security.protocol=SSL ",
    (
        "TLS",
        "SASL_SSL",
    ): "takes no login, but security.protocol=SASL_SSL asks for one; say -X security.protocol=SSL,",
    ("LOGIN", "PLAINTEXT"): "wants TLS and a login; add -X security.protocol=SASL_SSL -X sasl.mechanism=... ",
    ("LOGIN", "SSL"): "wants SASL; name a mechanism and credentials: -X security.protocol=SASL_SSL ",
}


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_the_command_line_names_the_protocol(broker: Broker, listener: str, protocol: str) -> None:
    """Before a client library tries again for half a minute and blames the connection."""
    complaint = SAID.get((listener, protocol))
    with socket.create_connection(("127.0.0.1", broker.ports[listener])) as connected:
        if complaint is not None:
            with pytest.raises(NotKafka, match=re.escape(complaint)):
                require_kafka(connected, "host:1", protocol)
        elif LISTENERS[listener].endswith("SSL") == protocol.endswith("SSL"):
            # Without a certificate of the client, nothing behind it can be seen of the third listener.
            assert require_kafka(connected, "host:1", protocol) is None
        else:
            with pytest.raises(NotKafka, match=r"wants TLS|does not speak TLS"):
                require_kafka(connected, "host:1", protocol)


# --- clients in Python ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WAYS)
def test_confluent_kafka(ways: dict[str, Way], name: str) -> None:
    way = ways[name]
    options: dict[str, Any] = {
        "bootstrap.servers": way.bootstrap, "security.protocol": way.protocol, "ssl.ca.location": way.file("ca.pem"),
        "log_level": 0, "message.timeout.ms": 60_000,
    }  # fmt: skip
    if name == "certificate":
        options |= {
            "ssl.certificate.location": way.file("client.pem"),
            "ssl.key.location": way.file("client-key.pem"),
        }
    if name == "OAUTHBEARER":
        options["oauth_cb"] = lambda _: (way.token, time.time() + 600, way.user, {})
    elif way.mechanism:
        options |= {"sasl.username": way.user, "sasl.password": PASSWORD}
    if way.mechanism:
        options["sasl.mechanism"] = way.mechanism
    delivered: list[Any] = []
    producer = Producer(options)
    producer.produce(way.topic, b"by librdkafka", on_delivery=lambda *delivery: delivered.append(delivery))
    assert producer.flush(PATIENCE_S) == 0
    error, sent = delivered[0]
    assert error is None, error
    del options["message.timeout.ms"]
    consumer = Consumer({**options, "group.id": "login-librdkafka"})
    consumer.assign([TopicPartition(way.topic, 0, sent.offset())])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    assert message is not None
    assert (message.error(), message.value()) == (None, b"by librdkafka")


def python_options(way: Way, provider: Any) -> dict[str, Any]:
    """What kafka-python and aiokafka have in common."""
    options: dict[str, Any] = {"bootstrap_servers": way.bootstrap, "security_protocol": way.protocol}
    context = ssl.create_default_context(cafile=way.file("ca.pem"))
    if way.name == "certificate":
        context.load_cert_chain(way.file("client.pem"), way.file("client-key.pem"))
    options["ssl_context"] = context
    if way.name == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = provider
    elif way.mechanism:
        options |= {"sasl_plain_username": way.user, "sasl_plain_password": PASSWORD}
    if way.mechanism:
        options["sasl_mechanism"] = way.mechanism
    return options


@pytest.mark.parametrize("name", WAYS)
def test_kafka_python(ways: dict[str, Way], name: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as Place
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return ways[name].token

    way = ways[name]
    options = python_options(way, Provider())
    producer = KafkaProducer(**options)
    offset = producer.send(way.topic, b"by kafka-python", partition=0).get(PATIENCE_S).offset
    producer.close()
    consumer = KafkaConsumer(consumer_timeout_ms=PATIENCE_S * 1000, **options)
    consumer.assign([Place(way.topic, 0)])
    consumer.seek(Place(way.topic, 0), offset)
    value = next(consumer).value
    consumer.close()
    assert value == b"by kafka-python"


@pytest.mark.parametrize("name", WAYS)
def test_aiokafka(ways: dict[str, Way], name: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka import TopicPartition as Place
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return ways[name].token

    async def there_and_back() -> bytes:
        way = ways[name]
        options = python_options(way, Provider())
        async with AIOKafkaProducer(**options) as producer:
            sent = await producer.send_and_wait(way.topic, b"by aiokafka", partition=0)
        async with AIOKafkaConsumer(**options) as consumer:
            consumer.assign([Place(way.topic, 0)])
            consumer.seek(Place(way.topic, 0), sent.offset)
            payload: bytes = (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value
            return payload

    assert asyncio.run(there_and_back()) == b"by aiokafka"


@pytest.mark.parametrize("name", WAYS)
def test_the_client_of_pipelines_and_services(ways: dict[str, Way], name: str, tmp_path: Path) -> None:
    """What the source and the sink of PySpark connect with (tests/pipelines/test_secured_kafka.py has Spark itself)."""
    way = ways[name]
    options = {
        "bootstrap.servers": way.bootstrap, "security.protocol": way.protocol, "ssl.ca.location": way.file("ca.pem"),
    }  # fmt: skip
    if name == "certificate":
        options |= {
            "ssl.certificate.location": way.file("client.pem"),
            "ssl.key.location": way.file("client-key.pem"),
        }
    if way.mechanism:
        options |= {"sasl.mechanism": way.mechanism, "sasl.username": way.user, "sasl.password": PASSWORD}
    if way.name == "OAUTHBEARER":
        token = tmp_path / "token.jwt"
        token.write_text(way.token)
        options |= {"sasl.oauthbearer.token.endpoint.url": f"file://{token}"}
    with BlockingClient(ClientOptions.from_kafka(options)) as client:
        topics = client.topics()
    assert way.topic in topics
    assert set(topics) & {topic_of(name) for name in WAYS} == (
        {way.topic} if name != "tls" else {*map(topic_of, WAYS)}
    )


# --- clients in other languages -------------------------------------------------------------------------------------


@pytest.mark.java
def test_java(ways: dict[str, Way], tmp_path: Path) -> None:
    files = [java_properties(way, tmp_path) for way in ways.values()]
    report = foreign.run(foreign.java_program(), "-", "logins", *map(str, files))
    assert report["logins"] == len(WAYS)


def java_properties(way: Way, folder: Path) -> Path:
    options = {
        "bootstrap.servers": way.bootstrap, "security.protocol": way.protocol, "probe.topic": way.topic,
        "ssl.truststore.type": "PEM", "ssl.truststore.location": way.file("ca.pem"),
    }  # fmt: skip
    if way.name == "certificate":
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": way.file("client-store.pem")}
    if way.mechanism:
        options["sasl.mechanism"] = way.mechanism
        module = f"{SCRAM_MODULE} required" if way.name.startswith("SCRAM") else f"{PLAIN_MODULE} required"
        options["sasl.jaas.config"] = f'{module} username="{way.user}" password="{QUOTED}";'
    if way.name == "OAUTHBEARER":
        token = folder / "token.jwt"
        token.write_text(way.token)
        options |= {
            "sasl.jaas.config": f"{BEARER}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{BEARER}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": f"file://{token}", "probe.token": f"file://{token}",
        }  # fmt: skip
    file = folder / f"{way.name}.properties"
    escaped = {name: value.replace("\\", "\\\\") for name, value in options.items()}
    file.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
    return file


@pytest.fixture
def rows(ways: dict[str, Way], tmp_path: Path) -> str:
    file = tmp_path / "logins.json"
    file.write_text(json.dumps([way.as_json() for way in ways.values()]))
    return str(file)


@pytest.mark.go
@pytest.mark.parametrize("client", ["franz", "sarama"])
def test_go(rows: str, client: str) -> None:
    probe = [str(foreign.go_program("go", foreign.HERE / "go", "the Go modules"))]
    assert foreign.run(probe, "-", f"{client}-logins", rows)["logins"] == len(WAYS)


@pytest.mark.node
def test_kafkajs(rows: str) -> None:
    node, modules = foreign.need("node"), foreign.kafkajs_modules()
    probe = [
        "env",
        f"PROBE_MODULES={modules}",
        "NODE_NO_WARNINGS=1",
        node,
        str(foreign.HERE / "node" / "probe.js"),
    ]
    assert foreign.run(probe, "127.0.0.1:1", "logins", rows)["logins"] == len(WAYS)
