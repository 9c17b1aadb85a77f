"""`barnabas rest start`: the REST proxy beside any Kafka-compatible cluster."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from barnabas.client.urls import Address
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

app = new_app("Serve topics over HTTP, as Confluent's REST Proxy does.")

DEFAULT_LISTEN: Final = "127.0.0.1:8082"


@app.callback()
def rest() -> None:
    """Serve topics over HTTP, as Confluent's REST Proxy does."""


@app.command(
    epilog=example(
        "barnabas rest start",
        "barnabas rest start -b kafka1:9092 --registry http://schemas1:8081 --listen 0.0.0.0:8082 --secure DIR",
    )
)
def start(
    bootstrap: Bootstrap = None,
    listen: Listen = DEFAULT_LISTEN,
    advertise: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where clients reach this instance and no other one. Default: the address that they call.",
            show_default=False,
        ),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "-r",
            "--registry",
            "--schema-registry",
            envvar="BARNABAS_REGISTRY",
            metavar="URL",
            help="The registry for avro, jsonschema and protobuf.",
            show_default=False,
        ),
    ] = None,
    consumers_max: Annotated[
        int,
        typer.Option(
            "--max-consumers",
            "--consumers-max",
            metavar="N",
            help="How many consumer instances may exist at a time.",
        ),
    ] = 100,
    consumer_idle_s: Annotated[
        float, typer.Option(metavar="SECONDS", help="Close a consumer instance that is not used for so long.")
    ] = 300.0,
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
    """Serve the proxy until SIGTERM or Ctrl-C; one line that begins with `ready` says that it answers."""
    with services_extra("the REST proxy"):
        from barnabas.proxy.main import RestOptions, make_server
    from barnabas.observe.logs import set_up

    if body_mb < 1 or timeout_s <= 0 or consumers_max < 1 or consumer_idle_s <= 0:
        raise UsageError("--body-mb, --timeout-s, --max-consumers and --consumer-idle-s are positive numbers")
    if registry is not None and not registry.startswith(("http://", "https://")):
        raise UsageError(f"--registry {registry!r} is not a URL, for example http://localhost:8081")
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
    where, found = target(bootstrap, properties)
    server = make_server(
        RestOptions(
            {**found, "bootstrap.servers": where},
            lambda: None if registry is None else Address(registry),
            advertise,
            consumers_max,
            consumer_idle_s,
        ),
        http_options(listen, body_mb, timeout_s, access),
    )
    return serve(server, lambda: f"ready on {server.url} (cluster {where})")
