"""What clients may send before they have logged in, and what the answers tell them; without sockets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import string
import threading
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping
from typing import Any

import pytest

from barnabas.config.loader import BrokerConfig
from barnabas.security.sasl import Outcome, SaslError
from barnabas.security.sasl.listener import SaslListener
from barnabas.security.sasl.oauthbearer import OAuthBearer, Rules
from barnabas.security.sasl.scram import CredentialForm, encode_credential, new_credential, shape_of, stand_in

MECHANISM = "SCRAM-SHA-256"
Users = Mapping[tuple[str, str], Mapping[str, str]]


class Clock:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return 0.0


def user(password: str, salt: bytes, iterations: int = 4096) -> dict[str, str]:
    return {MECHANISM: encode_credential(new_credential(MECHANISM, password, salt, iterations))}


async def awaited(outcome: Awaitable[Outcome]) -> Outcome:
    return await outcome


def salt_of(
    users: Users, name: str, secret: bytes = b"secret", mechanism: str = MECHANISM
) -> tuple[bytes, int]:
    """Salt and iterations that a listener shows."""
    config = BrokerConfig({"sasl.enabled.mechanisms": mechanism, "listeners": "SASL_PLAINTEXT://:0"})
    exchange = SaslListener(config, "SASL_PLAINTEXT", lambda: users, lambda: secret, Clock()).begin(mechanism)
    outcome = exchange.step(f"n,,n={name},r=abc".encode())
    if not isinstance(outcome, Outcome):
        outcome = asyncio.run(awaited(outcome))
    fields = dict(part.split("=", 1) for part in outcome.reply.decode().split(","))
    return base64.b64decode(fields["s"]), int(fields["i"])


def test_a_salt_does_not_tell_who_exists() -> None:
    users = {("users", "alice"): user("a", b"s" * 26, 8192), ("users", "bob"): user("b", b"t" * 26, 8192)}
    known = salt_of(users, "alice")
    assert known == (b"s" * 26, 8192)
    nobody = salt_of(users, "nobody")
    assert nobody == salt_of(users, "nobody"), "the same at every try"
    assert (len(nobody[0]), nobody[1]) == (26, 8192), "like those of others"
    assert nobody != salt_of(users, "nobody2")
    assert nobody != salt_of(users, "nobody", b"another cluster's")
    assert nobody[0] != salt_of(users, "nobody", mechanism="SCRAM-SHA-512")[0], (
        "a user has a salt for each mechanism"
    )
    assert salt_of({}, "nobody")[1] == 4096


class Watched(dict[tuple[str, str], Mapping[str, str]]):
    """Users that remember which threads have looked through all of them."""

    def __init__(self, users: Users) -> None:
        super().__init__(users)
        self.threads: list[int] = []

    def items(self) -> Any:
        self.threads.append(threading.get_ident())
        return super().items()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.threads.append(threading.get_ident())
        return super().__iter__()


def test_all_users_are_looked_through_once_and_beside_the_loop() -> None:
    """The peers have not logged in yet, and there may be very many users."""
    users = Watched({("users", f"u{number}"): user("p", b"s" * 26) for number in range(3)})
    config = BrokerConfig({"sasl.enabled.mechanisms": MECHANISM, "listeners": "SASL_PLAINTEXT://:0"})
    listener = SaslListener(config, "SASL_PLAINTEXT", lambda: users, lambda: b"secret", Clock())

    async def work() -> int:
        begun = [listener.begin(MECHANISM).step(b"n,,n=u1,r=abc") for _ in range(5)]
        waiting = [awaited(outcome) for outcome in begun if not isinstance(outcome, Outcome)]
        await asyncio.gather(*waiting)
        assert isinstance(listener.begin(MECHANISM).step(b"n,,n=nobody,r=abc"), Outcome), "counted already"
        return len(waiting)

    assert asyncio.run(work()) == 5
    assert len(users.threads) == 1
    assert threading.get_ident() not in users.threads


def test_salts_of_nobody_stay_when_others_change() -> None:
    """Who asks every day must not see the salts of those who do not exist move together."""
    names = [f"nobody{number}" for number in range(40)]
    users = {("users", f"u{number}"): user("p", bytes([number]) * 26, 4096) for number in range(20)}
    before = [salt_of(users, name) for name in names]
    changed = {
        **users,
        ("users", "u0"): user("another", b"\xf1" * 26, 4096),
        ("users", "a"): user("p", b"\xf2" * 26),
    }
    del changed["users", "u7"]
    assert [salt_of(changed, name) for name in names] == before
    # One of 21 users has more iterations now: about one of 21 stand-ins looks like it, with a salt that is another as well.
    changed["users", "u1"] = user("p", b"\xf3" * 32, 8192)
    after = [salt_of(changed, name) for name in names]
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert moved
    assert len(moved) < 10
    assert all((len(new[0]), new[1]) == (32, 8192) and new[0][:26] != old[0] for old, new in moved)


def test_stand_ins_look_like_users_in_proportion() -> None:
    shapes = {CredentialForm(4096, 26): 90, CredentialForm(8192, 32): 10}
    shapes_seen = Counter(
        (credential.iterations, len(credential.salt))
        for credential in (stand_in(MECHANISM, f"n{number}", b"secret", shapes) for number in range(1000))
    )
    assert set(shapes_seen) == {(4096, 26), (8192, 32)}
    assert 60 < shapes_seen[8192, 32] < 140


def java_salt(number: int) -> bytes:
    """A salt as Kafka's Java client makes it: a random number of 130 bits, written to the base 36."""
    number = int.from_bytes(hashlib.sha256(b"%d" % number).digest()) >> 126
    digits = ""
    while number:
        digits, number = string.printable[number % 36] + digits, number // 36
    return digits.encode()


def test_stand_ins_among_users_of_kafkas_own_tools() -> None:
    users = {("users", f"u{number}"): user("p", java_salt(number)) for number in range(40)}
    theirs = [salt_of(users, f"u{number}")[0] for number in range(40)]
    others = [salt_of(users, f"nobody{number}")[0] for number in range(400)]
    assert {len(salt) for salt in theirs} >= {25, 26}
    assert {len(salt) for salt in others} <= {len(salt) for salt in theirs}
    digits = frozenset(string.digits.encode() + string.ascii_lowercase.encode())
    for salt in (*theirs, *others):
        assert digits.issuperset(salt)
        assert 0 < int(salt, 36) < 1 << 130
    assert {salt[:1] for salt in others if len(salt) == 26} == {b"1"}, "a number of 130 bits begins so"
    assert len({salt[:1] for salt in others if len(salt) == 25}) > 20
    assert len(set(others)) == 400


def test_stand_ins_among_long_salts_of_letters() -> None:
    credential = stand_in(MECHANISM, "nobody", b"secret", {CredentialForm(4096, 64, True): 1})
    assert len(credential.salt) == 64
    assert credential.salt.isalnum()
    assert shape_of(encode_credential(credential)) == CredentialForm(4096, 64, True)
    assert shape_of("salt=!,stored_key=,server_key=,iterations=4096") is None


def bearer(claims: str) -> bytes:
    def text(data: str) -> str:
        return base64.urlsafe_b64encode(data.encode()).rstrip(b"=").decode()

    return f"n,,\x01auth=Bearer {text(json.dumps({'alg': 'none'}))}.{text(claims)}.\x01\x01".encode()


@pytest.mark.parametrize(
    "claims",
    [
        *(f'{{"sub": "u", "scope": "a", "exp": {time}}}' for time in ("Infinity", "NaN", "1e400", "-1", "true", "1e17")),
        *(f'{{"sub": "u", "scope": "a", "exp": 2e9, "nbf": {time}}}' for time in ("NaN", "-Infinity", '"x"')),
        *(f'{{"sub": "u", "scope": {scope}, "exp": 2e9}}' for scope in ("5", "null", "true", '{"a": 1}')),
        '{"sub": "\\ud800", "scope": "a", "exp": 2e9}', '{"sub": 5, "scope": "a", "exp": 2e9}', "[1]", "[" * 40_000,
        '{"exp": ' + "9" * 5000 + "}",
    ],
    ids=lambda claims: claims[:60],
)  # fmt: skip
def test_claims_that_are_no_claims(claims: str) -> None:
    """Refused as any other token that does not hold, not as a bug of the broker."""
    rules = Rules((), None, "sub", "scope", 30, frozenset({"a"}), unsecured=True)
    exchange: Any = OAuthBearer(rules, None, lambda: 1_000_000)
    outcome = exchange.step(bearer(claims))
    assert outcome.user is None
    with pytest.raises(SaslError, match="invalid_token"):
        exchange.step(b"\x01")
    good = OAuthBearer(rules, None, lambda: 1_000_000).step(
        bearer('{"sub": "u", "scope": ["a"], "exp": 2e9}')
    )
    assert isinstance(good, Outcome)
    assert good.user == "u"
