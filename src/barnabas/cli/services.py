"""What the commands that serve HTTP have in common: options, the extra that they need, and running until a signal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.cli.errors import CliError, UsageError
from barnabas.extras import how_to_install

if TYPE_CHECKING:
    import ssl

    from barnabas.http.guard import Authenticate
    from barnabas.http.listening import TlsFiles
    from barnabas.http.server import HttpOptions, HttpServer

MEGABYTE: Final = 1 << 20

Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="The address to serve.")]
Cors = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN", help="Web pages that may call it, * for all; may be repeated.", show_default=False
    ),
]
BodyMb = Annotated[int, typer.Option(metavar="MB", help="The largest request body.")]
TimeoutS = Annotated[float, typer.Option(metavar="S", help="How long a request may take.")]
Secure = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Certificate and users of the folder that `barnabas security init` made.",
        show_default=False,
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Serve HTTPS with this certificate (PEM).", show_default=False),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Its key (PEM); default: in the same file.", show_default=False),
]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Clients must show a certificate of this authority (PEM).", show_default=False
    ),
]
UsersFile = Annotated[
    Path | None,
    typer.Option(
        "--users",
        metavar="FILE",
        help="Who may log in: the brokers' scram.users.file, lines USER.SCRAM-SHA-512=...",
        show_default=False,
    ),
]
Jwks = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Who may log in: bearers of tokens that these keys have signed (https or file).",
        show_default=False,
    ),
]
Issuer = Annotated[
    str | None, typer.Option(metavar="NAME", help="The issuer that tokens must name.", show_default=False)
]
Audience = Annotated[
    str | None, typer.Option(metavar="NAME", help="The audience that tokens must name.", show_default=False)
]
Open = Annotated[
    bool,
    typer.Option("--open", help="Serve other machines although there is no TLS or no login."),
]
KEY_PASSWORD: Final = "BARNABAS_TLS_KEY_PASSWORD"


@contextmanager
def services_extra(who: str) -> Iterator[None]:
    """Around the imports of a service; who: what needs them, for the CliError where they are not installed."""
    try:
        yield
    except ImportError as error:
        raise CliError(
            f"{who} needs an extra that is not installed ({error.name}); install it with {how_to_install('services')}"
        ) from None


@dataclass(frozen=True, slots=True)
class Access:
    """What the options below say of TLS and users. key_password: of the environment, which is not seen in `ps`."""

    secure: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    users: Path | None = None
    jwks: str | None = None
    issuer: str | None = None
    audience: str | None = None
    is_open: bool = False

    def tls(self) -> TlsFiles | None:
        """The certificate to serve with; None for plain HTTP. Raises UsageError."""
        from barnabas.http.listening import TlsFiles

        certificate = self.tls_cert
        if certificate is None:
            if self.tls_key is not None or (self.tls_client_ca is not None and self.secure is None):
                raise UsageError("--tls-key and --tls-client-ca need --tls-cert")
            if self.secure is None:
                return None
            certificate = self._of_folder("broker.pem")
        key = self.tls_key or certificate
        # Without a password OpenSSL would ask for one on the terminal: a wrong one gives an error instead.
        password = os.environ.get(KEY_PASSWORD) or "none"
        client_ca = None if self.tls_client_ca is None else str(self.tls_client_ca)
        return TlsFiles(str(certificate), str(key), password, client_ca)

    def authenticate(self) -> Authenticate | None:
        """Who may use the service; None for everybody. Raises UsageError."""
        file = self.users or (self._of_folder("users.properties") if self.secure is not None else None)
        if self.jwks is None and (self.issuer or self.audience):
            raise UsageError("--issuer and --audience need --jwks")
        if file is None and self.jwks is None:
            return None
        from barnabas.config.option import ConfigError
        from barnabas.http.users import Tokens, UserFile, Users
        from barnabas.security.folder import FolderError

        try:
            tokens = None if self.jwks is None else Tokens(self.jwks, self.issuer, self.audience)
            return Users(None if file is None else UserFile(file), tokens)
        except (FolderError, ConfigError) as error:
            raise UsageError(str(error)) from None

    def peers(self) -> ssl.SSLContext | None:
        """How an instance trusts others that were started with the same options; None for the system's authorities."""
        tls = self.tls()
        if tls is None:
            return None
        import ssl

        authority = None if self.secure is None else self._of_folder("ca.pem")
        try:
            context = ssl.create_default_context(cafile=authority)
            context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
        except OSError as error:
            raise UsageError(f"TLS files cannot be loaded ({tls.certificate_file}): {error}") from None
        return context

    def _of_folder(self, name: str) -> Path:
        assert self.secure is not None
        file = self.secure / name
        if not file.is_file():
            raise UsageError(
                f"{self.secure} has no {name}; make the folder with: barnabas security init {self.secure}"
            )
        return file


def http_options(
    listen: str,
    body_mb: int,
    timeout_s: float,
    access: Access,
    cors: Sequence[str] | None = None,
    *,
    has_own_login: bool = False,
) -> HttpOptions:
    """The options of the command line, as the server takes them. Raises UsageError.

    has_own_login: the service asks for one that its API has.
    """
    from barnabas.http.guard import Limits
    from barnabas.http.server import HttpOptions

    tls, authenticate = access.tls(), access.authenticate()
    check_openness(listen, access, tls, has_login=has_own_login or authenticate is not None)
    return HttpOptions(
        listen, Limits(body_mb * MEGABYTE, timeout_s), tuple(cors or ()), tls=tls, authenticate=authenticate
    )


def check_openness(listen: str, access: Access, tls: TlsFiles | None, *, has_login: bool) -> None:
    """Raises UsageError for an address that other machines reach, without TLS or a login, unless --open allows it."""
    from barnabas.http.listening import ServiceError, parse_listen
    from barnabas.security.openness import is_loopback

    try:
        host, _ = parse_listen(listen)
    except ServiceError as error:
        raise UsageError(str(error)) from None
    if access.is_open or is_loopback(host):
        return
    has_login = has_login or (tls is not None and tls.client_ca_file is not None)
    missing = [word for word, there in (("TLS", tls is not None), ("a login", has_login)) if not there]
    if missing:
        raise UsageError(
            f"--listen {listen} is reached from other machines, without {' and '.join(missing)}; give --secure DIR (see "
            "`barnabas security init`), --tls-cert and --users, or say --open if that is meant"
        )


def serve(server: HttpServer, ready: Callable[[], str]) -> int:
    """Serve until a signal; the exit code. ready: the line that says that it answers. Raises CliError."""
    from barnabas.http.listening import ServiceError
    from barnabas.http.server import run, say

    try:
        return run([server], lambda: say(ready()))
    except ServiceError as error:
        raise CliError(str(error)) from None
