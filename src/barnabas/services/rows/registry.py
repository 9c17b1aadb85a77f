"""The schema registry as a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.services.option import ServiceOption
from barnabas.services.row import Row, ServiceContext
from barnabas.terminal.errors import UsageError

if TYPE_CHECKING:
    from barnabas.http.server import HttpServer

DEADLINE_S: Final = 20.0
OPTIONS: Final = {
    "advertise": ServiceOption("HOST:PORT", "Where other instances reach this one. Default: --listen.", str),
    "group": ServiceOption(
        "GROUP",
        "The instances that work together: one of them writes.",
        str,
        "schema-registry",
        names=("-g", "--group"),
    ),
    "topic": ServiceOption("TOPIC", "Where the schemas are kept.", str, "_schemas", names=("-t", "--topic")),
    "replication": ServiceOption(
        "N",
        "How many replicas of the topic when it is created; -1: the brokers' default.",
        int,
        -1,
        names=("-r", "--replication-factor", "--replication"),
        any_number=True,
    ),
    "session-timeout-ms": ServiceOption(
        "MS", "Time without a heartbeat after which another instance becomes the writer.", int, 10_000
    ),
}


def make(context: ServiceContext) -> HttpServer:
    """A server that is not started yet. Raises UsageError."""
    from barnabas.client.errors import ClientError
    from barnabas.client.options import ClientOptions
    from barnabas.registry.main import make_server
    from barnabas.registry.service import RegistryOptions
    from barnabas.registry.store import StoreOptions

    try:
        client = ClientOptions.from_kafka({"client.id": "registry", **context.client})
    except ClientError as error:
        raise UsageError(str(error)) from None
    values = context.values
    options = RegistryOptions(
        replace(client, deadline_s=DEADLINE_S),
        StoreOptions(values["topic"], values["replication"]),
        values["group"],
        values["advertise"],
        session_timeout_ms=values["session_timeout_ms"],
        peers=context.access.peers(),
    )
    return make_server(options, context.http)


def ready(context: ServiceContext, health: Mapping[str, Any]) -> str:
    """See Row."""
    values = context.values
    return f"cluster {context.client['bootstrap.servers']}, topic {values['topic']}, group {values['group']}"


REGISTRY: Final = Row(
    name="registry",
    port=8081,
    who="the registry",
    about="Serve schemas over HTTP, as Confluent's Schema Registry does.",
    examples=(
        "barnabas registry start",
        "barnabas registry start -b kafka1:9092,kafka2:9092 --listen 0.0.0.0:8081 --advertise schemas1:8081 --secure DIR",
    ),
    make=make,
    ready=ready,
    options=OPTIONS,
)
