"""TLS listeners of one broker, used by clients that somebody else wrote."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker.net import tls as net_tls
from barnabas.testing import Broker
from tests.security.certificates import PASSWORD, Certificates

LISTENERS = ("PLAINTEXT", "SSL", "AUTH", "ASKS", "JAVA", "TEXT", "OLD")
PROTOCOLS = ",".join(f"{name}:{'PLAINTEXT' if name == 'PLAINTEXT' else 'SSL'}" for name in LISTENERS)
PATIENCE_S = 60


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[Broker]:
    file = certificates.file
    revoked = certificates.folder / "ca-and-revoked.pem"
    crl = certificates.authority.revoke([(certificates.folder / "revoked.pem").read_bytes()])
    revoked.write_bytes(certificates.authority.pem + crl)
    server = (certificates.folder / "server.pem").read_text()
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": PROTOCOLS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": file("server-store.pem"),
        "listener.name.auth.ssl.client.auth": "required",
        "listener.name.auth.ssl.truststore.location": str(revoked),
        "listener.name.auth.ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1-by-rule/,DEFAULT",
        "listener.name.asks.ssl.client.auth": "requested",
        "listener.name.asks.ssl.truststore.location": certificates.keytool_trust("JKS"),
        "listener.name.asks.ssl.truststore.password": PASSWORD,
        "listener.name.asks.ssl.keystore.location": certificates.keytool_keys("server", "JKS"),
        "listener.name.asks.ssl.keystore.password": PASSWORD,
        "listener.name.java.ssl.keystore.location": certificates.pkcs12("server"),
        "listener.name.java.ssl.keystore.type": "PKCS12",
        "listener.name.java.ssl.keystore.password": PASSWORD,
        "listener.name.java.ssl.truststore.location": certificates.keytool_trust("PKCS12"),
        "listener.name.java.ssl.truststore.password": PASSWORD,
        "listener.name.java.ssl.client.auth": "required",
        "listener.name.text.ssl.keystore.key": (certificates.folder / "server-key.pem")
        .read_text()
        .replace("\n", " "),
        "listener.name.text.ssl.keystore.certificate.chain": server.replace("\n", " "),
        "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.old.ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    }
    with Broker(options) as broker:
        yield broker


@pytest.fixture
def address(secured: Broker) -> Callable[[str], str]:
    return lambda name: f"127.0.0.1:{secured.ports[name]}"


def librdkafka(certificates: Certificates, address: str, who: str = "") -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": address, "security.protocol": "ssl", "ssl.ca.location": certificates.file("ca.pem"),
        "log_level": 0, "socket.timeout.ms": 60_000,
    }  # fmt: skip
    if who:
        options |= {
            "ssl.certificate.location": certificates.file(f"{who}.pem"),
            "ssl.key.location": certificates.file(f"{who}-key.pem"),
        }
    return options


def round_trip(options: dict[str, Any], topic: str, values: list[bytes]) -> None:
    """Create a topic, write to it and read it back."""
    admin = AdminClient(options)  # held: a client that is collected drops what it was asked
    admin.create_topics([NewTopic(topic, 1)])[topic].result(PATIENCE_S)
    producer = Producer({**options, "message.max.bytes": 10_000_000, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**options, "group.id": f"g-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values_read: list[bytes] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(values_read) < len(values) and time.monotonic() < deadline_s:
        values_read += [message.value() for message in consumer.consume(500, 1.0) if message.error() is None]
    consumer.close()
    assert values_read == values


@pytest.mark.parametrize(
    ("listener", "who"),
    [
        ("SSL", ""),
        ("AUTH", "client"),
        ("ASKS", ""),
        ("ASKS", "client"),
        ("JAVA", "client"),
        ("TEXT", ""),
        ("OLD", ""),
    ],
)
def test_librdkafka(
    certificates: Certificates, address: Callable[[str], str], listener: str, who: str
) -> None:
    values = [b"small %d" % number for number in range(200)] + [
        bytes([number]) * 900_000 for number in range(8)
    ]
    options = librdkafka(certificates, address(listener), who)
    round_trip(options, f"librdkafka-{listener}-{who or 'nobody'}", values)


def test_kafka_python(certificates: Certificates, address: Callable[[str], str]) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    options = {
        "bootstrap_servers": address("AUTH"), "security_protocol": "SSL", "ssl_cafile": certificates.file("ca.pem"),
        "ssl_certfile": certificates.file("client.pem"), "ssl_keyfile": certificates.file("client-key.pem"),
    }  # fmt: skip
    producer = KafkaProducer(**options)
    for number in range(50):
        producer.send("kafka-python", b"%d" % number)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **options
    )
    values = [next(consumer).value for _ in range(50)]
    consumer.close()
    assert values == [b"%d" % number for number in range(50)]


def test_aiokafka(certificates: Certificates, address: Callable[[str], str]) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def use() -> list[bytes]:
        context = ssl.create_default_context(cafile=certificates.file("ca.pem"))
        context.load_cert_chain(certificates.file("client.pem"), certificates.file("client-key.pem"))
        options = {
            "bootstrap_servers": address("JAVA"), "security_protocol": "SSL", "ssl_context": context,
        }  # fmt: skip
        async with AIOKafkaProducer(**options) as producer:
            for number in range(50):
                await producer.send_and_wait("aiokafka", b"%d" % number)
        consumer = AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", **options)
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value for _ in range(50)]

    assert asyncio.run(use()) == [b"%d" % number for number in range(50)]


# --- who is refused, and what the log says -------------------------------------------------------------------------


def refused_with(options: dict[str, Any]) -> None:
    with pytest.raises(KafkaException):
        AdminClient({**options, "socket.timeout.ms": 3000}).list_topics(timeout=2)


@pytest.mark.parametrize(
    ("listener", "who", "reason"),
    [
        ("AUTH", "", "shows no certificate"),
        ("AUTH", "stranger", "the client's certificate is refused"),
        ("AUTH", "revoked", "certificate revoked"),
        ("ASKS", "stranger", "the client's certificate is refused"),
    ],
)
def test_clients_without_the_right_certificate(
    certificates: Certificates, address: Callable[[str], str], caplog: pytest.LogCaptureFixture,
    listener: str, who: str, reason: str,
) -> None:  # fmt: skip
    refused_with(librdkafka(certificates, address(listener), who))
    await_said(caplog, reason)


def test_a_client_that_does_not_trust_the_broker(
    certificates: Certificates, address: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    refused_with(
        librdkafka(certificates, address("SSL")) | {"ssl.ca.location": certificates.file("stranger-ca.pem")}
    )
    await_said(caplog, "does not trust this broker's certificate")


def test_plain_clients_on_a_tls_port_and_the_reverse(
    certificates: Certificates, address: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    refused_with({"bootstrap.servers": address("SSL"), "log_level": 0})
    await_said(caplog, "this is a plain Kafka client, and the listener speaks TLS")
    refused_with(librdkafka(certificates, address("PLAINTEXT")))
    await_said(caplog, "this is a TLS handshake, and the listener speaks plain text")
    host, _, port = address("SSL").partition(":")
    with socket.create_connection((host, int(port)), 30) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    await_said(caplog, "this is a plain HTTP request")


def await_said(caplog: pytest.LogCaptureFixture, reason: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if any(reason in str(getattr(record, "reason", "")) for record in list(caplog.records)):
            return
        time.sleep(0.02)
    raise AssertionError([getattr(record, "reason", record.message) for record in caplog.records])


def test_half_open_handshakes_are_cut_and_others_served(
    certificates: Certificates,
    address: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(net_tls, "HANDSHAKE_S_MAX", 1.0)
    host, _, port = address("SSL").partition(":")
    idle = [socket.create_connection((host, int(port)), 30) for _ in range(200)]
    try:
        for sock in idle[::2]:
            sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00")  # the first bytes of a hello that never ends
        round_trip(librdkafka(certificates, address("SSL")), "beside-stalled-handshakes", [b"served"])
        for sock in idle:
            sock.settimeout(PATIENCE_S)
            assert sock.recv(1) == b""
    finally:
        for sock in idle:
            sock.close()
    await_said(caplog, "the TLS handshake took over")


def test_bytes_that_are_no_tls_after_the_handshake(
    certificates: Certificates, address: Callable[[str], str]
) -> None:
    """A record that was changed on its way ends the connection, and nothing of it is handled."""
    context = ssl.create_default_context(cafile=certificates.file("ca.pem"))
    host, _, port = address("SSL").partition(":")
    raw = socket.create_connection((host, int(port)), 30)
    secured = context.wrap_socket(raw, server_hostname="127.0.0.1")
    try:
        plain = socket.socket(fileno=socket.dup(secured.fileno()))
        plain.sendall(b"\x17\x03\x03" + struct.pack(">H", 64) + b"\0" * 64)
        plain.settimeout(PATIENCE_S)
        while plain.recv(4096):
            pass
        plain.close()
    finally:
        secured.close()


def test_requests_in_odd_pieces(certificates: Certificates, address: Callable[[str], str]) -> None:
    """Many requests in one record, and one request in many: each is answered once and in order."""
    context = ssl.create_default_context(cafile=certificates.file("ca.pem"))
    host, _, port = address("SSL").partition(":")
    count = 2000
    requests = b"".join(struct.pack(">ihhih", 10, 18, 0, number, -1) for number in range(count))
    with (
        socket.create_connection((host, int(port)), 30) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as sock,
    ):
        sock.settimeout(PATIENCE_S)
        for begin in range(0, 97, 1):
            sock.sendall(requests[begin : begin + 1])
        sock.sendall(requests[97:])
        stream, seen = b"", 0
        while seen < count:
            stream += sock.recv(1 << 16)
            while len(stream) >= 8 and len(stream) >= 4 + (size := int.from_bytes(stream[:4], "big")):
                assert int.from_bytes(stream[4:8], "big") == seen
                seen, stream = seen + 1, stream[4 + size :]


# --- replacing certificates ------------------------------------------------------------------------------------------


def test_certificates_are_replaced_while_running(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = tmp_path / "store.pem"
    store.write_bytes(Path(certificates.file("server-store.pem")).read_bytes())
    options = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "listener.name.ssl.ssl.keystore.location": str(store),
    }
    with Broker(options) as broker:
        port = broker.ports["SSL"]
        before = serial(certificates, port)
        kept = librdkafka(certificates, f"127.0.0.1:{port}")
        consumer = Consumer({**kept, "group.id": "kept"})
        consumer.list_topics(timeout=PATIENCE_S)

        store.write_bytes(b"-----BEGIN PRIVATE KEY-----\nnonsense\n-----END PRIVATE KEY-----\n")
        refresh(broker)
        await_said(caplog, "no private key with its certificate can be read")
        assert serial(certificates, port) == before

        certificates.issue("elsewhere", "10.1.2.3")
        store.write_bytes(Path(certificates.file("elsewhere-store.pem")).read_bytes())
        refresh(broker)
        await_said(caplog, "its subject is CN=elsewhere")
        assert serial(certificates, port) == before

        certificates.issue("server", "127.0.0.1", "localhost")
        store.write_bytes(Path(certificates.file("server-store.pem")).read_bytes())
        until_another(certificates, port, before)  # a file that changes is seen by itself
        before = serial(certificates, port)

        certificates.issue("server", "127.0.0.1", "localhost")
        other = tmp_path / "other.pem"
        other.write_bytes(Path(certificates.file("server-store.pem")).read_bytes())
        alter(f"127.0.0.1:{broker.port}", "listener.name.ssl.ssl.keystore.location", str(other))
        until_another(certificates, port, before)
        assert consumer.list_topics(timeout=PATIENCE_S).brokers
        consumer.close()


def test_dynamic_passwords_are_encrypted_in_the_tree(certificates: Certificates, tmp_path: Path) -> None:
    """A PKCS12 store with its password by kafka-configs' way; the secret is changed at a restart; no API shows either."""
    first = tmp_path / "first.pem"
    first.write_bytes(Path(certificates.file("server-store.pem")).read_bytes())
    location, password = "listener.name.ssl.ssl.keystore.location", "listener.name.ssl.ssl.keystore.password"
    options = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "listener.name.ssl.ssl.keystore.location": str(first),
    }
    data, refused = tmp_path / "data", pytest.raises(KafkaException, match=r"set password\.encoder\.secret")
    with Broker(options, data_dir=data) as broker, refused:
        alter(broker.bootstrap, password, PASSWORD)
    certificates.issue("server", "127.0.0.1", "localhost")
    store = certificates.pkcs12("server")
    texts = []
    for secret in ({"password.encoder.secret": "one"},
                   {"password.encoder.secret": "two", "password.encoder.old.secret": "one"},
                   {"password.encoder.secret": "two"}):  # fmt: skip
        with Broker({**options, **secret}, data_dir=data) as broker:
            if not texts:
                before = serial(certificates, broker.ports["SSL"])
                alter(broker.bootstrap, password, PASSWORD)
                alter(broker.bootstrap, location, store)
                until_another(certificates, broker.ports["SSL"], before)
            assert serial(certificates, broker.ports["SSL"]) == serial_of(certificates, "server")
            raw, _ = broker.inside.wait_for(
                broker.inside.server.services.controller.tree.get("/config/brokers/1")
            )
            texts.append(json.loads(raw)["config"][password])
            assert PASSWORD.encode() not in raw
            assert "encryptedPassword:" in texts[-1]
            assert all(entry.value is None for entry in described(broker.bootstrap, (password,)))
    assert texts[0] != texts[1] == texts[2]
    for path in data.rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes(), path


def test_a_start_warns_of_passwords_of_before_there_was_a_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name, node = "listener.name.ssl.ssl.keystore.password", "/config/brokers/1"
    options, data = {"listeners": "PLAINTEXT://127.0.0.1:0"}, tmp_path / "data"
    with Broker(options, data_dir=data) as broker:
        tree = broker.inside.server.services.controller.tree
        broker.inside.wait_for(
            tree.create(node, json.dumps({"version": 1, "config": {name: PASSWORD}}).encode())
        )
    with Broker(options, data_dir=data):
        warned = [row for row in caplog.records if "stored in plain text in the metadata tree" in row.message]
        assert [getattr(row, "options", None) for row in warned] == [name]
    caplog.clear()
    with Broker({**options, "password.encoder.secret": "one"}, data_dir=data) as broker:
        raw, _ = broker.inside.wait_for(broker.inside.server.services.controller.tree.get(node))
        assert PASSWORD.encode() not in raw
    assert not [row for row in caplog.records if "as they are" in row.message]
    files = [path for path in data.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()], "nor what was replaced"


def described(bootstrap: str, names: tuple[str, ...]) -> list[Any]:
    from confluent_kafka.admin import ConfigResource

    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    configs = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return [configs[name] for name in names]


def serial_of(certificates: Certificates, name: str) -> str:
    from cryptography import x509

    return f"{x509.load_pem_x509_certificate(Path(certificates.file(f'{name}.pem')).read_bytes()).serial_number:X}"


def until_another(certificates: Certificates, port: int, before: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while serial(certificates, port) == before:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def refresh(broker: Broker) -> None:
    """What the broker does every few seconds."""
    server = broker.inside.server
    broker.inside.call(server.services.listeners.refresh_tls)


def serial(certificates: Certificates, port: int) -> str:
    context = ssl.create_default_context(cafile=certificates.file("ca.pem"))
    with (
        socket.create_connection(("127.0.0.1", port), 30) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as sock,
    ):
        certificate = sock.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"]).lstrip("0")  # whole bytes, in hexadecimal


def alter(bootstrap: str, name: str, value: str) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    resource = ConfigResource(
        ConfigResource.Type.BROKER,
        "1",
        incremental_configs=[ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)],
    )
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
