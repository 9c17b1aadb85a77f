"""Reporting over HTTP as a service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.services.option import ServiceOption
from barnabas.services.row import Row, ServiceContext
from barnabas.terminal.errors import CliError
from barnabas.terminal.files import read_text

if TYPE_CHECKING:
    from barnabas.http.server import HttpServer

OPTIONS: Final = {
    "topic": ServiceOption(
        "TOPIC", "Where the access points are kept.", str, "_access_points", names=("-t", "--topic")
    ),
    "secrets": ServiceOption("FILE", "Lines ID=KEY: actions have to be signed with one of them."),
    "hooks": ServiceOption(
        "FILE", "Lines TOPIC KIND SECRET: web hooks of github or stripe, signed with the secret."
    ),
}


def read_secrets(file: Path | None) -> dict[str, str]:
    """Keys by secret id: lines ID=KEY. Raises CliError."""
    secrets = {}
    for number, line in _lines(file):
        secret_id, equals, key = line.partition("=")
        if not equals or not secret_id.strip() or not key.strip():
            raise CliError(f"{file} line {number} is not ID=KEY")
        secrets[secret_id.strip()] = key.strip()
    return secrets


def read_hooks(file: Path | None) -> dict[str, tuple[str, str]]:
    """Kind and secret by topic: lines TOPIC KIND SECRET. Raises CliError."""
    from barnabas.proxy.reporting.signatures import HOOKS

    hooks = {}
    for number, line in _lines(file):
        parts = line.split()
        if len(parts) != 3 or parts[1] not in HOOKS:
            raise CliError(f"{file} line {number} is not TOPIC KIND SECRET, KIND one of {', '.join(HOOKS)}")
        hooks[parts[0]] = (parts[1], parts[2])
    return hooks


def _lines(file: Path | None) -> list[tuple[int, str]]:
    if file is None:
        return []
    rows = [(number, line.strip()) for number, line in enumerate(read_text(file).splitlines(), 1)]
    return [(number, line) for number, line in rows if line and not line.startswith("#")]


def make(context: ServiceContext) -> HttpServer:
    """A server that is not started yet. Raises CliError."""
    from barnabas.proxy.reporting.main import ReportingOptions, make_server

    values = context.values
    options = ReportingOptions(
        context.client, values["topic"], read_secrets(values["secrets"]), read_hooks(values["hooks"])
    )
    return make_server(options, context.http)


def secret_files(values: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """See Row."""
    for field in ("secrets", "hooks"):
        if values[field] is not None:
            yield values[field], "keys of signatures"


REPORTING: Final = Row(
    name="reporting",
    port=8086,
    who="reporting",
    about="Take messages over HTTP: access points, web hooks, CloudEvents.",
    examples=(
        "barnabas reporting start",
        "barnabas reporting start -b kafka1:9092 --secrets keys --hooks hooks",
    ),
    make=make,
    ready=lambda context, health: (
        f"cluster {context.client['bootstrap.servers']}, topic {context.values['topic']}"
    ),
    options=OPTIONS,
    secret_files=secret_files,
    has_login=lambda values: values["secrets"] is not None or values["hooks"] is not None,
)
