"""What the commands that serve HTTP have in common: options, the extra that they need, and running until a signal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from barnabas.extras import how_to_install
from barnabas.services.access import ACCESS, OPEN_HELP, Access, check_openness, exposed
from barnabas.terminal import profiles
from barnabas.terminal.errors import CliError

if TYPE_CHECKING:
    from barnabas.http.server import HttpOptions, HttpServer

log = logging.getLogger("barnabas.http")

MEGABYTE: Final = 1 << 20


def of_access(word: str) -> Any:
    """The option as services/access.py declares it."""
    option = ACCESS[word]
    return typer.Option(f"--{word}", metavar=option.metavar, help=option.help, show_default=False)


Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="The address to serve.")]
BodyMb = Annotated[int, typer.Option(metavar="MB", help="The largest request body.")]
TimeoutS = Annotated[float, typer.Option(metavar="SECONDS", help="How long a request may take.")]
Secure = Annotated[Path | None, of_access("secure")]
TlsCert = Annotated[Path | None, of_access("tls-cert")]
TlsKey = Annotated[Path | None, of_access("tls-key")]
TlsClientCa = Annotated[Path | None, of_access("tls-client-ca")]
UsersFile = Annotated[Path | None, of_access("users")]
Jwks = Annotated[str | None, of_access("jwks")]
Issuer = Annotated[str | None, of_access("issuer")]
Audience = Annotated[str | None, of_access("audience")]
MaxConnections = Annotated[int | None, of_access("max-connections")]
MaxConnectionsPerIp = Annotated[int | None, of_access("max-connections-per-ip")]
Cors = Annotated[list[str] | None, of_access("cors")]
AllowHost = Annotated[list[str] | None, of_access("allow-host")]
Open = Annotated[bool, typer.Option("--open", help=OPEN_HELP)]


@contextmanager
def services_extra(who: str) -> Iterator[None]:
    """To be put around the imports of a service; who: what needs them, for the CliError when they are not installed."""
    try:
        yield
    except ImportError as error:
        raise CliError(
            f"{who} needs an extra that is not installed ({error.name}); install it with {how_to_install('services')}"
        ) from None


def warn_of_exposed(access: Access, more: Iterable[tuple[Path, str]] = ()) -> None:
    """Log the files with secrets that every user of the machine can read. more: files of the service itself."""
    files = [*access.secret_files(), *more]
    if profiles.chosen() is not None:
        files.append((profiles.path(), "passwords"))
    for line in exposed(files):
        log.warning("a file with secrets is open to others", extra={"reason": line})


def http_options(
    listen: str,
    body_mb: int,
    timeout_s: float,
    access: Access,
    *,
    has_own_login: bool = False,
    secret_files: Iterable[tuple[Path, str]] = (),
) -> HttpOptions:
    """The command line's options as the server's settings. Raises UsageError.

    has_own_login: the service's API has a login of its own. secret_files: more files that only the service should read.
    """
    from barnabas.http.guard import Limits
    from barnabas.http.server import HttpOptions

    warn_of_exposed(access, secret_files)
    tls, authenticate = access.tls(), access.authenticate()
    check_openness(listen, access, tls, has_login=has_own_login or authenticate is not None)
    return HttpOptions(
        listen,
        Limits(body_mb * MEGABYTE, timeout_s),
        access.origins(),
        access.names(),
        tls=tls,
        authenticate=authenticate,
        connections=access.connections(),
    )


def serve(server: HttpServer, ready: Callable[[], str]) -> int:
    """Serve until a signal; the exit code. ready: the line to print when the service answers. Raises CliError."""
    from barnabas.http.listening import ServiceError
    from barnabas.http.server import run, say

    try:
        return run([server], lambda: say(ready()))
    except ServiceError as error:
        raise CliError(str(error)) from None
