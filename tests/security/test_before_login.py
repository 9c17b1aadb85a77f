"""What peers can cost before they have logged in: the heaviest first messages, by the turns of the broker's loop."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator

import pytest

from barnabas.testing import Broker
from barnabas.wire.primitives import encode_uvarint
from tests.security.issuer import Issuer
from tests.security.peer import Peer
from tests.security.sasl_broker import PLAIN_USERS
from tests.support.turns import measured

FULL = 500_000
"""Of the 512 KB that sasl.server.max.receive.size allows by default."""
LONGEST_CPU_MS = 20
"""Typically 1 ms; one of the messages below took 14,000 ms."""


@pytest.fixture(scope="module")
def broker(issuer: Issuer) -> Iterator[Broker]:
    options = {
        "listeners": "SASL://127.0.0.1:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": PLAIN_USERS,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{issuer.file}",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(options) as started:
        yield started


def header(text: bytes) -> bytes:
    return base64.urlsafe_b64encode(text).rstrip(b"=")


MESSAGES = {
    "SCRAM, a letter that is prepared to eighteen": ("SCRAM-SHA-256", "n,,n={},r=abc", "\ufdfa"),
    "SCRAM, escapes": ("SCRAM-SHA-256", "n,,n={},r=abc", "=2C"),
    "SCRAM, many extensions": ("SCRAM-SHA-256", "n,,n=a,r=abc{}", ",x=y"),
    "SCRAM, a long nonce": ("SCRAM-SHA-256", "n,,n=a,r={}", "r"),
    "SCRAM, commas": ("SCRAM-SHA-256", "{}", ","),
    "PLAIN, nothing but separators": ("PLAIN", "{}", "\0"),
    "PLAIN, a long password": ("PLAIN", "\0alice\0{}", "p"),
    "OAUTHBEARER, many pairs": ("OAUTHBEARER", "n,,\x01auth=Bearer a.b.c{}\x01\x01", "\x01x=y"),
    "OAUTHBEARER, a header of brackets": (
        "OAUTHBEARER",
        "n,,\x01auth=Bearer {}.b.c\x01\x01",
        header(b"[[[").decode(),
    ),
    "OAUTHBEARER, a long user": ("OAUTHBEARER", "n,a={},\x01auth=Bearer a.b.c\x01\x01", "\ufdfa"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_no_first_message_holds_the_broker(broker: Broker, name: str) -> None:
    mechanism, form, part = MESSAGES[name]
    for size in (FULL, 60_000, 15_000, 4_000, 500):  # above each bound, and below it
        message = form.format(part * ((size - len(form)) // len(part.encode()))).encode()
        with Peer(broker.bootstrap) as peer:
            assert peer.handshake(mechanism) == 0
            with measured(broker) as turns:
                peer.token(message)
        assert turns.longest_cpu_ms < LONGEST_CPU_MS, size


def tagged(count: int) -> bytes:
    """A section of so many empty tagged fields."""
    return encode_uvarint(count) + b"\x63\x00" * count


def head(key: int, version: int, tags: bytes = b"\0", client: bytes = b"c") -> bytes:
    return struct.pack(">hhih", key, version, 7, len(client)) + client + tags


REQUESTS = {
    "tagged fields behind ApiVersions": head(18, 3) + b"\x02n\x02v" + tagged(FULL // 2),
    "tagged fields in the header": head(18, 3, tagged(FULL // 2)) + b"\x02n\x02v\0",
    "tagged fields behind a token": head(36, 2) + b"\x01" + tagged(FULL // 2),
    "a software name that almost fits": head(18, 3) + encode_uvarint(30_001) + b"a" * 29_999 + b"!" + b"\x02v\0",
    "a long client id": head(18, 3, client=b"c" * 32_000) + b"\x02n\x02v\0",
    "a long mechanism": head(17, 1) [:-1] + struct.pack(">h", 32_000) + b"m" * 32_000,
    "a Kerberos token on a listener without Kerberos": b"\x60" * FULL,
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_no_request_before_the_login_holds_the_broker(broker: Broker, name: str) -> None:
    with Peer(broker.bootstrap) as peer, measured(broker) as turns:
        peer.frame(REQUESTS[name])
    assert turns.longest_cpu_ms < LONGEST_CPU_MS
