"""Logins on SASL listeners of one broker, by clients that somebody else wrote and by raw bytes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from barnabas.security.sasl.oauthbearer import UNSECURED
from barnabas.testing import Broker
from tests.security.certificates import Certificates
from tests.security.test_tls import PATIENCE_S, await_said, round_trip

PASSWORD = 'correct horse; "battery" = staple'
QUOTED = PASSWORD.replace('"', '\\"')
PLAIN_USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="admin" password="x" user_admin="x" user_alice="{QUOTED}";'
)
SCRAM = "SCRAM-SHA-256,SCRAM-SHA-512"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Issuer:
    """Signs tokens, and writes the file with its public keys."""

    def __init__(self, folder: Path) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.curve = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / "jwks.json"
        rows = []
        for kid, algorithm, key in (
            ("rsa", jwt.algorithms.RSAAlgorithm, self.key),
            ("ec", jwt.algorithms.ECAlgorithm, self.curve),
        ):
            rows.append({**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"})
        self.file.write_text(json.dumps({"keys": rows}))

    def token(
        self, user: str = "alice", *, kid: str = "rsa", key: Any = None, alg: str = "", **claims: Any
    ) -> str:
        alg = alg or ("RS256" if kid == "rsa" else "ES256")
        key = key or (self.key if kid == "rsa" else self.curve)
        values = {"sub": user, "iss": "tests", "aud": "kafka", "exp": time.time() + 3600, **claims}
        values = {name: value for name, value in values.items() if value is not None}
        return jwt.encode(values, key, algorithm=alg, headers={"kid": kid})


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


LISTENERS = {
    "FREE": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL", "CALLED": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT",
    "TRIAL": "SASL_PLAINTEXT",
}  # fmt: skip


@pytest.fixture(scope="module")
def secured(certificates: Certificates, issuer: Issuer) -> Iterator[Broker]:
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in LISTENERS.items()),
        "ssl.keystore.location": certificates.file("server-store.pem"),
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM},OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.both.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.short.plain.sasl.jaas.config": PLAIN_USERS,
        "listener.name.short.connections.max.reauth.ms": "1500",
        "listener.name.called.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.called.plain.sasl.server.callback.handler.class": "tests.security.users:check",
        "listener.name.trial.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.trial.oauthbearer.sasl.server.callback.handler.class": UNSECURED,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{issuer.file}",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "0",
        "sasl.oauthbearer.expected.audience": "kafka,other",
        "sasl.oauthbearer.expected.issuer": "tests",
        "sasl.server.max.receive.size": "65536",
    }
    with Broker(options) as broker:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.ports['FREE']}"})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                "alice", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(PATIENCE_S)
        yield broker


@pytest.fixture
def address(secured: Broker) -> Callable[[str], str]:
    return lambda name: f"127.0.0.1:{secured.ports[name]}"


def librdkafka(
    certificates: Certificates,
    address: str,
    mechanism: str,
    token: Callable[[], str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap.servers": address, "security.protocol": "sasl_plaintext", "sasl.mechanism": mechanism,
        "sasl.username": "alice", "sasl.password": PASSWORD, "ssl.ca.location": certificates.file("ca.pem"),
        "log_level": 0, **more,
    }  # fmt: skip
    if token is not None:
        del options["sasl.username"], options["sasl.password"]
        options["oauth_cb"] = lambda _: (token(), time.time() + 600, "alice", {})
    return options


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL", "BOTH"])
def test_librdkafka(
    certificates: Certificates, issuer: Issuer, address: Callable[[str], str], listener: str, mechanism: str
) -> None:
    protocol = {"security.protocol": LISTENERS[listener].lower()}
    token = (lambda: issuer.token(kid="ec")) if mechanism == "OAUTHBEARER" else None
    options = librdkafka(certificates, address(listener), mechanism, token, **protocol)
    round_trip(options, f"librdkafka-{listener}-{mechanism}", [b"%d" % number for number in range(200)])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(
    certificates: Certificates, issuer: Issuer, address: Callable[[str], str], mechanism: str
) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return issuer.token()

    options: dict[str, Any] = {
        "bootstrap_servers": address("BOTH"), "security_protocol": "SASL_SSL", "sasl_mechanism": mechanism,
        "ssl_cafile": certificates.file("ca.pem"),
    }  # fmt: skip
    if mechanism == "OAUTHBEARER":
        options["sasl_oauth_token_provider"] = Provider()
    else:
        options |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
    topic = f"kafka-python-{mechanism}"
    producer = KafkaProducer(**options)
    for number in range(20):
        producer.send(topic, b"%d" % number)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **options)
    found = [next(consumer).value for _ in range(20)]
    consumer.close()
    assert found == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(issuer: Issuer, address: Callable[[str], str], mechanism: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return issuer.token()

    async def use() -> list[bytes]:
        options: dict[str, Any] = {
            "bootstrap_servers": address("SASL"), "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism,
        }  # fmt: skip
        if mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = Provider()
        else:
            options |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORD}
        topic = f"aiokafka-{mechanism}"
        async with AIOKafkaProducer(**options) as producer:
            for number in range(20):
                await producer.send_and_wait(topic, b"%d" % number)
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value for _ in range(20)]

    assert asyncio.run(use()) == [b"%d" % number for number in range(20)]


def test_a_function_decides(
    certificates: Certificates, address: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    options = librdkafka(certificates, address("CALLED"), "PLAIN")
    options |= {"sasl.username": "called-bob", "sasl.password": "bob-dellac"}
    round_trip(options, "called", [b"x"])
    refused(options | {"sasl.password": "wrong"})
    refused(options | {"sasl.username": "breaks"})
    assert not any(
        "wrong" in str(vars(record)) or "bob-dellac" in str(vars(record)) for record in caplog.records
    )


def refused(options: dict[str, Any]) -> str:
    """What the client is told."""
    said: list[KafkaError] = []
    admin = AdminClient({**options, "error_cb": said.append})
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        admin.poll(0.1)
        if any(error.code() == KafkaError._AUTHENTICATION for error in said):
            return next(
                str(error).partition(" (after")[0]
                for error in said
                if error.code() == KafkaError._AUTHENTICATION
            )
    raise AssertionError(f"no refusal of the login: {said}")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(
    certificates: Certificates, address: Callable[[str], str], mechanism: str
) -> None:
    options = librdkafka(certificates, address("SASL"), mechanism)
    wrong = refused(options | {"sasl.password": "wrong"})
    unknown = refused(options | {"sasl.username": "nobody"})
    assert wrong.replace("alice", "nobody") == unknown
    assert "Authentication failed" in wrong


def test_scram_credentials_are_described_and_deleted(
    certificates: Certificates, address: Callable[[str], str]
) -> None:
    admin = AdminClient({"bootstrap.servers": address("FREE")})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    change = UserScramCredentialUpsertion("carol/ö", info, b"her password")
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(PATIENCE_S)
    described = admin.describe_user_scram_credentials(["carol/ö"])["carol/ö"].result(PATIENCE_S)
    assert [(row.mechanism, row.iterations) for row in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    options = librdkafka(certificates, address("SASL"), "SCRAM-SHA-256")
    options |= {"sasl.username": "carol/ö", "sasl.password": "her password"}
    round_trip(options, "carol", [b"x"])
    for future in admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("carol/ö", ScramMechanism.SCRAM_SHA_256)]
    ).values():
        future.result(PATIENCE_S)
    refused(options)
    with pytest.raises(KafkaException, match="does not exist"):
        admin.describe_user_scram_credentials(["carol/ö"])["carol/ö"].result(PATIENCE_S)
    low = UserScramCredentialUpsertion("dave", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 100), b"p")
    with pytest.raises(KafkaException, match="Too few iterations"):
        next(iter(admin.alter_user_scram_credentials([low]).values())).result(PATIENCE_S)


def test_a_login_is_renewed_while_records_flow(
    certificates: Certificates, address: Callable[[str], str]
) -> None:
    """KIP-368: librdkafka renews on its connections; nothing is lost and nobody notices."""
    options = librdkafka(certificates, address("SHORT"), "SCRAM-SHA-256")
    producer = Producer({**options, "linger.ms": 0})
    consumer = Consumer({**options, "group.id": "renewed", "auto.offset.reset": "earliest"})
    consumer.subscribe(["renewed"])
    end_s, sent, found = time.monotonic() + 4.5, 0, 0
    failed: list[object] = []
    while time.monotonic() < end_s:
        producer.produce(
            "renewed", b"%d" % sent, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        sent += 1
        producer.poll(0.01)
        found += sum(message.error() is None for message in consumer.consume(100, 0.02))
    assert producer.flush(PATIENCE_S) == 0
    deadline_s = time.monotonic() + PATIENCE_S
    while found < sent and time.monotonic() < deadline_s:
        found += sum(message.error() is None for message in consumer.consume(100, 0.5))
    consumer.close()
    assert (found, failed) == (sent, [])


# --- raw bytes -------------------------------------------------------------------------------------------------------


class Peer:
    """A client that sends what it likes."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self.sock = socket.create_connection((host, int(port)), PATIENCE_S)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def frame(self, data: bytes) -> bytes:
        """Send a frame; the answer, or b"" when the connection ends instead."""
        try:
            self.sock.sendall(struct.pack(">i", len(data)) + data)
            return self.read()
        except (ConnectionResetError, BrokenPipeError):
            return b""

    def read(self) -> bytes:
        head = self._exactly(4)
        return self._exactly(struct.unpack(">i", head)[0]) if head else b""

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                more = self.sock.recv(count - len(data))
            except ConnectionResetError:
                return b""
            if not more:
                return b""
            data += more
        return data

    def request(self, key: int, version: int, body: bytes) -> bytes:
        return self.frame(struct.pack(">hhih", key, version, 7, -1) + body)[4:]

    def handshake(self, mechanism: str, version: int = 1) -> int:
        name = mechanism.encode()
        answer = self.request(17, version, struct.pack(">h", len(name)) + name)
        return int(struct.unpack(">h", answer[:2])[0]) if answer else -1

    def token(self, token: bytes, version: int = 0) -> tuple[int, bytes]:
        """(error, the answering token); -1 when the connection ends."""
        answer = self.request(36, version, struct.pack(">i", len(token)) + token)
        if not answer:
            return -1, b""
        error, length = struct.unpack(">hh", answer[:4])
        at = 4 + max(length, 0)
        (size,) = struct.unpack(">i", answer[at : at + 4])
        return error, answer[at + 4 : at + 4 + size]

    def works(self) -> bool:
        """Whether Metadata is answered."""
        return bool(self.request(3, 1, struct.pack(">i", 0)))


PLAIN_TOKEN = b"\0alice\0" + PASSWORD.encode()


def test_only_the_handshake_is_answered_before_a_login(address: Callable[[str], str]) -> None:
    with Peer(address("SASL")) as peer:
        assert peer.request(18, 0, b"")[:2] == b"\0\0"  # ApiVersions
        assert peer.handshake("PLAIN") == 0
        assert peer.token(PLAIN_TOKEN) == (0, b"")
        assert peer.works()
    for key in (*range(93), 30000):
        if key not in (17, 18, 36):
            with Peer(address("SASL")) as peer:
                assert peer.request(key, 0, bytes(32)) == b"", key
    with Peer(address("SASL")) as peer:
        assert peer.token(PLAIN_TOKEN)[0] == 34  # ILLEGAL_SASL_STATE
        assert not peer.works()
    with Peer(address("SASL")) as peer:
        assert peer.handshake("CRAM-MD5") == 33
        assert peer.handshake("PLAIN") == -1
    with Peer(address("FREE")) as peer:
        assert peer.handshake("PLAIN") == 34


def test_tokens_without_requests(address: Callable[[str], str]) -> None:
    """Handshake version 0, as clients of 0.10 log in."""
    with Peer(address("SASL")) as peer:
        assert peer.handshake("PLAIN", 0) == 0
        assert peer.frame(PLAIN_TOKEN) == b""  # an answer of no bytes
        assert peer.works()
    with Peer(address("SASL")) as peer:
        assert peer.handshake("PLAIN", 0) == 0
        begun_s = time.monotonic()
        assert peer.frame(b"\0alice\0wrong") == b""
        assert time.monotonic() - begun_s >= 0.1  # connection.failed.authentication.delay.ms
        assert not peer.works()


def test_requests_behind_a_login_in_the_same_packet(address: Callable[[str], str]) -> None:
    with Peer(address("SASL")) as peer:
        frames = b""
        for key, body in (
            (17, struct.pack(">h", 5) + b"PLAIN"),
            (36, struct.pack(">i", len(PLAIN_TOKEN)) + PLAIN_TOKEN),
            (3, struct.pack(">i", 0)),
            (3, struct.pack(">i", 0)),
        ):
            data = struct.pack(">hhih", key, 1 if key != 36 else 0, key, -1) + body
            frames += struct.pack(">i", len(data)) + data
        peer.sock.sendall(frames)
        assert [struct.unpack(">i", peer.read()[:4])[0] for _ in range(4)] == [17, 36, 3, 3]


def test_oversized_requests_before_a_login(
    address: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    for size in (65_537, 300_000, 50_000_000):
        with Peer(address("SASL")) as peer:
            data = bytes([0, 18]) + bytes(min(size, 400_000) - 2)
            try:
                peer.sock.sendall(struct.pack(">i", size) + data)
                assert peer.sock.recv(1) == b""
            except (ConnectionResetError, BrokenPipeError):
                pass
    await_said(caplog, "sasl.server.max.receive.size")
    with Peer(address("SASL")) as peer:
        assert peer.handshake("PLAIN") == 0
        assert peer.token(PLAIN_TOKEN)[0] == 0
        assert peer.request(18, 0, bytes(200_000))[:2] == b"\0\0"  # and after one the limit is the usual one


@pytest.mark.parametrize("listener", ["SASL"])
def test_tokens_that_must_be_refused(issuer: Issuer, address: Callable[[str], str], listener: str) -> None:
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    shared = json.dumps(json.loads(issuer.file.read_text())["keys"][0])
    encode = lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()  # noqa: E731
    encode_bytes = lambda value: base64.urlsafe_b64encode(value).rstrip(b"=").decode()  # noqa: E731
    claims = {"sub": "alice", "iss": "tests", "aud": "kafka", "exp": time.time() + 3600}
    by_hand = f"{encode({'alg': 'HS256', 'kid': 'rsa'})}.{encode(claims)}"
    bad = {
        "none": f"{encode({'alg': 'none', 'kid': 'rsa'})}.{encode(claims)}.",
        "shared key": f"{by_hand}.{encode_bytes(hmac.digest(shared.encode(), by_hand.encode(), 'sha256'))}",
        "foreign key": issuer.token(key=stranger),
        "unknown key": issuer.token(kid="rsa", key=stranger).replace(".", ".", 1),
        "expired": issuer.token(exp=time.time() - 3600),
        "no expiry": issuer.token(exp=None),
        "early": issuer.token(nbf=time.time() + 3600),
        "audience": issuer.token(aud="somebody"),
        "no audience": issuer.token(aud=None),
        "issuer": issuer.token(iss="somebody"),
        "no user": issuer.token(sub=None),
        "cut": issuer.token()[:-10],
        "nonsense": "abc",
    }
    for name, token in bad.items():
        with Peer(address(listener)) as peer:
            assert peer.handshake("OAUTHBEARER") == 0
            error, answer = peer.token(b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01")
            assert (error, answer) == (0, b'{"status":"invalid_token"}'), name
            assert peer.token(b"\x01")[0] == 58, name
            assert not peer.works()
    with Peer(address(listener)) as peer:
        assert peer.handshake("OAUTHBEARER") == 0
        assert peer.token(b"n,,\x01auth=Bearer " + issuer.token(aud="other").encode() + b"\x01\x01") == (
            0,
            b"",
        )
        assert peer.works()


def test_unsecured_tokens_only_where_they_are_named(issuer: Issuer, address: Callable[[str], str]) -> None:
    encode = lambda value: base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()  # noqa: E731
    claims = {"sub": "trial", "aud": "kafka", "iss": "tests", "exp": time.time() + 60}
    token = f"{encode({'alg': 'none'})}.{encode(claims)}."
    message = b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    with Peer(address("TRIAL")) as peer:
        assert peer.handshake("OAUTHBEARER") == 0
        assert peer.token(message) == (0, b"")
        assert peer.works()
    with Peer(address("SASL")) as peer:
        assert peer.handshake("OAUTHBEARER") == 0
        assert peer.token(message)[1] == b'{"status":"invalid_token"}'


def test_a_session_ends_with_its_token(issuer: Issuer, address: Callable[[str], str]) -> None:
    with Peer(address("SASL")) as peer:
        assert peer.handshake("OAUTHBEARER") == 0
        token = issuer.token(exp=time.time() + 1)
        assert peer.token(b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01") == (0, b"")
        assert peer.works()
        deadline_s = time.monotonic() + PATIENCE_S
        while peer.works():
            assert time.monotonic() < deadline_s
            time.sleep(0.1)


def test_a_renewal_must_be_by_the_same_user(address: Callable[[str], str]) -> None:
    with Peer(address("SASL")) as peer:
        assert peer.handshake("PLAIN") == 0
        assert peer.token(PLAIN_TOKEN)[0] == 0
        assert peer.handshake("PLAIN") == 0
        assert peer.token(PLAIN_TOKEN)[0] == 0
        assert peer.works()
        assert peer.handshake("PLAIN") == 0
        assert peer.token(b"\0admin\0x")[0] == 58
        assert not peer.works()


def scram_first(user: str = "alice") -> tuple[bytes, str]:
    nonce = base64.b64encode(os.urandom(18)).decode()
    return f"n,,n={user},r={nonce}".encode(), nonce


def scram_final(first: bytes, server_first: bytes) -> bytes:
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    bare = f"c=biws,r={fields['r']}"
    message = b",".join((first[3:], server_first, bare.encode()))
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{bare},p={base64.b64encode(proof).decode()}".encode()


def test_scram_messages_replayed_cut_and_changed(address: Callable[[str], str]) -> None:
    first, _ = scram_first()
    with Peer(address("SASL")) as peer:
        assert peer.handshake("SCRAM-SHA-256") == 0
        error, server_first = peer.token(first)
        final = scram_final(first, server_first)
        assert error == 0
        assert peer.token(final)[0] == 0
        assert peer.works()
    with Peer(address("SASL")) as peer:  # the same messages again: the server's nonce is another
        assert peer.handshake("SCRAM-SHA-256") == 0
        assert peer.token(first)[0] == 0
        assert peer.token(final)[0] == 58
    with Peer(address("SASL")) as peer:  # the last message of another mechanism's exchange, without the first
        assert peer.handshake("SCRAM-SHA-512") == 0
        assert peer.token(final)[0] == 58


def scram_login(peer: Peer, user: str) -> int:
    """A login, or its renewal, with PASSWORD; the error of the last answer."""
    assert peer.handshake("SCRAM-SHA-256") == 0
    first, _ = scram_first(user)
    error, server_first = peer.token(first)
    return error or peer.token(scram_final(first, server_first))[0]


@pytest.mark.parametrize("change", ["deleted", "changed"])
def test_users_who_are_deleted_or_change_their_password(
    secured: Broker, address: Callable[[str], str], change: str
) -> None:
    """As with Kafka open connections go on; nobody logs in as before, and no session is renewed."""
    admin = AdminClient({"bootstrap.servers": address("FREE")})
    user, mechanism = f"leaves-{change}", ScramMechanism.SCRAM_SHA_256

    def alter(wanted: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(PATIENCE_S)

    info = ScramCredentialInfo(mechanism, 4096)
    alter(UserScramCredentialUpsertion(user, info, PASSWORD.encode()))
    with Peer(address("SASL")) as stays, Peer(address("SASL")) as begun:
        assert scram_login(stays, user) == 0
        assert begun.handshake("SCRAM-SHA-256") == 0
        first, _ = scram_first(user)
        error, server_first = begun.token(first)
        assert error == 0
        if change == "deleted":
            alter(UserScramCredentialDeletion(user, mechanism))
        else:
            alter(UserScramCredentialUpsertion(user, info, b"another password"))
        with Peer(address("SASL")) as late:
            assert scram_login(late, user) == 58
        assert stays.works()
        assert scram_login(stays, user) == 58
        assert not stays.works()
        # The exchange that had begun was promised the credential of before, as in Kafka.
        assert begun.token(scram_final(first, server_first))[0] == 0


def test_mutated_tokens_by_the_hundred(secured: Broker, address: Callable[[str], str]) -> None:
    """Nothing but the right token opens the door, and nothing harms the broker. The seed repeats a failure."""
    server = secured._running()
    delay = "connection.failed.authentication.delay.ms"
    server.config._values[delay], before = 0, server.config._values[delay]
    try:
        chance = random.Random(4711)
        for round_ in range(300):
            mechanism = chance.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"))
            token = bytearray(
                chance.choice((PLAIN_TOKEN, scram_first()[0], b"n,,\x01auth=Bearer a.b.c\x01\x01", b""))
            )
            for _ in range(chance.randrange(1, 4)):
                at = chance.randrange(len(token) + 1)
                token[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(4))
            if mechanism == "PLAIN" and bytes(token) == PLAIN_TOKEN:
                continue
            with Peer(address("SASL")) as peer:
                version = chance.randrange(2)
                assert peer.handshake(mechanism, version) == 0
                if version:
                    peer.token(bytes(token))
                else:
                    peer.frame(bytes(token))
                peer.sock.settimeout(PATIENCE_S)
                assert not peer.works(), (round_, mechanism, bytes(token))
    finally:
        server.config._values[delay] = before
    with Peer(address("SASL")) as peer:
        assert peer.handshake("PLAIN") == 0
        assert peer.token(PLAIN_TOKEN)[0] == 0
