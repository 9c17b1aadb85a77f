"""The commands that serve HTTP are made from the table of services: options, checks, and running until a signal."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from barnabas.services.access import ACCESS, OPEN_HELP, Access, check_openness, exposed
from barnabas.services.option import COMMON, MEGABYTE, ServiceOption, field_of, require_positive
from barnabas.services.row import Row, ServiceContext, needs_extra
from barnabas.terminal import profiles
from barnabas.terminal.connection import target
from barnabas.terminal.errors import CliError
from barnabas.terminal.options import Bootstrap, Properties
from barnabas.terminal.runner import example

if TYPE_CHECKING:
    from barnabas.http.server import HttpOptions, HttpServer

log = logging.getLogger("barnabas.http")

Parameters = dict[str, tuple[Any, Any]]
"""Type with typer's option, and default, by the name of the parameter."""


def parameters_of(options: Mapping[str, ServiceOption]) -> Parameters:
    """Options as typer's parameters."""
    parameters: Parameters = {}
    for word, option in options.items():
        kind: Any = list[option.kind] if option.repeats else option.kind  # type: ignore[name-defined]
        if option.is_argument:
            argument = typer.Argument(metavar=option.metavar, help=option.help, show_default=False)
            parameters[field_of(word)] = (Annotated[kind | None, argument], None)
            continue
        declared = typer.Option(
            *option.names_of(word),
            metavar=option.metavar,
            help=option.help,
            envvar=option.env,
            show_default=option.default is not None,
        )
        parameters[field_of(word)] = (
            Annotated[kind if option.default is not None else kind | None, declared],
            option.default,
        )
    return parameters


def access_parameters() -> Parameters:
    """The options of TLS and users, as typer's parameters."""
    is_open = (Annotated[bool, typer.Option("--open", help=OPEN_HELP)], False)
    return {**parameters_of(ACCESS), "is_open": is_open}


def with_parameters(command: Callable[..., int], parameters: Parameters) -> Callable[..., int]:
    """The command, whose last parameter is **given, with these parameters in its place."""
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in parameters.items()
    ]

    def run(**options: Any) -> int:
        return command(**options)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*own, *more)} | {"return": int}
    return run


def access_in(options: Mapping[str, Any]) -> Access:
    """The values of the options of TLS and users."""
    return Access(
        **{one.name: options[one.name] for one in fields(Access) if one.name not in ("prefix", "is_inside")}
    )


def limits_of(row: Row) -> dict[str, ServiceOption]:
    """The options that every service has, with this one's defaults."""
    mine = {"body-mb": row.body_mb, "timeout-s": row.timeout_s}
    return {word: option._replace(default=mine[word]) for word, option in COMMON.items()}


def add_start(app: typer.Typer, row: Row) -> None:
    """Add the command that runs a service to its app."""

    def start(bootstrap: Bootstrap = None, properties: Properties = None, **options: Any) -> int:
        return run_service(row, bootstrap, properties, options)

    start.__doc__ = (
        f"{row.about} Runs until SIGTERM or Ctrl-C; one line that begins with `ready` says that it answers."
    )
    listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="The address to serve.")]
    parameters: Parameters = {
        "listen": (listen, row.listen),
        **parameters_of(row.options),
        **parameters_of(limits_of(row)),
        **access_parameters(),
    }
    app.command(name=row.command, epilog=example(*row.examples))(with_parameters(start, parameters))


def run_service(
    row: Row, bootstrap: str | None, properties: list[str] | None, options: Mapping[str, Any]
) -> int:
    """Serve until a signal; the exit code. given: the options by field. Raises CliError."""
    from barnabas.observe.logs import set_up

    require_positive({**row.options, **COMMON}, options)
    access = access_in(options)
    values = {field_of(word): options[field_of(word)] for word in row.options}
    row.check(values, "--")
    absent = row.missing()
    if absent is not None:
        raise CliError(absent)
    with services_extra(row):
        set_up()
        where, client = target(bootstrap, properties)
        http = http_options(
            options["listen"],
            options["body_mb"],
            options["timeout_s"],
            access,
            requests=row.requests,
            has_own_login=row.has_login(values),
            secret_files=row.secret_files(values),
        )
        whole = ServiceContext(values, {**client, "bootstrap.servers": where}, http, access)
        server = row.make(whole)
    return serve(server, lambda: f"ready on {server.url} ({row.ready(whole, server.health())})")


@contextmanager
def services_extra(row: Row) -> Iterator[None]:
    """To be put around the imports of a service. Raises CliError when one of them is not installed."""
    try:
        yield
    except ImportError as error:
        raise CliError(needs_extra(row.who, error.name, row.extra)) from None


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
    requests: int,
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
        Limits(body_mb * MEGABYTE, timeout_s, requests),
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
