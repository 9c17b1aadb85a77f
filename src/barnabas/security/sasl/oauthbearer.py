"""OAUTHBEARER (RFC 7628): a signed token (JWT) in place of a password, checked against the keys of its issuer.

Only signatures that are verified with a public key are accepted: with the algorithm `none`, or one with a shared key,
clients could sign their own tokens. Tokens without a signature are accepted if the configuration names Kafka's
validator of unsecured tokens, which is meant for trials.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from barnabas.config.option import ConfigError
from barnabas.extras import how_to_install
from barnabas.http_client import Address, ask
from barnabas.security.sasl import Outcome, SaslError

log = logging.getLogger("barnabas.login")

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
UNSECURED: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    "OAuthBearerUnsecuredValidatorCallbackHandler"
)
FIRST: Final = re.compile(rb"n,(?:a=([^,]*))?,\x01(.*)\x01\x01", re.DOTALL)
BEARER: Final = re.compile(r"(?i)bearer +([-_.+/=A-Za-z0-9]+)")
MESSAGE_BYTES_MAX: Final = 1 << 16
"""Of the client's message: tokens with many roles have 30 KB."""
PAIRS_MAX: Final = 100
"""Of the pairs in the message: the token, and what RFC 7628 and KIP-342 let a client add."""
HEADER_CHARS_MAX: Final = 1 << 14
"""Of a token's first part, which is read before the signature is checked; it may contain certificates."""
JWKS_BYTES_MAX: Final = 1 << 20
FETCH_S_MAX: Final = 10.0
TIME_S_END: Final = 253_402_300_800
"""The year 10,000. Times of tokens must be earlier: numbers in JSON are unlimited, and Python accepts infinity."""


class Rules(NamedTuple):
    """The conditions that a token must meet. audience: one of these; issuer: this one; scope: all of these words."""

    audience: tuple[str, ...]
    issuer: str | None
    user_claim: str
    scope_claim: str
    skew_s: int
    scope: frozenset[str] = frozenset()
    unsecured: bool = False


class Keys:
    """The signing keys of an issuer, from a file or URL with a JWKS; fetched again when old, or when a key is missing."""

    def __init__(self, url: str, refresh_ms: int, retry_ms: int, monotonic_ms: Callable[[], float]) -> None:
        """Raises ConfigError if a library is missing or the URL has another scheme than https, http or file."""
        try:
            import jwt  # noqa: F401
        except ImportError:
            raise ConfigError(f"OAUTHBEARER needs {how_to_install('security')}") from None
        if not url.startswith(("https://", "http://", "file:")):
            raise ConfigError(f"sasl.oauthbearer.jwks.endpoint.url={url}: must begin with https:// or file:")
        if url.startswith("http://"):
            log.warning(
                "signing keys are fetched over plain http: an attacker on the network can forge tokens",
                extra={"url": url},
            )
        self.url = url
        self._refresh_ms, self._retry_ms, self._monotonic_ms = refresh_ms, retry_ms, monotonic_ms
        self._keys: dict[str | None, Any] = {}
        self._fetched_ms = self._tried_ms = -float("inf")
        self._fetching: asyncio.Future[None] | None = None

    def find(self, key_id: str | None) -> Any:
        """The key with an id, or the only key if a token names none; None if it is unknown."""
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def is_due(self, key_id: str | None) -> bool:
        """Whether the keys should be fetched before a token that names `key_id` is checked."""
        now_ms = self._monotonic_ms()
        wanted = now_ms - self._fetched_ms > self._refresh_ms or self.find(key_id) is None
        return wanted and now_ms - self._tried_ms >= self._retry_ms

    async def fetch(self) -> None:
        """Fetch the keys, once for all concurrent callers. A failure is logged, and the previous keys remain."""
        if self._fetching is None:
            self._tried_ms = self._monotonic_ms()
            self._fetching = asyncio.ensure_future(self._fetch())
        try:
            await asyncio.shield(self._fetching)
        finally:
            if self._fetching is not None and self._fetching.done():
                self._fetching = None

    async def _fetch(self) -> None:
        try:
            data = await asyncio.to_thread(_read, self.url)
            self._keys = _parse(data)
            self._fetched_ms = self._monotonic_ms()
        except (OSError, ValueError) as error:
            log.error("the signing keys cannot be fetched", extra={"url": self.url, "reason": str(error)})


def _read(url: str) -> bytes:
    """What the URL holds, which the configuration names. Raises OSError, ValueError."""
    if url.startswith("file:"):
        with open(unquote(urlsplit(url).path), "rb") as file:
            data = file.read(JWKS_BYTES_MAX + 1)
    else:
        answer = ask(Address(url), "GET", timeout_s=FETCH_S_MAX, bytes_max=JWKS_BYTES_MAX + 1)
        if answer.status != HTTPStatus.OK:
            raise OSError(f"the answer has status {answer.status}")
        data = answer.body
    if len(data) > JWKS_BYTES_MAX:
        raise ValueError(f"over {JWKS_BYTES_MAX} bytes")
    return data


def _parse(data: bytes) -> dict[str | None, Any]:
    import jwt

    keys: dict[str | None, Any] = {}
    for row in json.loads(data).get("keys", []):
        try:
            key = jwt.PyJWK(row)
        except jwt.PyJWTError:
            continue  # not a key for a supported algorithm
        if key.algorithm_name in ALGORITHMS:
            keys[row.get("kid")] = key
    if not keys:
        raise ValueError("it contains no key that can verify a signature")
    return keys


class OAuthBearer:
    """See Exchange."""

    def __init__(self, rules: Rules, keys: Keys | None, now_ms: Callable[[], int]) -> None:
        self.claimed = ""
        self._rules, self._keys, self._now_ms = rules, keys, now_ms
        self._refusal = ""

    def step(self, token: bytes) -> Outcome | Awaitable[Outcome]:
        if self._refusal:  # the client answers the reason with one byte, as RFC 7628 requires
            raise SaslError(self._refusal)
        match = FIRST.fullmatch(token) if len(token) <= MESSAGE_BYTES_MAX else None
        if match is None or match[2].count(b"\x01") > PAIRS_MAX:
            raise SaslError("Invalid OAUTHBEARER client first message")
        pairs = dict(
            part.split("=", 1) for part in match[2].decode("utf-8", "replace").split("\x01") if "=" in part
        )
        bearer = BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None or len(bearer[1].partition(".")[0]) > HEADER_CHARS_MAX:
            raise SaslError("Invalid OAUTHBEARER client first message: invalid scheme in auth")
        other = (match[1] or b"").decode("utf-8", "replace")
        if self._keys is None:
            return self._judged(bearer[1], other, None)
        key_id = _header(bearer[1]).get("kid")
        if self._keys.is_due(key_id):
            return self._after_fetch(self._keys, bearer[1], other, key_id)
        return self._judged(bearer[1], other, self._keys.find(key_id))

    async def _after_fetch(self, keys: Keys, token: str, other: str, key_id: str | None) -> Outcome:
        await keys.fetch()
        return self._judged(token, other, keys.find(key_id))

    def _judged(self, token: str, other: str, key: Any) -> Outcome:
        try:
            claims = self._claims(token, key)
            user = claims.get(self._rules.user_claim)
            if not isinstance(user, str) or not user:
                raise ValueError(f"it has no claim {self._rules.user_claim}")
            user.encode()  # raises ValueError for half a surrogate pair, which JSON can contain
            self.claimed = user
            if other and other != user:
                raise ValueError("its user differs from the authorization id")
            scopes = claims.get(self._rules.scope_claim, "")
            rows = scopes.split() if isinstance(scopes, str) else scopes if isinstance(scopes, list) else ()
            words = set(map(str, rows))
            if not self._rules.scope <= words:
                raise ValueError(f"it lacks the scope {' '.join(sorted(self._rules.scope - words))}")
        except ValueError as error:
            log.info("a token is refused", extra={"reason": str(error), "user": self.claimed})
            self._refusal = '{"status":"invalid_token"}'
            return Outcome(self._refusal.encode())
        return Outcome(b"", user, int(claims["exp"] * 1000))

    def _claims(self, token: str, key: Any) -> dict[str, Any]:
        """The claims of a valid token. Raises ValueError with the reason if it is not valid."""
        import jwt

        rules = self._rules
        options: Any = {
            "require": ["exp"],
            "verify_aud": bool(rules.audience),
            "verify_exp": False,
            "verify_nbf": False,
        }
        options["verify_iat"] = False
        try:
            if key is None and not rules.unsecured:
                raise ValueError("its signing key is not among those of the issuer")
            if key is None:
                claims = self._unsecured(token)
            else:
                claims = jwt.decode(
                    token, key, algorithms=[key.algorithm_name], audience=list(rules.audience) or None,
                    issuer=rules.issuer, leeway=rules.skew_s, options=options,
                )  # fmt: skip
        except (jwt.PyJWTError, RecursionError) as error:
            raise ValueError(str(error)) from None
        self._check_times(claims)
        return claims

    def _check_times(self, claims: dict[str, Any]) -> None:
        now_s, skew_s = self._now_ms() / 1000, self._rules.skew_s
        for name in ("exp", "nbf", "iat"):
            value = claims.get(name, 0)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < TIME_S_END:
                raise ValueError(f"its claim {name} is not a valid time")
        if "exp" not in claims or claims["exp"] + skew_s <= now_s:
            raise ValueError("it has expired")
        if max(claims.get("nbf", 0), claims.get("iat", 0)) - skew_s > now_s:
            raise ValueError("it is not valid yet")

    def _unsecured(self, token: str) -> dict[str, Any]:
        import jwt

        if _header(token).get("alg") != "none" or token.rpartition(".")[2]:
            raise ValueError("it is signed, and this listener has no keys to check that with")
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
        return claims


def _header(token: str) -> dict[str, Any]:
    import jwt

    try:
        header: dict[str, Any] = jwt.get_unverified_header(token)
    except (
        jwt.PyJWTError,
        RecursionError,
    ):  # JSON in brackets a thousand deep is not worth an error of its own
        return {}
    return header
