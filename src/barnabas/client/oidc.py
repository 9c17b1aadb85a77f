"""Tokens of an identity provider (OIDC), for the login OAUTHBEARER: fetched from its token endpoint, kept while they last.

The request is OAuth's grant for clients (RFC 6749, 4.4): HTTP POST with the client's id and secret as Basic authorization.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from barnabas.client.errors import AuthenticationFailed, ClientError
from barnabas.http_client import Address, Answer, NoAnswer, ask, without_login

METHOD: Final = "sasl.oauthbearer.method"
URL: Final = "sasl.oauthbearer.token.endpoint.url"
IDS: Final = ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")
SECRETS: Final = ("sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret")
SCOPE: Final = "sasl.oauthbearer.scope"
EXTENSIONS: Final = "sasl.oauthbearer.extensions"
GRANT: Final = "sasl.oauthbearer.grant.type"
CA_FILE: Final = "https.ca.location"
CA_TEXT: Final = "https.ca.pem"
NAMES: Final = frozenset({METHOD, URL, *IDS, *SECRETS, SCOPE, EXTENSIONS, GRANT})
"""The supported options among `sasl.*`; the names are librdkafka's."""
METADATA: Final = "sasl.oauthbearer.metadata.authentication.type"
OTHER_GRANTS: Final = frozenset(
    {
        METADATA, "sasl.oauthbearer.assertion.algorithm", "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds", "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include", "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub", "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.jwt.template.file", "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase", "sasl.oauthbearer.assertion.private.key.pem",
    }
)  # fmt: skip
"""librdkafka's options of grants that this client does not ask for."""
CLIENT_CREDENTIALS: Final = "client_credentials"

TIMEOUT_S: Final = 10.0
TRIES: Final = 3
PAUSE_S: Final = 0.5
BUSY: Final = frozenset({408, 429, 500, 502, 503, 504})
ANSWER_BYTES_MAX: Final = 1 << 20
USED_PART: Final = 0.8
"""A token is used for this part of its life, and then replaced."""
LIFE_S: Final = 300.0
"""The life of a token whose answer names none."""


@dataclass(frozen=True, slots=True)
class OidcOptions:
    """Where tokens are fetched, and as whom. ca_file, ca_text: whom to trust instead of the system's authorities."""

    url: str
    client_id: str
    secret: str = field(repr=False)
    scope: str = ""
    ca_file: str = ""
    ca_text: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str], jaas: Mapping[str, str]) -> OidcOptions | None:
        """What the options say; None if tokens come from elsewhere. jaas: the options of sasl.jaas.config.

        Raises ClientError naming the option.
        """
        url, method = options.get(URL, ""), options.get(METHOD, "").lower()
        if method not in ("", "default", "oidc"):
            raise ClientError(f"{METHOD}={method} is not one of default, oidc")
        is_http = urlsplit(url).scheme in ("http", "https")
        if method != "oidc" and not (method == "" and is_http):
            return None
        if not is_http or not urlsplit(url).hostname:
            raise ClientError(
                f"{URL}={without_login(url)}: {METHOD}=oidc needs the http(s):// address of the provider"
            )
        grant = options.get(GRANT, CLIENT_CREDENTIALS)
        if grant != CLIENT_CREDENTIALS:
            raise ClientError(f"{GRANT}={grant} is not supported here: use {CLIENT_CREDENTIALS}")
        if options.get(METADATA, "none").lower() != "none":
            raise ClientError(
                f"{METADATA}={options[METADATA]} is not supported here: use {METHOD}=oidc without it"
            )
        client_id = next((options[name] for name in IDS if options.get(name)), jaas.get("clientId", ""))
        secret = next((options[name] for name in SECRETS if options.get(name)), jaas.get("clientSecret", ""))
        for name, value in ((IDS[0], client_id), (SECRETS[0], secret)):
            if not value:
                raise ClientError(f"{name} is not set, but {METHOD}=oidc needs it")
        return cls(
            url, client_id, secret, options.get(SCOPE) or jaas.get("scope", ""),
            options.get(CA_FILE, ""), options.get(CA_TEXT, ""),
        )  # fmt: skip


def for_librdkafka(options: Mapping[str, str], jaas: Mapping[str, str]) -> dict[str, str]:
    """The same in librdkafka's options, where Java's way was used; empty if no tokens are fetched. Raises ClientError."""
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms") or ""
    login = OidcOptions.of(options, jaas) if mechanism.upper() == "OAUTHBEARER" else None
    if login is None:
        return {}
    scope = {SCOPE: login.scope} if login.scope else {}
    return {METHOD: "oidc", IDS[0]: login.client_id, SECRETS[0]: login.secret, **scope}


class _CachedToken(NamedTuple):
    token: str
    use_until: float
    """By the monotonic clock."""


_lock = threading.Lock()
_tokens: dict[OidcOptions, _CachedToken] = {}


def token_of(options: OidcOptions) -> str:
    """A token that is good for a while; connections share it. Blocks while one is fetched. Raises AuthenticationFailed."""
    with _lock:
        token = _tokens.get(options)
        if token is None or time.monotonic() >= token.use_until:
            token = _tokens[options] = _fetched(options)
        return token.token


def forget(options: OidcOptions) -> None:
    """Fetch a new token next time: a broker has refused this one."""
    with _lock:
        _tokens.pop(options, None)


def _fetched(options: OidcOptions) -> _CachedToken:
    begun = time.monotonic()
    where = without_login(options.url)
    for left in range(TRIES - 1, -1, -1):
        try:
            answer = _exchange(options)
        except NoAnswer as error:
            if not left:
                raise AuthenticationFailed(
                    f"no token can be fetched from {where}: {error}; check {URL}, and {CA_FILE} if it is https"
                ) from None
        else:
            if answer.status not in BUSY or not left:
                return _read(options, answer.status, answer.body, begun)
        time.sleep(PAUSE_S)
    raise AssertionError("TRIES is at least 1")


def _exchange(options: OidcOptions) -> Answer:
    context = _context(options) if urlsplit(options.url).scheme == "https" else None
    login = base64.b64encode(f"{options.client_id}:{options.secret}".encode()).decode()
    form = {"grant_type": CLIENT_CREDENTIALS} | ({"scope": options.scope} if options.scope else {})
    headers = {
        "Authorization": f"Basic {login}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    form_bytes = urlencode(form).encode()
    return ask(
        Address(options.url, context), "POST", "", form_bytes, headers,
        timeout_s=TIMEOUT_S, bytes_max=ANSWER_BYTES_MAX,
    )  # fmt: skip


def _context(options: OidcOptions) -> ssl.SSLContext:
    file = None if options.ca_file in ("", "probe") else options.ca_file
    try:
        return ssl.create_default_context(cafile=file, cadata=options.ca_text or None)
    except (OSError, ssl.SSLError) as error:
        name = f"{CA_FILE}={file}" if file else CA_TEXT
        raise AuthenticationFailed(f"{name}: no certificates can be read there ({error})") from None


def _read(options: OidcOptions, status: int, raw: bytes, begun: float) -> _CachedToken:
    """The token in an answer. begun: when it was asked for."""
    try:
        answer: Any = json.loads(raw)
    except ValueError:
        answer = None
    fields = answer if isinstance(answer, dict) else {}
    where = without_login(options.url)
    if status >= 300:
        reason = ": ".join(str(fields[name]) for name in ("error", "error_description") if fields.get(name))
        raise AuthenticationFailed(
            f"{where} gives the client {options.client_id} no token: {reason or 'no reason'} (status {status}); check "
            f"{IDS[0]}, {SECRETS[0]} and {SCOPE}"
        )
    token = fields.get("access_token")
    if (
        not isinstance(token, str)
        or not token
        or not token.isascii()
        or not token.isprintable()
        or " " in token
    ):
        raise AuthenticationFailed(f"{where} does not answer as a token endpoint does; check {URL}")
    life = fields.get("expires_in")
    life_s = float(life) if isinstance(life, int | float) and life > 0 else LIFE_S
    return _CachedToken(token, begun + USED_PART * life_s)
