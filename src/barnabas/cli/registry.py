"""`barnabas registry start`: a schema registry beside any Kafka-compatible cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import typer

from barnabas.cli.connection import target
from barnabas.cli.errors import CliError, UsageError
from barnabas.cli.options import Bootstrap, Properties
from barnabas.cli.runner import example, new_app
from barnabas.extras import how_to_install

app = new_app("Serve schemas over HTTP, as Confluent's Schema Registry does.")

DEFAULT_LISTEN: Final = "127.0.0.1:8081"
MEGABYTE: Final = 1 << 20


@app.callback()
def registry() -> None:
    """Serve schemas over HTTP, as Confluent's Schema Registry does."""


@app.command(
    epilog=example(
        "barnabas registry start",
        "barnabas registry start -b kafka1:9092,kafka2:9092 --listen 0.0.0.0:8081 --advertise schemas1:8081",
    )
)
def start(
    bootstrap: Bootstrap = None,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="The address to serve.")] = DEFAULT_LISTEN,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where other instances reach this one; default --listen.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        str, typer.Option(metavar="NAME", help="The instances that work together: one of them writes.")
    ] = "schema-registry",
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="Where the schemas are kept.")] = "_schemas",
    replication: Annotated[
        int, typer.Option(metavar="N", help="Replicas of the topic when it is made; -1: as the brokers say.")
    ] = -1,
    session_timeout_ms: Annotated[
        int, typer.Option(metavar="MS", help="After how long without a sign of life another instance writes.")
    ] = 10_000,
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
    """Serve the registry until SIGTERM or Ctrl-C; one line that begins with `ready` says that it answers."""
    try:
        from barnabas.http.guard import Limits
        from barnabas.http.server import HttpOptions, ServiceError, run, say
        from barnabas.registry.main import make_server
        from barnabas.registry.service import RegistryOptions
        from barnabas.registry.store import StoreOptions
    except ImportError as error:
        raise CliError(
            f"the registry needs an extra that is not installed ({error.name}); install it with "
            f"{how_to_install('services')}"
        ) from None
    from barnabas.client.errors import ClientError
    from barnabas.client.options import ClientOptions
    from barnabas.observe.logs import set_up

    if body_mb < 1 or timeout_s <= 0:
        raise UsageError("--body-mb and --timeout-s are positive numbers")
    set_up()
    where, options = target(bootstrap, properties)
    options["bootstrap.servers"] = where
    try:
        client = replace(ClientOptions.from_kafka(options), deadline_s=20.0)
    except ClientError as error:
        raise UsageError(str(error)) from None
    server = make_server(
        RegistryOptions(
            client, StoreOptions(topic, replication), group, advertise, session_timeout_ms=session_timeout_ms
        ),
        HttpOptions(listen, Limits(body_mb * MEGABYTE, timeout_s), tuple(cors or ())),
    )
    try:
        return run(
            [server], lambda: say(f"ready on {server.url} (cluster {where}, topic {topic}, group {group})")
        )
    except ServiceError as error:
        raise CliError(str(error)) from None
