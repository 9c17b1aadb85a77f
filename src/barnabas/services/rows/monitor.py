"""The monitor as a service."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.services.option import ServiceOption
from barnabas.services.row import Row, ServiceContext
from barnabas.services.where import properties_of
from barnabas.terminal.errors import UsageError

if TYPE_CHECKING:
    from barnabas.client.options import ClientOptions
    from barnabas.http.server import HttpServer
    from barnabas.monitor.alerts.rules import AlertFile

MEGABYTE: Final = 1 << 20
SIZE_MB_MAX: Final = 1 << 20
OPTIONS: Final = {
    "name": ServiceOption("NAME", "What the cluster is called in answers.", str, "local"),
    "also": ServiceOption(
        "NAME=WHERE",
        "A further cluster: its brokers (HOST:PORT,...), or a file with a client's properties; may be repeated.",
        str,
        repeats=True,
    ),
    "data": ServiceOption(
        "DIR", "Where the history is kept. Default: ~/.local/share/barnabas/monitor.", in_start=True
    ),
    "size-mb": ServiceOption(
        "MB",
        "The largest size of the history; the oldest goes first. 0: keep none.",
        int,
        100,
        any_number=True,
    ),
    "rules": ServiceOption(
        "FILE", "Rules of alerts; `barnabas alerts check FILE` explains mistakes.", in_start=True
    ),
    "interval-s": ServiceOption("SECONDS", "Time between looks at a cluster.", float, 10.0, in_start=True),
}


def _clusters(context: ServiceContext) -> Iterator[tuple[str, ClientOptions]]:
    from barnabas.client.errors import ClientError
    from barnabas.client.options import ClientOptions

    where = {context.values["name"]: dict(context.client)}
    for text in context.values["also"] or ():
        name, equals, place = text.partition("=")
        if not equals or not name or not place:
            raise UsageError(f"--also {text!r} is not NAME=WHERE")
        if name in where:
            raise UsageError(f"--also {name}: there is a cluster of this name already")
        where[name] = properties_of(place, "--also")
    for name, properties in where.items():
        try:
            yield name, ClientOptions.from_kafka({"client.id": "barnabas-monitor", **properties})
        except ClientError as error:
            raise UsageError(f"cluster {name}: {error}") from None


def make(context: ServiceContext) -> HttpServer:
    """A server that is not started yet. Raises UsageError."""
    from barnabas.monitor.service import MonitorOptions, make_server

    values = context.values
    if not 0 <= values["size_mb"] <= SIZE_MB_MAX:
        raise UsageError(f"--size-mb {values['size_mb']} is not between 0 and {SIZE_MB_MAX}")
    options = MonitorOptions(
        dict(_clusters(context)),
        values["interval_s"],
        _folder(values["data"]),
        values["size_mb"] * MEGABYTE,
        None if values["rules"] is None else read_rules(values["rules"]),
    )
    return make_server(options, context.http)


def read_rules(file: Path) -> AlertFile:
    """The rules of a file. Raises UsageError that names each mistake with its line."""
    try:
        from barnabas.monitor.alerts.rules import RulesError, parse_rules
    except ImportError as error:
        from barnabas.extras import how_to_install

        raise UsageError(
            f"rules of alerts need {error.name}, which is not installed; install it with {how_to_install('services')}"
        ) from None
    try:
        return parse_rules(file.expanduser().read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
    except RulesError as error:
        raise UsageError(f"{file}: {error}") from None


def _folder(folder: Path | None) -> Path:
    """The folder of the history."""
    if folder is not None:
        return folder.expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "barnabas" / "monitor"


def ready(context: ServiceContext, health: Mapping[str, Any]) -> str:
    """See Row."""
    names = [context.values["name"], *(text.partition("=")[0] for text in context.values["also"] or ())]
    return f"clusters {', '.join(names)}"


def secret_files(values: Mapping[str, Any]) -> Iterable[tuple[Path, str]]:
    """See Row."""
    for text in values["also"] or ():
        path = Path(text.partition("=")[2]).expanduser()
        if path.is_file():
            yield path, "passwords"
    if values["rules"] is not None:
        yield values["rules"].expanduser(), "passwords of receivers"


MONITOR: Final = Row(
    name="monitor",
    port=8087,
    who="the monitor",
    about="Show how clusters and groups do, over HTTP, as Burrow does.",
    examples=(
        "barnabas monitor",
        "barnabas monitor -b kafka1:9092 --name blue --also green=kafka2:9092 --listen 0.0.0.0:8087 --secure DIR",
    ),
    make=make,
    ready=ready,
    options=OPTIONS,
    secret_files=secret_files,
)
