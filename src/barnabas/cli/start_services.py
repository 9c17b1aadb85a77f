"""`barnabas start --with registry`: services in the process of a broker."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.broker.main import Companion
    from barnabas.http.server import HttpServer

SERVICES: Final = ("registry", "rest", "reporting")
PORTS: Final = {"registry": 8081, "rest": 8082, "reporting": 8086}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that name services and their addresses."""
    parser.add_argument(
        "--with",
        dest="services",
        metavar="NAMES",
        default="",
        help=f"services to run in the same process, with commas between them: {', '.join(SERVICES)}",
    )
    for name, port in PORTS.items():
        parser.add_argument(
            f"--{name}-listen",
            metavar="HOST:PORT",
            default=f"127.0.0.1:{port}",
            help=f"where {name} answers; default 127.0.0.1:{port}",
        )
    parser.add_argument(
        "--services-open",
        action="store_true",
        help="serve other machines, without TLS and a login",
    )
    parser.add_argument(
        "--schema-registry",
        metavar="URL",
        default=os.environ.get("BARNABAS_REGISTRY"),
        help="the registry that rest uses; default: the one of --with",
    )


def service_names(options: argparse.Namespace) -> list[str]:
    """The services of --with, each once, in the order in which they start."""
    given = {name.strip() for name in options.services.split(",")}
    return [name for name in SERVICES if name in given]


def check_services(options: argparse.Namespace) -> None:
    """Raises ValueError for a service of --with that is not known or not installed."""
    names = [name.strip() for name in options.services.split(",") if name.strip()]
    for name in names:
        if name not in SERVICES:
            raise ValueError(f"--with {name!r} is not one of {', '.join(SERVICES)}")
    if not names:
        return
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        from barnabas.extras import how_to_install

        raise ValueError(
            f"--with needs an extra that is not installed; install it with {how_to_install('services')}"
        )
    from barnabas.http.listening import ServiceError, parse_listen
    from barnabas.security.openness import is_loopback

    for name in names:
        listen: str = getattr(options, f"{name}_listen")
        try:
            host, _ = parse_listen(listen)
        except ServiceError as error:
            raise ValueError(str(error).replace("--listen", f"--{name}-listen")) from None
        if not is_loopback(host) and not options.services_open:
            raise ValueError(
                f"--{name}-listen {listen} is reached from other machines, without TLS and a login; run "
                f"`barnabas {name} start --secure DIR` beside the broker, or say --services-open if that is meant"
            )


def companion_of(options: argparse.Namespace) -> Callable[[str], Companion] | None:
    """What makes the services of --with, from the address at which the broker answers; None without any."""
    if not options.services.strip() or options.worker:
        return None

    def make(bootstrap: str) -> Companion:
        from barnabas.http.server import ServerThread

        names = service_names(options)
        servers: dict[str, HttpServer] = {}
        if "registry" in names:
            servers["registry"] = _registry(options, bootstrap)
        if "rest" in names:
            servers["rest"] = _rest(options, bootstrap, servers.get("registry"))
        if "reporting" in names:
            servers["reporting"] = _reporting(options, bootstrap)
        return ServerThread(list(servers.values()), servers.get("registry"))

    return make


def registry_option(options: argparse.Namespace) -> dict[str, str]:
    """Where the broker's other workers find the registry of --with; nothing where its port is chosen at the start."""
    address: str = options.registry_listen
    if "registry" not in service_names(options) or address.endswith(":0"):
        return {}
    host, _, port = address.rpartition(":")
    host = "127.0.0.1" if host in ("", "0.0.0.0", "[::]") else host
    return {"confluent.schema.registry.url": f"http://{host}:{port}"}


def _registry(options: argparse.Namespace, bootstrap: str) -> HttpServer:
    from barnabas.client.options import ClientOptions, parse_bootstrap
    from barnabas.http.server import HttpOptions
    from barnabas.registry.main import make_server
    from barnabas.registry.service import RegistryOptions

    client = ClientOptions(parse_bootstrap(bootstrap), client_id="registry", deadline_s=20.0)
    return make_server(RegistryOptions(client), HttpOptions(options.registry_listen))


def _rest(options: argparse.Namespace, bootstrap: str, beside: HttpServer | None) -> HttpServer:
    """beside: the registry in the same process, which starts first."""
    from barnabas.http.server import HttpOptions
    from barnabas.proxy.main import RestOptions, make_server

    def registry() -> str | None:
        given: str | None = options.schema_registry
        return given or (beside.url if beside is not None else None)

    return make_server(
        RestOptions({"bootstrap.servers": bootstrap}, registry), HttpOptions(options.rest_listen)
    )


def _reporting(options: argparse.Namespace, bootstrap: str) -> HttpServer:
    from barnabas.http.server import HttpOptions
    from barnabas.proxy.reporting.main import ReportingOptions, make_server

    return make_server(
        ReportingOptions({"bootstrap.servers": bootstrap}), HttpOptions(options.reporting_listen)
    )
