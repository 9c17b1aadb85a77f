"""Logins at an identity provider: OpenID Connect's code flow with PKCE, from discovery to the user and the groups.

The provider's documents are fetched when somebody logs in, and never what a browser names. A login belongs to the browser
that began it (a cookie), to one exchange (state, nonce, PKCE) and to ten minutes. Signatures are checked by PyJWT.
Sources: OpenID Connect Core, Discovery and RP-Initiated Logout; RFC 7636.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import secrets
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

from barnabas.console.said import Refused, said
from barnabas.http_client import Address, NoAnswer, ask
from barnabas.security.openness import is_loopback
from barnabas.security.sasl.oauthbearer import ALGORITHMS, Keys

log = logging.getLogger("barnabas.console.login")

PENDING_S: Final = 600.0
PENDING_MAX: Final = 10_000
TIMEOUT_S: Final = 10.0
BYTES_MAX: Final = 1 << 20
SKEW_S: Final = 30
FRESH_S: Final = 3600.0
"""How long the provider's discovery document is kept."""
GROUPS_MAX: Final = 1_000
BACK: Final = "/login/oidc/back"


@dataclass(frozen=True, slots=True)
class OidcOptions:
    """issuer: the provider. secret: the client's; None for a public client. url: where browsers reach the console; None:
    where they ask. user_claim, groups_claim: what of the ID token is the user, and the groups."""

    issuer: str
    client_id: str
    secret: str | None = None
    url: str | None = None
    user_claim: str = "preferred_username"
    groups_claim: str = "groups"
    context: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class Person:
    """Who has logged in, and where to go on."""

    user: str
    groups: frozenset[str]
    target: str


@dataclass(frozen=True, slots=True)
class Pending:
    """A login that has begun. browser: the digest of the cookie."""

    browser: bytes
    verifier: str
    nonce: str
    target: str
    back: str
    began_s: float


def check_issuer(url: str) -> str | None:
    """What is wrong with the address of a provider; None if nothing is."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        return "is not a URL, for example https://login.example.com/realms/main"
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        return "must begin with https://: over plain http anybody on the way could log in as anybody"
    return None


class Provider:
    """The identity provider of a console."""

    def __init__(self, options: OidcOptions) -> None:
        self.options = options
        self._configuration: Mapping[str, Any] = {}
        self._configuration_s = -FRESH_S
        self._keys: Keys | None = None
        self._pending: dict[str, Pending] = {}

    @property
    def name(self) -> str:
        """What the provider is called on the page of the login: its host."""
        return urlsplit(self.options.issuer).hostname or self.options.issuer

    async def begin(self, origin: str, target: str) -> tuple[str, str]:
        """(where to send the browser, what its cookie shall be). origin: where it reaches the console. Raises Refused."""
        discovered = await self._discovered()
        self._forget_old()
        state, browser, verifier, nonce = (secrets.token_urlsafe(32) for _ in range(4))
        back = self._own(origin) + BACK
        self._pending[state] = Pending(_digest(browser), verifier, nonce, target, back, time.monotonic())
        scope = "openid profile email"
        if self.options.groups_claim in discovered.get("scopes_supported", ()):
            scope += f" {self.options.groups_claim}"
        asked = {
            "response_type": "code", "client_id": self.options.client_id, "redirect_uri": back, "scope": scope,
            "state": state, "nonce": nonce, "code_challenge_method": "S256",
            "code_challenge": _unpadded(hashlib.sha256(verifier.encode()).digest()),
        }  # fmt: skip
        return _with(discovered["authorization_endpoint"], asked), browser

    async def finish(self, browser: str, query: Mapping[str, str]) -> Person:
        """Who came back from the provider. browser: the cookie. Raises Refused."""
        pending = self._pending.pop(query.get("state", ""), None)
        if (
            pending is None
            or time.monotonic() - pending.began_s > PENDING_S
            or not hmac.compare_digest(pending.browser, _digest(browser))
        ):
            raise Refused(
                400,
                said("This login was not begun in this browser, or more than ten minutes ago"),
                said("Log in again"),
            )
        if "code" not in query:
            reason = query.get("error_description") or query.get("error") or "no code"
            raise Refused(401, said("The identity provider refused the login: {reason}", reason=reason[:300]))
        discovered = await self._discovered()
        token = await self._token(discovered, query["code"], pending)
        claims = await self._claims(discovered, token, pending.nonce)
        user = self._user(claims)
        groups = claims.get(self.options.groups_claim, ())
        rows = groups.split() if isinstance(groups, str) else groups if isinstance(groups, list) else ()
        return Person(user, frozenset(map(str, rows[:GROUPS_MAX])), pending.target)

    async def leave(self, origin: str) -> str | None:
        """Where the browser logs out of the provider as well; None if the provider has no such place. Raises Refused."""
        discovered = await self._discovered()
        if not isinstance(discovered.get("end_session_endpoint"), str):
            return None
        back = {
            "client_id": self.options.client_id,
            "post_logout_redirect_uri": self._own(origin) + "/login",
        }
        return _with(discovered["end_session_endpoint"], back)

    def _own(self, origin: str) -> str:
        return (self.options.url or origin).rstrip("/")

    def _user(self, claims: Mapping[str, Any]) -> str:
        name = self.options.user_claim
        user = claims.get(name)
        if not isinstance(user, str) or not user or not user.isprintable() or user.startswith("@"):
            raise Refused(
                401,
                said("The identity provider names nobody: its token has no usable claim {claim}", claim=name),
                said("Whoever runs the console chooses another claim with --oidc-user, for example sub"),
            )
        if name == "email" and claims.get("email_verified") is False:
            raise Refused(
                401, said("The identity provider has not verified the address {user}", user=user[:200])
            )
        return user

    async def _discovered(self) -> Mapping[str, Any]:
        """The provider's discovery document. Raises Refused."""
        if time.monotonic() - self._configuration_s < FRESH_S:
            return self._configuration
        issuer = self.options.issuer
        url = issuer.rstrip("/") + "/.well-known/openid-configuration"
        discovered = await self._fetch(url, "GET")
        if discovered.get("issuer") != issuer:
            raise self._away(f"it calls itself {str(discovered.get('issuer'))[:200]}, and not {issuer}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not isinstance(discovered.get(name), str) or check_issuer(discovered[name].partition("?")[0]):
                raise self._away(f"its configuration has no usable {name}")
        if self._keys is None or self._keys.url != discovered["jwks_uri"]:
            self._keys = Keys(discovered["jwks_uri"], 3_600_000, 10_000, lambda: time.monotonic() * 1000)
        self._configuration, self._configuration_s = discovered, time.monotonic()
        return discovered

    async def _token(self, discovered: Mapping[str, Any], code: str, pending: Pending) -> str:
        """The ID token for a code. Raises Refused."""
        options = self.options
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": pending.back,
                "code_verifier": pending.verifier}  # fmt: skip
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        methods = discovered.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if options.secret is None:
            form["client_id"] = options.client_id
        elif "client_secret_basic" in methods:
            pair = f"{quote_plus(options.client_id)}:{quote_plus(options.secret)}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form |= {"client_id": options.client_id, "client_secret": options.secret}
        answer = await self._fetch(discovered["token_endpoint"], "POST", urlencode(form).encode(), headers)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise self._away("it sent no ID token")
        return token

    async def _claims(self, discovered: Mapping[str, Any], token: str, nonce: str) -> Mapping[str, Any]:
        """What a valid ID token says. Raises Refused."""
        import jwt

        assert self._keys is not None
        try:
            header = jwt.get_unverified_header(token)
            key_id = header.get("kid")
            if self._keys.is_due(key_id):
                await self._keys.fetch()
            key = self._keys.find(key_id)
            if key is None or header.get("alg") not in ALGORITHMS:
                raise jwt.InvalidKeyError("its signing key is not among the provider's")
            claims: dict[str, Any] = jwt.decode(
                token, key, algorithms=[key.algorithm_name], audience=self.options.client_id,
                issuer=self.options.issuer, leeway=SKEW_S, options={"require": ["exp", "iat", "aud", "iss", "sub"]},
            )  # fmt: skip
            if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
                raise jwt.InvalidTokenError("it is of another login")
            if claims.get("azp", self.options.client_id) != self.options.client_id:
                raise jwt.InvalidTokenError("it was made for another client")
        except (jwt.PyJWTError, RecursionError, ValueError) as error:
            log.warning("login refused", extra={"reason": str(error), "issuer": self.options.issuer})
            raise Refused(
                401,
                said("The token of the identity provider is not valid: {reason}", reason=str(error)[:300]),
                said("Log in again; if that does not help, compare the clocks of the two machines"),
            ) from None
        return claims

    async def _fetch(
        self, url: str, method: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """A JSON object of the provider. Raises Refused."""
        address = Address(url, self.options.context if url.startswith("https:") else None)
        try:
            answer = await asyncio.to_thread(
                ask, address, method, body=body, headers=headers, timeout_s=TIMEOUT_S, bytes_max=BYTES_MAX
            )
            body_read = json.loads(answer.body) if answer.status == HTTPStatus.OK else _reason(answer.body)
        except NoAnswer as error:
            raise self._away(str(error)) from None
        except (ValueError, RecursionError):
            raise self._away("its answer is not JSON") from None
        if answer.status != HTTPStatus.OK or not isinstance(body_read, dict):
            reason = body_read if isinstance(body_read, str) else "its answer is no JSON object"
            raise self._away(f"status {answer.status}{': ' + reason if reason else ''}")
        return body_read

    def _away(self, reason: str) -> Refused:
        log.warning("identity provider fails", extra={"issuer": self.options.issuer, "reason": reason})
        return Refused(
            502,
            said(
                "The identity provider {issuer} cannot be used: {reason}",
                issuer=self.options.issuer,
                reason=reason,
            ),
            said("Try again; sessions that have begun go on without it"),
        )

    def _forget_old(self) -> None:
        now_s = time.monotonic()
        self._pending = {s: one for s, one in self._pending.items() if now_s - one.began_s <= PENDING_S}
        while len(self._pending) >= PENDING_MAX:
            del self._pending[next(iter(self._pending))]


def _reason(body: bytes) -> str:
    """Why a provider refused a request, as OAuth's errors say it."""
    try:
        fields = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(fields, dict):
        return ""
    return str(fields.get("error_description") or fields.get("error") or "")[:300]


def _with(url: str, values: Mapping[str, str]) -> str:
    return url + ("&" if "?" in url else "?") + urlencode(values)


def _unpadded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
