"""`barnabas rest start`: the REST proxy beside any Kafka-compatible cluster."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from barnabas.cli.connection import target
from barnabas.cli.errors import CliError, UsageError
from barnabas.cli.options import Bootstrap, Properties
from barnabas.cli.runner import example, new_app
from barnabas.extras import how_to_install

app = new_app("Serve topics over HTTP, as Confluent's REST Proxy does.")

DEFAULT_LISTEN: Final = "127.0.0.1:8082"
MEGABYTE: Final = 1 << 20


@app.callback()
def rest() -> None:
    """Serve topics over HTTP, as Confluent's REST Proxy does."""


@app.command(
    epilog=example(
        "barnabas rest start",
        "barnabas rest start -b kafka1:9092 --schema-registry http://schemas1:8081 --listen 0.0.0.0:8082",
    )
)
def start(
    bootstrap: Bootstrap = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="The address to serve.")] = DEFAULT_LISTEN,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where clients reach this instance and no other one; default: the address that they call.",
            show_default=False,
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "-r",
            "--schema-registry",
            envvar="BARNABAS_REGISTRY",
            metavar="URL",
            help="The registry for avro, jsonschema and protobuf.",
            show_default=False,
        ),
    ] = None,
    consumers_max: Annotated[
        int, typer.Option(metavar="N", help="So many consumer instances at a time.")
    ] = 100,
    consumer_idle_s: Annotated[
        float, typer.Option(metavar="S", help="A consumer instance that nobody uses so long is closed.")
    ] = 300.0,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Web pages that may call it, * for all; may be repeated.",
            show_default=False,
        ),
    ] = None,
    body_mb: Annotated[int, typer.Option(metavar="MB", help="The largest request body.")] = 16,
    timeout_s: Annotated[float, typer.Option(metavar="S", help="How long a request may take.")] = 60.0,
    properties: Properties = None,
) -> int:
    """Serve the proxy until SIGTERM or Ctrl-C; one line that begins with `ready` says that it answers."""
    try:
        from barnabas.http.guard import Limits
        from barnabas.http.server import HttpOptions, ServiceError, run, say
        from barnabas.proxy.main import RestOptions, make_server
    except ImportError as error:
        raise CliError(
            f"the REST proxy needs an extra that is not installed ({error.name}); install it with "
            f"{how_to_install('services')}"
        ) from None
    from barnabas.observe.logs import set_up

    if body_mb < 1 or timeout_s <= 0 or consumers_max < 1 or consumer_idle_s <= 0:
        raise UsageError("--body-mb, --timeout-s, --consumers-max and --consumer-idle-s are positive numbers")
    if registry is not None and not registry.startswith(("http://", "https://")):
        raise UsageError(f"--schema-registry {registry!r} is not a URL, for example http://localhost:8081")
    set_up()
    where, found = target(bootstrap, properties)
    server = make_server(
        RestOptions(
            {**found, "bootstrap.servers": where}, lambda: registry, advertise, consumers_max, consumer_idle_s
        ),
        HttpOptions(listen, Limits(body_mb * MEGABYTE, timeout_s), tuple(cors or ())),
    )
    try:
        return run([server], lambda: say(f"ready on {server.url} (cluster {where})"))
    except ServiceError as error:
        raise CliError(str(error)) from None
