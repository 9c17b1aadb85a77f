"""The first message of a login: bounded before anything is done with it, whatever it contains."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from typing import Any

import pytest

from barnabas.security.sasl import Outcome, SaslError, gssapi, oauthbearer, plain, scram
from barnabas.security.sasl.scram import Known, Scram, new_credential

MECHANISM = "SCRAM-SHA-256"
PASSWORD = "secret"
NONCE = "abcdefgh"
LIGATURE = "\ufdfa"
"""One letter, prepared (RFC 4013) eighteen letters."""


class Names:
    """The users of a SCRAM listener; notes who was looked up."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    def find(self, user: str, is_token: bool) -> Known:
        self.asked.append((user, is_token))
        return Known(new_credential(MECHANISM, PASSWORD, b"the salt of a test"), True, user)


def log_in(
    header: str, name: str, *, extensions: str = "", binding: str | None = None
) -> tuple[Outcome, list[str]]:
    """A whole exchange; returns (its end, the users that were looked up)."""
    names = Names()
    exchange = Scram(MECHANISM, names.find)
    bare = f"n={name},r={NONCE}{extensions}"
    begun = exchange.step(f"{header}{bare}".encode())
    assert isinstance(begun, Outcome)
    first = begun.reply.decode()
    fields = dict(part.split("=", 1) for part in first.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    bound = base64.b64encode((header if binding is None else binding).encode()).decode()
    unproved = f"c={bound},r={fields['r']}"
    signed = f"{bare},{first},{unproved}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    ended = exchange.step(f"{unproved},p={proof}".encode())
    assert isinstance(ended, Outcome)
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    assert ended.reply == b"v=" + base64.b64encode(hmac.digest(server_key, signed, "sha256"))
    return ended, [name for name, _ in names.asked]


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("alice", "alice"),
        ("a=2Cb=3Dc", "a,b=c"),
        ("naïve-ключ", "naïve-ключ"),
        ("\u2168", "\u2168"),  # a Roman nine; prepared it would be IX, another user of Kafka
        (LIGATURE * 170, LIGATURE * 170),
        ("x" * 512, "x" * 512),
    ],
)
@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a={},"])
def test_a_user_logs_in_under_the_name_that_was_sent(header: str, name: str, user: str) -> None:
    """Also where the client names the user as the one to act for, as Kafka's own server allows."""
    ended, asked = log_in(header.format(name), name)
    assert (ended.user, asked) == (user, [user])


def test_extensions_are_signed_and_ignored() -> None:
    ended, _ = log_in("n,,", "alice", extensions=",other=1,tokenauth=true")
    assert ended.by_token
    assert not log_in("n,,", "alice", extensions=",other=1,tokenauth=no")[0].by_token


@pytest.mark.parametrize(
    "message",
    [
        "", "n,,", "n,,n=,r=abc", "n,,n=a", "n,,n=a,r=", "p=tls-unique,,n=a,r=abc", "n,,m=x,n=a,r=abc", "n,a=b,n=a,r=abc",
        "n,a=,n=a,r=abc", "n,,n=a=,r=abc", "n,,n=a=2c,r=abc", "n,,n=a\0b,r=abc", "n,,n=a,r=a c", "n,,n=a,r=\u00e9",
        "n,,n=a,r=abc,", "n,,n=a,r=abc,x", "n,,r=abc,n=a", "n,,n=a,r=abc\n",
    ],
)  # fmt: skip
def test_a_first_message_of_another_form_is_refused_before_anybody_is_looked_up(message: str) -> None:
    names = Names()
    with pytest.raises(SaslError, match="invalid credentials"):
        Scram(MECHANISM, names.find).step(message.encode())
    assert not names.asked


@pytest.mark.parametrize("change", ["binding", "nonce", "proof", "short proof", "long", "again"])
def test_a_last_message_that_does_not_fit_the_first_is_refused(change: str) -> None:
    if change == "binding":
        with pytest.raises(SaslError):
            log_in("n,,", "alice", binding="n,a=bob,")
        return
    names = Names()
    exchange = Scram(MECHANISM, names.find)
    begun = exchange.step(f"n,,n=alice,r={NONCE}".encode())
    assert isinstance(begun, Outcome)
    nonce = begun.reply.decode().split(",")[0][2:]
    proof = base64.b64encode(bytes(31 if change == "short proof" else 32)).decode()
    final = f"c=biws,r={NONCE if change == 'nonce' else nonce},p={proof}"
    if change == "long":
        final = f"c=biws,r={nonce}{',x=y' * 2000},p={proof}"
    for _ in range(2 if change == "again" else 1):
        with pytest.raises(SaslError, match="invalid credentials"):
            exchange.step(final.encode())


@pytest.mark.parametrize("seed", range(20))
def test_a_scram_message_over_the_bound_is_not_prepared(seed: int) -> None:
    """Whatever is in it: nobody is looked up, and no name is taken from it."""
    chance = random.Random(seed)
    letter = chance.choice((LIGATURE, "a", "=2C", ",", "\u00e9", "\U0001f600"))
    beyond = chance.randrange(1, 500_000)
    for part in ("n,,n={},r=abc", "n,a={},n=a,r=abc", "n,,n=a,r={}", "n,,n=a,r=abc,x={}"):
        limit = scram.NAME_BYTES_MAX if "n={}" in part else scram.MESSAGE_BYTES_MAX
        count = (limit + beyond) // len(letter.encode()) + 1
        names = Names()
        exchange = Scram(MECHANISM, names.find)
        with pytest.raises(SaslError):
            exchange.step(part.format(letter * count).encode())
        assert (names.asked, exchange.claimed) == ([], "")


def test_plain_messages_over_the_bound_reach_no_check() -> None:
    asked: list[str] = []

    def check(user: str, password: str) -> bool:
        asked.append(user)
        return True

    for message in (
        b"\0alice\0" + b"x" * plain.MESSAGE_BYTES_MAX,
        b"\0" * 500_000,
        b"\0" + b"u" * 600 + b"\0x",
    ):
        with pytest.raises(SaslError):
            plain.Plain(check).step(message)
    assert not asked
    password = b"p" * (plain.MESSAGE_BYTES_MAX - 10)
    assert isinstance(plain.Plain(check).step(b"\0alice\0" + password), Outcome)
    assert asked == ["alice"]


class NoKeys(oauthbearer.Keys):
    """Fails when it is asked for a key."""

    def __init__(self) -> None:
        pass

    def is_due(self, key_id: Any) -> bool:
        raise AssertionError("a message over the bound was read")


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer " + b"a" * oauthbearer.MESSAGE_BYTES_MAX + b".b.c\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * (oauthbearer.HEADER_CHARS_MAX + 1) + b".b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c" + b"\x01x=y" * 200 + b"\x01\x01",
        b"n,,\x01" + b"\x01" * 500_000 + b"auth=Bearer a.b.c\x01\x01",
    ],
    ids=["message", "header", "pairs", "empty pairs"],
)
def test_tokens_over_the_bounds_are_not_read(message: bytes) -> None:
    rules = oauthbearer.Rules((), None, "sub", "scope", 30)
    with pytest.raises(SaslError, match="Invalid OAUTHBEARER"):
        oauthbearer.OAuthBearer(rules, NoKeys(), lambda: 0).step(message)


async def _refused(exchange: gssapi.Gssapi) -> None:
    with pytest.raises(SaslError):
        await exchange.stepped(bytes(gssapi.TOKEN_BYTES_MAX + 1))


def test_tickets_over_the_bound_do_not_reach_kerberos() -> None:
    import asyncio

    asyncio.run(_refused(object.__new__(gssapi.Gssapi)))
