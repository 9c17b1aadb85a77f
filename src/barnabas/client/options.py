"""How to reach a cluster: converts Kafka's option names to one checked value.

`from_kafka` takes the names that Kafka clients have in common (`security.protocol`, `sasl.mechanism`, ...), which Spark's
source uses with the prefix `kafka.`.
"""

from __future__ import annotations

import difflib
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from barnabas.client import oidc
from barnabas.client.errors import ClientError
from barnabas.client.tls import CRL_FILE, JAVA_ONLY, STORE_NAMES, context_of
from barnabas.config import jaas

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
DEFAULT_PORT: Final = 9092
PORT_MAX: Final = 65535

SECURITY_NAMES: Final = STORE_NAMES | {
    "ssl.endpoint.identification.algorithm", "sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config",
    "sasl.username", "sasl.password", "sasl.oauthbearer.token", CRL_FILE, *oidc.NAMES,
}  # fmt: skip
"""The supported options among `ssl.*` and `sasl.*`."""
SECURITY_IGNORED: Final = JAVA_ONLY | {
    "ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list", "ssl.providers", "ssl.engine.id", "ssl.engine.location",
    "sasl.kerberos.service.name", "sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd", "sasl.kerberos.principal",
    "sasl.kerberos.min.time.before.relogin", "sasl.oauthbearer.config", "sasl.oauthbearer.sub.claim.name",
    *oidc.OTHER_GRANTS,
}  # fmt: skip
"""Settings of Java and librdkafka that mean nothing here."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The options of `client/tls.py`, as pairs of name and value: clients are shared by their options, which must have a
    hash. The files that they name are read when a connection is made, on the machine where it is made.
    """

    pairs: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> TlsOptions:
        """The options of a mapping."""
        return cls(tuple(sorted(options.items())))

    def context(self) -> ssl.SSLContext:
        """The TLS context. Raises ClientError naming the option and the file that cannot be read."""
        return context_of(dict(self.pairs))


@dataclass(frozen=True, slots=True)
class SaslOptions:
    """Credentials. token: the bearer token of OAUTHBEARER. token_file: a file with it instead, read again for each login.
    provider: fetches it instead. extensions: sent with it, NAME=VALUE,..."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    provider: oidc.OidcOptions | None = None
    extensions: str = ""

    @property
    def is_bearer(self) -> bool:
        """Whether the login is by a token."""
        return self.mechanism == "OAUTHBEARER"

    def bearer(self) -> str:
        """The token; it may be fetched, which blocks. Raises ClientError for a file that cannot be read, or holds none,
        and AuthenticationFailed if no token can be fetched."""
        if self.provider is not None:
            return oidc.token_of(self.provider)
        if not self.token_file:
            return self.token
        try:
            with open(self.token_file, encoding="ascii") as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ClientError(f"the token in {self.token_file} cannot be read: {error}") from None
        if not token or any(char.isspace() or char < " " for char in token):
            raise ClientError(f"{self.token_file} holds no token")
        return token

    def forget_bearer(self) -> None:
        """A broker has refused the token: a new one is fetched next time, if tokens are fetched."""
        if self.provider is not None:
            oidc.forget(self.provider)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """One cluster and how to talk to it. Times in seconds.

    contact_timeout_s: how long the first contact is tried while all addresses refuse. deadline_s: how long a repeatable
    request is retried. retries_max: the maximum number of retries; None: until the deadline.
    """

    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "barnabas"
    tls: TlsOptions | None = None
    sasl: SaslOptions | None = None
    connect_timeout_s: float = 10.0
    contact_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    deadline_s: float = 60.0
    backoff_s: float = 0.05
    retries_max: int | None = None

    @classmethod
    def from_kafka(cls, options: Mapping[str, str]) -> ClientOptions:
        """Options from Kafka's client option names; names that do not concern connections are ignored.

        Raises ClientError naming the option, its value and what is allowed.
        """
        bootstrap = options.get("bootstrap.servers", "")
        if not bootstrap.strip():
            raise ClientError("bootstrap.servers is not set: name at least one broker as host:port")
        _check_security_names(options)
        protocol = options.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise ClientError(f"security.protocol={protocol} is not one of {', '.join(PROTOCOLS)}")
        return cls(
            bootstrap=parse_bootstrap(bootstrap),
            client_id=options.get("client.id", "barnabas"),
            tls=_tls(options) if protocol.endswith("SSL") else None,
            sasl=_sasl(options) if protocol.startswith("SASL") else None,
            request_timeout_s=_seconds(options, "request.timeout.ms", 30.0),
            deadline_s=_seconds(options, "delivery.timeout.ms", 60.0),
            connect_timeout_s=_seconds(options, "socket.connection.setup.timeout.ms", 10.0),
        )


def parse_bootstrap(text: str) -> tuple[tuple[str, int], ...]:
    """Parse `host:port,host:port`; IPv6 as `[::1]:9092`, port 9092 if omitted.

    Raises ClientError showing the part that is not an address.
    """
    addresses = []
    for part in text.split(","):
        protocol, _, address = part.strip().rpartition("://")  # PLAINTEXT://host:port is accepted as well
        if not address:
            continue
        match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:]+))(?::(\d+))?", address)
        if match is None or (protocol and protocol.upper() not in PROTOCOLS):
            raise ClientError(f"{part.strip()!r} in bootstrap.servers is not host:port")
        port = int(match[3] or DEFAULT_PORT)
        if not 1 <= port <= PORT_MAX:
            raise ClientError(f"{address!r} in bootstrap.servers: the port must be from 1 to {PORT_MAX}")
        addresses.append((match[1] or match[2], port))
    if not addresses:
        raise ClientError("bootstrap.servers is empty: name at least one broker as host:port")
    return tuple(addresses)


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    if name not in options:
        return default
    try:
        value = int(options[name]) / 1000
    except ValueError:
        value = 0.0
    if value <= 0:
        raise ClientError(f"{name}={options[name]} is not a positive number of milliseconds")
    return value


def _check_security_names(options: Mapping[str, str]) -> None:
    for name in options:
        if name.startswith(("ssl.", "sasl.")) and name not in SECURITY_NAMES | SECURITY_IGNORED:
            near = difflib.get_close_matches(name, SECURITY_NAMES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ClientError(
                f"{name} is not supported here{hint} (known: {', '.join(sorted(SECURITY_NAMES))})"
            )


def _tls(options: Mapping[str, str]) -> TlsOptions:
    names = (
        "enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm", CRL_FILE, *STORE_NAMES,
    )  # fmt: skip
    return TlsOptions.of({name: options[name] for name in names if name in options})


def _token_file(url: str) -> str:
    """The path of file:///PATH. Raises ClientError for other addresses."""
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ClientError(
            f"{oidc.URL}={url}: tokens come from a file (file:///PATH), or with {oidc.METHOD}=oidc from https://..."
        )
    return unquote(parts.path)


def jaas_values(text: str) -> Mapping[str, str]:
    """The options in sasl.jaas.config: username, password and others; none in an empty text. Raises ClientError.

    A semicolon may be missing at its end.
    """
    if not text.strip():
        return {}
    stripped = text.rstrip()
    try:
        return jaas.parse_login(stripped if stripped.endswith(";") else f"{stripped};").options
    except jaas.JaasError as error:
        form = 'MODULE required NAME="VALUE" ...;'
        raise ClientError(f"sasl.jaas.config is not of the form {form}: {error}") from None


def _sasl(options: Mapping[str, str]) -> SaslOptions:
    mechanism = (options.get("sasl.mechanism") or options.get("sasl.mechanisms") or "").upper()
    if mechanism not in MECHANISMS:
        raise ClientError(f"sasl.mechanism={mechanism or '(not set)'} is not one of {', '.join(MECHANISMS)}")
    login = jaas_values(options.get("sasl.jaas.config", ""))
    is_bearer = mechanism == "OAUTHBEARER"
    provider = oidc.OidcOptions.of(options, login) if is_bearer else None
    sasl = SaslOptions(
        mechanism,
        options.get("sasl.username") or login.get("username", ""),
        options.get("sasl.password") or login.get("password", ""),
        options.get("sasl.oauthbearer.token", ""),
        _token_file(options.get(oidc.URL, "")) if is_bearer and provider is None else "",
        provider,
        options.get(oidc.EXTENSIONS, ""),
    )
    if is_bearer:
        if not sasl.token and not sasl.token_file and provider is None:
            raise ClientError(
                f"neither sasl.oauthbearer.token nor {oidc.URL} (https://..., file:///PATH) is set"
            )
    elif not sasl.username:
        raise ClientError("sasl.username is not set (nor username in sasl.jaas.config)")
    return sasl
