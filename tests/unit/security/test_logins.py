"""What clients may send before they have logged in, and what the answers tell them; without sockets."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.config.loader import BrokerConfig
from barnabas.security.sasl import Outcome, SaslError
from barnabas.security.sasl.listener import SaslListener
from barnabas.security.sasl.oauthbearer import OAuthBearer, Rules
from barnabas.security.sasl.scram import encode_credential, new_credential

MECHANISM = "SCRAM-SHA-256"
Users = Mapping[tuple[str, str], Mapping[str, str]]


class Clock:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return 0.0


def user(password: str, salt: bytes, iterations: int = 4096) -> dict[str, str]:
    return {MECHANISM: encode_credential(new_credential(MECHANISM, password, salt, iterations))}


def salt_of(users: Users, name: str, secret: bytes = b"known to everybody") -> tuple[bytes, int]:
    """Salt and iterations that a listener shows."""
    config = BrokerConfig({"sasl.enabled.mechanisms": MECHANISM, "listeners": "SASL_PLAINTEXT://:0"})
    exchange = SaslListener(config, "SASL_PLAINTEXT", lambda: users, secret, Clock()).begin(MECHANISM)
    outcome = exchange.step(f"n,,n={name},r=abc".encode())
    assert isinstance(outcome, Outcome)
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
    # Who knows everything but the credentials cannot make it: another password gives another one.
    others = {**users, ("users", "alice"): user("other", b"s" * 26, 8192)}
    assert nobody != salt_of(others, "nobody")
    assert salt_of({}, "nobody")[1] == 4096


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
        '{"sub": "\\ud800", "scope": "a", "exp": 2e9}', '{"sub": 5, "scope": "a", "exp": 2e9}', "[1]", "[" * 100_000,
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
