"""One request to an HTTP service, and everybody stops: no request to any route holds up the loop of the services.

The routes are those of the services' own tables, so that a route that is added later is tested without a change here. The
services run together on one loop, as with `barnabas start --with registry,rest,reporting`; its turns are measured in
processor time.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from barnabas.client.options import ClientOptions
from barnabas.client.urls import Address
from barnabas.http.server import HttpOptions, HttpServer, ServerThread
from barnabas.proxy import main as rest
from barnabas.proxy.reporting import api as reporting_api
from barnabas.proxy.reporting import main as reporting
from barnabas.registry import main as registry
from barnabas.registry.api.routes import OUTSIDE
from barnabas.registry.api.routes import ROUTES as REGISTRY_ROUTES
from barnabas.registry.service import RegistryOptions
from barnabas.testing import Broker
from tests.support.admin import create_topic
from tests.support.heavy_http import HeavyRequest, heavy_requests
from tests.support.turns import Turns

TURN_CPU_MS_MAX: Final = 200
"""As in test_one_victim.py: ten times the goal."""
TABLES: Final[dict[str, Sequence[Any]]] = {
    "registry": (*REGISTRY_ROUTES, *OUTSIDE),
    "rest": rest.TABLE,
    "reporting": reporting_api.TABLE,
}
ROUTES: Final = [(service, row[0], row[1]) for service, table in TABLES.items() for row in table]


class AllServices:
    """The three services in one thread, beside a broker."""

    def __init__(self, bootstrap: str) -> None:
        client = {"bootstrap.servers": bootstrap}
        listen = HttpOptions("127.0.0.1:0")
        options = ClientOptions.from_kafka({"client.id": "registry", **client})
        self.servers: dict[str, HttpServer] = {
            "registry": registry.make_server(RegistryOptions(options), listen)
        }
        self.servers["rest"] = rest.make_server(
            rest.RestOptions(client, lambda: Address(self.servers["registry"].url)), listen
        )
        self.servers["reporting"] = reporting.make_server(reporting.ReportingOptions(client), listen)
        self.thread = ServerThread(list(self.servers.values()))
        self.thread.start()

    def send(self, service: str, method: str, request: HeavyRequest) -> int:
        """The status of the answer; 0 if the connection was closed instead."""
        address = urlsplit(self.servers[service].url).netloc
        connection = http.client.HTTPConnection(address, timeout=120)
        try:
            connection.request(method, request.target, request.body, request.headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        except (ConnectionError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    @contextlib.contextmanager
    def measured(self) -> Iterator[Turns]:
        loop = self.thread._loop
        assert loop is not None
        turns = Turns(loop)
        loop.call_soon_threadsafe(turns.start)
        try:
            yield turns
        finally:
            loop.call_soon_threadsafe(turns.stop)


@pytest.fixture(scope="module")
def services() -> Iterator[AllServices]:
    gc.collect()
    gc.freeze()  # the objects of the tests are not looked through in the turns of the services
    with Broker() as broker:
        create_topic(broker.bootstrap, "heavy", 3)
        made = AllServices(broker.bootstrap)
        yield made
        made.thread.stop()
    gc.unfreeze()


@pytest.mark.parametrize(("service", "method", "path"), ROUTES, ids=[" ".join(route) for route in ROUTES])
def test_no_heavy_request_holds_up_the_services(
    services: AllServices, service: str, method: str, path: str
) -> None:
    good = HeavyRequest("good", "/health", {}, None)
    too_long = {}
    for request in heavy_requests(method, path):
        for last in (False, True):  # the first time, modules are imported and code is compiled
            with services.measured() as turns:
                status = services.send(service, method, request)
                assert services.send(service, "GET", good) == 200
            assert status != 500, f"{request.shape}: an error of the service's own"
            if turns.longest_cpu_ms <= TURN_CPU_MS_MAX:
                break
            if last:
                too_long[request.shape] = (status, round(turns.longest_cpu_ms))
    assert too_long == {}, "turns of so many ms of CPU, by what was sent"
