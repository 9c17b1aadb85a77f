"""A Kafka Connect worker as a service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.services.access import Access
from barnabas.services.option import ServiceOption
from barnabas.services.row import Row, ServiceContext
from barnabas.terminal.errors import CliError, UsageError
from barnabas.terminal.files import read_text

if TYPE_CHECKING:
    from barnabas.http.server import HttpOptions, HttpServer

OPTIONS: Final = {
    "data": ServiceOption(
        "DIR", "Folder for files of connectors. Default: connectors keep none.", str, in_start=True
    ),
    "config": ServiceOption(
        "FILE.properties", "The worker's options, as connect-distributed reads them.", Path, in_start=True
    ),
    "group": ServiceOption(
        "GROUP", "The workers that share the work. Default: connect-cluster.", str, names=("-g", "--group")
    ),
    "advertise": ServiceOption("HOST:PORT", "Where other workers reach this one. Default: --listen.", str),
}
SERVERS: Final = "bootstrap.servers"


def make(context: ServiceContext) -> HttpServer:
    """A server that is not started yet. Raises UsageError, CliError."""
    from barnabas.config.option import ConfigError
    from barnabas.config.properties import parse_properties
    from barnabas.connect.errors import OptionError
    from barnabas.connect.worker.main import make_server
    from barnabas.connect.worker.settings import WorkerOptions

    values = context.values
    texts: dict[str, str] = {}
    if values["config"] is not None:
        try:
            texts = {row.name: row.value for row in parse_properties(read_text(values["config"]))}
        except ConfigError as error:
            raise CliError(f"{values['config']}: {error}") from None
    if values["group"]:
        texts["group.id"] = values["group"]
    registry = context.registry()
    folder = values["data"]
    try:
        options = WorkerOptions.of(
            context.client,
            texts,
            None if folder is None else str(Path(folder).expanduser()),
            advertise=values["advertise"],
            registry=None if registry is None else registry.url,
        )
    except OptionError as error:
        raise UsageError(str(error)) from None
    return make_server(options, context.http)


def ready(context: ServiceContext, health: Mapping[str, Any]) -> str:
    """See Row."""
    return f"cluster {context.client[SERVERS]}, {health['connectors']} connectors"


CONNECT: Final = Row(
    name="connect",
    port=8083,
    who="the Connect worker",
    about="Run connectors, and serve Kafka Connect's REST API.",
    examples=(
        "barnabas connect start -b localhost:9092",
        "barnabas connect start -b kafka1:9092 --listen 0.0.0.0:8083 --config worker.properties --secure DIR",
    ),
    make=make,
    ready=ready,
    options=OPTIONS,
    timeout_s=120.0,
)


def http_of(worker: Mapping[str, str]) -> HttpOptions:
    """Where a worker that Kafka's tools start serves, by its file of properties. Raises CliError, UsageError."""
    from barnabas.services.command import http_options

    return http_options(
        listener_of(worker, CONNECT.port, "barnabas connect start --config FILE --tls-cert FILE"),
        CONNECT.body_mb,
        CONNECT.timeout_s,
        Access(is_open=True),
        requests=CONNECT.requests,
    )


def listener_of(properties: Mapping[str, str], port: int, with_tls: str) -> str:
    """HOST:PORT of `listeners`, or of the options of Kafka before 3.0. with_tls: the command that serves HTTPS.

    Raises CliError.
    """
    listeners = properties.get("listeners", "").split(",")[0].strip()
    if not listeners:
        return f"{properties.get('rest.host.name') or '127.0.0.1'}:{properties.get('rest.port') or port}"
    scheme, _, place = listeners.partition("://")
    if scheme.lower() != "http":
        raise CliError(f"listeners={listeners}: for HTTPS, use `{with_tls}`")
    host, _, number = place.rpartition(":")
    return f"{host or '0.0.0.0'}:{number}"
