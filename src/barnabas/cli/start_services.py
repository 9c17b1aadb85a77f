"""`barnabas start --with registry`: services in the process of a broker."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.broker.main import Companion

SERVICES: Final = ("registry",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that name services and their addresses."""
    parser.add_argument(
        "--with",
        dest="services",
        metavar="NAMES",
        default="",
        help="services to run in the same process: registry",
    )
    parser.add_argument(
        "--registry-listen",
        metavar="HOST:PORT",
        default="127.0.0.1:8081",
        help="where the registry answers; default 127.0.0.1:8081",
    )


def check_services(options: argparse.Namespace) -> None:
    """Raises ValueError for a service of --with that is not known or not installed."""
    names = [name.strip() for name in options.services.split(",") if name.strip()]
    for name in names:
        if name not in SERVICES:
            raise ValueError(f"--with {name!r} is not one of {', '.join(SERVICES)}")
    if names and (find_spec("starlette") is None or find_spec("uvicorn") is None):
        from barnabas.extras import how_to_install

        raise ValueError(
            f"--with needs an extra that is not installed; install it with {how_to_install('services')}"
        )


def companion_of(options: argparse.Namespace) -> Callable[[str], Companion] | None:
    """What makes the services of --with, from the address at which the broker answers; None without any."""
    if not options.services.strip() or options.worker:
        return None

    def make(bootstrap: str) -> Companion:
        from barnabas.client.options import ClientOptions, parse_bootstrap
        from barnabas.http.server import HttpOptions, ServerThread
        from barnabas.registry.main import make_server
        from barnabas.registry.service import RegistryOptions

        client = ClientOptions(parse_bootstrap(bootstrap), client_id="registry", deadline_s=20.0)
        return ServerThread([make_server(RegistryOptions(client), HttpOptions(options.registry_listen))])

    return make
