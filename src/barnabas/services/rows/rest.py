"""The REST proxy as a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.services.option import ServiceOption
from barnabas.services.row import Row, ServiceContext
from barnabas.terminal.errors import UsageError

if TYPE_CHECKING:
    from barnabas.http.server import HttpServer

OPTIONS: Final = {
    "advertise": ServiceOption(
        "HOST:PORT",
        "Where clients reach this instance and no other one. Default: the address that they call.",
        str,
    ),
    "registry": ServiceOption(
        "URL",
        "The registry for avro, jsonschema and protobuf.",
        str,
        names=("-r", "--registry", "--schema-registry"),
        env="BARNABAS_REGISTRY",
    ),
    "max-consumers": ServiceOption(
        "N",
        "How many consumer instances may exist at a time.",
        int,
        100,
        names=("--max-consumers", "--consumers-max"),
    ),
    "consumer-idle-s": ServiceOption(
        "SECONDS", "Close a consumer instance that is not used for so long.", float, 300.0
    ),
}


def make(context: ServiceContext) -> HttpServer:
    """A server that is not started yet. Raises UsageError."""
    from barnabas.http_client import Address
    from barnabas.proxy.main import RestOptions, make_server

    values = context.values
    registry: str | None = values["registry"]
    if registry is not None and not registry.startswith(("http://", "https://")):
        raise UsageError(f"--registry {registry!r} is not a URL, for example http://localhost:8081")
    options = RestOptions(
        context.client,
        context.registry if registry is None else lambda: Address(registry),
        values["advertise"],
        values["max_consumers"],
        values["consumer_idle_s"],
    )
    return make_server(options, context.http)


REST: Final = Row(
    name="rest",
    port=8082,
    who="the REST proxy",
    about="Serve topics over HTTP, as Confluent's REST Proxy does.",
    examples=(
        "barnabas rest start",
        "barnabas rest start -b kafka1:9092 --registry http://schemas1:8081 --listen 0.0.0.0:8082 --secure DIR",
    ),
    make=make,
    ready=lambda context, health: f"cluster {context.client['bootstrap.servers']}",
    options=OPTIONS,
)
