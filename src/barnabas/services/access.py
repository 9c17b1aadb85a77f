"""TLS and users of the HTTP services: the options, declared once, and what follows from them.

`barnabas registry start` and similar commands use these names (services/command.py); `barnabas start --with` puts
`services-` before their names (services/with_broker.py).
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.services.option import ServiceOption
from barnabas.terminal.errors import UsageError

if TYPE_CHECKING:
    import ssl

    from barnabas.http.accepting import ConnectionLimits
    from barnabas.http.directory import Directory
    from barnabas.http.listening import TlsFiles
    from barnabas.http.users import Users


ACCESS: Final = {
    "secure": ServiceOption("DIR", "Certificate and users of the folder that `barnabas security init` made."),
    "tls-cert": ServiceOption("FILE", "Serve HTTPS with this certificate (PEM)."),
    "tls-key": ServiceOption("FILE", "Its key (PEM). Default: in the same file."),
    "tls-client-ca": ServiceOption("FILE", "Clients must show a certificate of this authority (PEM)."),
    "users": ServiceOption(
        "FILE", "Who may log in: the brokers' scram.users.file, lines USER.SCRAM-SHA-512=..."
    ),
    "ldap": ServiceOption(
        "URL",
        "Who may log in: users of this directory, asked by LDAP (ldaps://HOST, or ldap://HOST with StartTLS).",
        kind=str,
    ),
    "ldap-user": ServiceOption(
        "NAME",
        "The name of a user there, with {user} in it: uid={user},ou=people,dc=example,dc=com.",
        kind=str,
    ),
    "jwks": ServiceOption(
        "URL", "Who may log in: bearers of tokens that these keys have signed (https or file).", kind=str
    ),
    "issuer": ServiceOption("NAME", "The issuer that tokens must name.", kind=str),
    "audience": ServiceOption("NAME", "The audience that tokens must name.", kind=str),
    "max-connections": ServiceOption("N", "Maximum number of connections. Default: 5000.", kind=int),
    "max-connections-per-ip": ServiceOption(
        "N",
        "Maximum number of connections from one address, which may be a balancer's. Default: 1000.",
        kind=int,
    ),
    "cors": ServiceOption(
        "ORIGIN", "Web pages that may call it, * for all; may be repeated.", kind=str, repeats=True
    ),
    "allow-host": ServiceOption(
        "NAME",
        "Another name by which clients reach it, * for all, *.DOMAIN for those of a domain; may be repeated.",
        kind=str,
        repeats=True,
    ),
}
"""By the name on the command line; fields of Access have underscores."""
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s,]+/?")
_HOST_NAME: Final = re.compile(r"\*|(\*\.)?[\w-]+(\.[\w-]+)*\.?")
OPEN_HELP: Final = "Serve other machines although there is no TLS or no login."
KEY_PASSWORD: Final = "BARNABAS_TLS_KEY_PASSWORD"
HASHES_OF_PASSWORDS: Final = "what users' passwords are checked against"
INSIDE_USER: Final = "in-process"
INSIDE_PASSWORD: Final = secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Access:
    """The values of these options. key_password: from the environment, so that `ps` does not show it."""

    secure: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    users: Path | None = None
    ldap: str | None = None
    ldap_user: str | None = None
    jwks: str | None = None
    issuer: str | None = None
    audience: str | None = None
    is_open: bool = False
    max_connections: int | None = None
    max_connections_per_ip: int | None = None
    cors: Sequence[str] | None = None
    allow_host: Sequence[str] | None = None
    prefix: str = "--"
    """How the options begin on this command line; used in messages."""
    is_inside: bool = False
    """Whether services of one process log in to each other."""

    def tls(self) -> TlsFiles | None:
        """The certificate to serve with; None for plain HTTP. Raises UsageError."""
        from barnabas.http.listening import TlsFiles

        certificate = self.tls_cert
        if certificate is None:
            if self.tls_key is not None or (self.tls_client_ca is not None and self.secure is None):
                p = self.prefix
                raise UsageError(f"{p}tls-key and {p}tls-client-ca need {p}tls-cert")
            if self.secure is None:
                return None
            certificate = self._of_folder("broker.pem")
        key = self.tls_key or certificate
        # Without any password OpenSSL would ask for one on the terminal; a wrong password gives an error instead.
        password = os.environ.get(KEY_PASSWORD) or "none"
        client_ca = None if self.tls_client_ca is None else str(self.tls_client_ca)
        return TlsFiles(str(certificate), str(key), password, client_ca, self.is_inside)

    def connections(self) -> ConnectionLimits:
        """The limits on connections. Raises UsageError."""
        from barnabas.http.accepting import ConnectionLimits

        default, p = ConnectionLimits(), self.prefix
        wanted = {
            "max-connections": self.max_connections,
            "max-connections-per-ip": self.max_connections_per_ip,
        }
        for word, value in wanted.items():
            if value is not None and value < 1:
                raise UsageError(f"{p}{word} {value} is not a positive number")
        return ConnectionLimits(
            self.max_connections or default.connections, self.max_connections_per_ip or default.per_address
        )

    def origins(self) -> tuple[str, ...]:
        """The web pages that may call the service. Raises UsageError."""
        for origin in self.cors or ():
            if origin not in ("*", "null") and not _ORIGIN.fullmatch(origin):
                raise UsageError(
                    f"{self.prefix}cors {origin!r} is not an origin like https://app.example.com:8443"
                )
        return tuple(self.cors or ())

    def names(self) -> tuple[str, ...]:
        """More names by which clients reach the service. Raises UsageError."""
        for name in self.allow_host or ():
            if not _HOST_NAME.fullmatch(name):
                raise UsageError(
                    f"{self.prefix}allow-host {name!r} is not a name like schemas.example.com, without a port"
                )
        return tuple(self.allow_host or ())

    def secret_files(self) -> Iterator[tuple[Path, str]]:
        """(path, what it contains) of the files in these options that only the service should be able to read."""
        key = self.tls_key or self.tls_cert
        if key is not None:
            yield key, "the service's private key"
        if self.users is not None:
            yield self.users, HASHES_OF_PASSWORDS
        if self.secure is not None:
            if key is None:
                yield self.secure / "broker.pem", "the service's private key"
            if self.users is None:
                yield self.secure / "users.properties", HASHES_OF_PASSWORDS

    @property
    def has_users(self) -> bool:
        """Whether a login is required."""
        return any((self.secure, self.users, self.ldap, self.jwks))

    def authenticate(self) -> Users | None:
        """Who may use the service; None for everybody. Raises UsageError."""
        file = self.users or (self._of_folder("users.properties") if self.secure is not None else None)
        if self.jwks is None and (self.issuer or self.audience):
            p = self.prefix
            raise UsageError(f"{p}issuer and {p}audience need {p}jwks")
        if (self.ldap is None) is not (self.ldap_user is None):
            p = self.prefix
            raise UsageError(f"{p}ldap URL and {p}ldap-user NAME are given together")
        if file is None and self.jwks is None and self.ldap is None:
            return None
        from barnabas.config.option import ConfigError
        from barnabas.http.users import Tokens, UserFile, Users
        from barnabas.security.folder import FolderError

        try:
            tokens = None if self.jwks is None else Tokens(self.jwks, self.issuer, self.audience)
            inside = (INSIDE_USER, self.inside_password()) if self.is_inside else None
            return Users(None if file is None else UserFile(file), tokens, inside, self._directory())
        except (FolderError, ConfigError) as error:
            raise UsageError(str(error)) from None

    def _directory(self) -> Directory | None:
        """The directory of users; None without one. Raises UsageError."""
        if self.ldap is None or self.ldap_user is None:
            return None
        from barnabas.extras import how_to_install
        from barnabas.http.directory import BadDirectory, Directory

        option = f"{self.prefix}ldap"
        try:
            return Directory(self.ldap, self.ldap_user, option)
        except ImportError:
            raise UsageError(f"{option} needs the package ldap3: {how_to_install('ldap')}") from None
        except BadDirectory as error:
            raise UsageError(str(error)) from None

    def peers(self) -> ssl.SSLContext | None:
        """How an instance verifies other instances with the same options; None: by the system's authorities."""
        tls = self.tls()
        if tls is None:
            return None
        import ssl

        authority = None if self.secure is None else self._of_folder("ca.pem")
        try:
            context = ssl.create_default_context(cafile=authority)
            context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
        except OSError as error:
            raise _unusable(tls, error) from None
        return context

    def inside_password(self) -> str:
        """The password with which the services of one process, or of processes that share a private key, log in to
        each other. Registries forward requests with the caller's login. Raises UsageError.
        """
        tls = self.tls()
        if tls is None:
            return INSIDE_PASSWORD
        try:
            key = Path(tls.key_file).read_bytes()
        except OSError as error:
            raise _unusable(tls, error) from None
        return hmac.digest(key, b"services of one process", "sha256").hex()

    def within(self) -> ssl.SSLContext | None:
        """How services of this process verify each other: by this very certificate. None for plain HTTP. Raises
        UsageError.
        """
        tls = self.tls()
        if tls is None:
            return None
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # its names do not matter: no other process has its key
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(tls.certificate_file)
            context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
        except OSError as error:
            raise _unusable(tls, error) from None
        return context

    def _of_folder(self, name: str) -> Path:
        assert self.secure is not None
        file = self.secure / name
        if not file.is_file():
            raise UsageError(
                f"{self.secure} has no {name}; make the folder with: barnabas security init {self.secure}"
            )
        return file


def _unusable(tls: TlsFiles, error: OSError) -> UsageError:
    return UsageError(f"TLS files cannot be loaded ({tls.certificate_file}): {error}")


def exposed(files: Iterable[tuple[Path, str]]) -> Iterator[str]:
    """One line about each file that every user of the machine can read. files: (path, what it contains)."""
    from barnabas.security.exposed import exposed_line
    from barnabas.security.stores import readable_by_others

    for path, what in files:
        if readable_by_others(str(path)):
            yield exposed_line(str(path), what)


def check_openness(
    listen: str, access: Access, tls: TlsFiles | None, *, has_login: bool, option: str = "--listen"
) -> None:
    """Raises UsageError for an address that other machines reach, without TLS or a login, unless --open allows it.

    option: the one that names the address.
    """
    from barnabas.http.listening import ServiceError, parse_listen
    from barnabas.security.openness import is_loopback

    try:
        host, _ = parse_listen(listen)
    except ServiceError as error:
        raise UsageError(str(error).replace("--listen", option)) from None
    if access.is_open or is_loopback(host):
        return
    has_login = has_login or (tls is not None and tls.client_ca_file is not None)
    missing = [word for word, there in (("TLS", tls is not None), ("a login", has_login)) if not there]
    if missing:
        p = access.prefix
        raise UsageError(
            f"{option} {listen} is reached from other machines, without {' and '.join(missing)}; give --secure DIR (see "
            f"`barnabas security init`), {p}tls-cert and {p}users, or say {p}open if that is meant"
        )
