"""Logins by raw bytes on SASL listeners: what must be refused, and what must not harm the broker."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import os
import random
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa

from barnabas.broker.net import listeners
from barnabas.testing import Broker
from tests.security.issuer import Issuer
from tests.security.peer import Peer
from tests.security.sasl_broker import PASSWORD, PLAIN_USERS
from tests.security.test_tls import PATIENCE_S, await_said

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


def test_a_request_without_a_login_ends_the_connection_after_the_answer_before_it(
    address: Callable[[str], str],
) -> None:
    """In one packet, as `barnabas` asks to find out whether a listener wants SASL."""
    with Peer(address("SASL")) as peer:
        asked = [struct.pack(">hhih", 18, 0, 1, -1), struct.pack(">hhihi", 3, 1, 2, -1, 0)]
        peer.sock.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in asked))
        assert struct.unpack(">i", peer.read()[:4])[0] == 1
        assert peer.sock.recv(1) == b""


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


def test_who_does_not_log_in_loses_the_connection(
    secured: Broker, address: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer(address("SASL")) as silent, Peer(address("SASL")) as begun, Peer(address("SASL")) as user:
        assert begun.handshake("PLAIN") == 0
        assert user.handshake("PLAIN") == 0
        assert user.token(PLAIN_TOKEN)[0] == 0
        close_idle = secured.inside.server.services.listeners.close_idle
        secured.inside.call(lambda: close_idle(math.inf))
        assert begun.handshake("PLAIN") == 0, "there is time enough"
        monkeypatch.setattr(listeners, "LOGIN_S_MAX", -1.0)
        secured.inside.call(lambda: close_idle(math.inf))
        for peer in (silent, begun):
            assert peer.sock.recv(1) == b""
        assert user.works()


@pytest.mark.parametrize(
    "limit", ["max.connections", "listener.name.sasl_plaintext.max.connections", "max.connections.per.ip"]
)
def test_who_does_not_log_in_makes_room_for_others(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "HANDSHAKE_S_FAIR", 0.0)
    options = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN", limit: "10",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    }  # fmt: skip
    with Broker(options) as broker, ExitStack() as stack:
        users = []
        for _ in range(5):
            users.append(user := stack.enter_context(Peer(broker.bootstrap)))
            assert user.handshake("PLAIN") == 0
            assert user.token(PLAIN_TOKEN)[0] == 0
        strangers = [stack.enter_context(Peer(broker.bootstrap)) for _ in range(40)]
        with Peer(broker.bootstrap) as late:
            assert late.handshake("PLAIN") == 0
            assert late.token(PLAIN_TOKEN)[0] == 0
        assert strangers[0].sock.recv(1) == b""
        assert all(user.works() for user in users)


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


@pytest.mark.parametrize("rounds", [300, pytest.param(5_000, marks=pytest.mark.soak)])
def test_mutated_tokens_by_the_hundred(secured: Broker, address: Callable[[str], str], rounds: int) -> None:
    """Nothing but the right token opens the door, and nothing harms the broker. The seed repeats a failure."""
    config = secured.inside.server.config
    before = config.dynamic_broker
    at_once = {**before, "connection.failed.authentication.delay.ms": "0"}
    config.set_dynamic(default=config.dynamic_default, broker=at_once)
    try:
        chance = random.Random(4711)
        for round_ in range(rounds):
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
        config.set_dynamic(default=config.dynamic_default, broker=before)
    with Peer(address("SASL")) as peer:
        assert peer.handshake("PLAIN") == 0
        assert peer.token(PLAIN_TOKEN)[0] == 0
