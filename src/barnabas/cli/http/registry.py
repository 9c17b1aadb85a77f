"""`barnabas registry start`: a schema registry beside any Kafka-compatible cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import typer

from barnabas.services.access import Access
from barnabas.services.command import (
    AllowHost,
    Audience,
    BodyMb,
    Cors,
    Issuer,
    Jwks,
    Listen,
    MaxConnections,
    MaxConnectionsPerIp,
    Open,
    Secure,
    TimeoutS,
    TlsCert,
    TlsClientCa,
    TlsKey,
    UsersFile,
    http_options,
    serve,
    services_extra,
)
from barnabas.terminal.connection import target
from barnabas.terminal.errors import UsageError
from barnabas.terminal.options import Bootstrap, Properties
from barnabas.terminal.runner import example, new_app

app = new_app("Serve schemas over HTTP, as Confluent's Schema Registry does.")

DEFAULT_LISTEN: Final = "127.0.0.1:8081"


@app.callback()
def registry() -> None:
    """Serve schemas over HTTP, as Confluent's Schema Registry does."""


@app.command(
    epilog=example(
        "barnabas registry start",
        "barnabas registry start -b kafka1:9092,kafka2:9092 --listen 0.0.0.0:8081 --advertise schemas1:8081 --secure DIR",
    )
)
def start(
    bootstrap: Bootstrap = None,
    listen: Listen = DEFAULT_LISTEN,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where other instances reach this one. Default: --listen.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        str,
        typer.Option(
            "-g", "--group", metavar="GROUP", help="The instances that work together: one of them writes."
        ),
    ] = "schema-registry",
    topic: Annotated[
        str, typer.Option("-t", "--topic", metavar="TOPIC", help="Where the schemas are kept.")
    ] = "_schemas",
    replication: Annotated[
        int,
        typer.Option(
            "-r",
            "--replication-factor",
            "--replication",
            metavar="N",
            help="How many replicas of the topic when it is created; -1: the brokers' default.",
        ),
    ] = -1,
    session_timeout_ms: Annotated[
        int,
        typer.Option(
            metavar="MS", help="Time without a heartbeat after which another instance becomes the writer."
        ),
    ] = 10_000,
    body_mb: BodyMb = 16,
    timeout_s: TimeoutS = 60.0,
    secure: Secure = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    users: UsersFile = None,
    jwks: Jwks = None,
    issuer: Issuer = None,
    audience: Audience = None,
    is_open: Open = False,
    max_connections: MaxConnections = None,
    max_connections_per_ip: MaxConnectionsPerIp = None,
    cors: Cors = None,
    allow_host: AllowHost = None,
    properties: Properties = None,
) -> int:
    """Serve the registry until SIGTERM or Ctrl-C; one line that begins with `ready` says that it answers."""
    with services_extra("the registry"):
        from barnabas.registry.main import make_server
        from barnabas.registry.service import RegistryOptions
        from barnabas.registry.store import StoreOptions
    from barnabas.client.errors import ClientError
    from barnabas.client.options import ClientOptions
    from barnabas.observe.logs import set_up

    if body_mb < 1 or timeout_s <= 0:
        raise UsageError("--body-mb and --timeout-s are positive numbers")
    access = Access(
        secure,
        tls_cert,
        tls_key,
        tls_client_ca,
        users,
        jwks,
        issuer,
        audience,
        is_open,
        max_connections,
        max_connections_per_ip,
        cors,
        allow_host,
    )
    set_up()
    where, options = target(bootstrap, properties)
    options["bootstrap.servers"] = where
    try:
        client = replace(ClientOptions.from_kafka(options), deadline_s=20.0)
    except ClientError as error:
        raise UsageError(str(error)) from None
    server = make_server(
        RegistryOptions(
            client,
            StoreOptions(topic, replication),
            group,
            advertise,
            session_timeout_ms=session_timeout_ms,
            peers=access.peers(),
        ),
        http_options(listen, body_mb, timeout_s, access),
    )
    return serve(server, lambda: f"ready on {server.url} (cluster {where}, topic {topic}, group {group})")
