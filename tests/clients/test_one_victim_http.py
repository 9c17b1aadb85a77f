"""One request to an HTTP service, and everybody stops: no request to any route holds up the loop of the services.

The routes are those of the services' own tables, so that a route that is added later is tested without a change here. The
services run together on one loop, as with `barnabas start --with registry,rest,reporting`, and the server of pipelines
beside them; the loop's turns are measured in processor time.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from barnabas.client.options import ClientOptions
from barnabas.http.guard import Limits as HttpLimits
from barnabas.http.server import HttpOptions, HttpServer, ServerThread
from barnabas.http_client import Address
from barnabas.pipelines.serving.api import make_service
from barnabas.pipelines.serving.manager import Manager
from barnabas.proxy import main as rest
from barnabas.proxy.reporting import api as reporting_api
from barnabas.proxy.reporting import main as reporting
from barnabas.registry import main as registry
from barnabas.registry.api.routes import OUTSIDE
from barnabas.registry.api.routes import ROUTES as REGISTRY_ROUTES
from barnabas.registry.service import RegistryOptions
from barnabas.registry.worker import Limits
from barnabas.services.option import MEGABYTE
from barnabas.services.rows.pipelines import PIPELINES
from barnabas.testing import Broker
from tests.support.admin import create_topic
from tests.support.examples import one_in
from tests.support.heavy_http import LARGE_BYTES, HeavyRequest, heavy_requests
from tests.support.leftovers import shared
from tests.support.turns import LockHolds, Turns

TURN_CPU_MS_MAX: Final = 200
"""As in test_one_victim.py: ten times the goal."""
HELD_CPU_MS_MAX: Final = 200
"""For which a thread may hold the interpreter's lock, and with it the loop of a broker in the same process."""
SILENT: Final = 300
"""Requests of one address that announce a body and send none."""


def pipelines_table() -> list[tuple[str, str]]:
    """(method, path) of the server of pipelines."""
    no_manager: Any = None
    routes: Sequence[Any] = make_service(no_manager).routes
    return [(method, route.path) for route in routes for method in sorted(route.methods - {"HEAD"})]


TABLES: Final[dict[str, Sequence[Any]]] = {
    "registry": (*REGISTRY_ROUTES, *OUTSIDE),
    "rest": rest.TABLE,
    "reporting": reporting_api.TABLE,
    "pipelines": pipelines_table(),
}
ROUTES: Final = [(service, row[0], row[1]) for service, table in TABLES.items() for row in table]


class AllServices:
    """The services in one thread, beside a broker. Spark is not started: no pipeline runs."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        client = {"bootstrap.servers": bootstrap}
        listen = HttpOptions("127.0.0.1:0")
        options = ClientOptions.from_kafka({"client.id": "registry", **client})
        self.servers: dict[str, HttpServer] = {
            "registry": registry.make_server(RegistryOptions(options), listen)
        }
        self.servers["rest"] = rest.make_server(
            rest.RestOptions(client, lambda: Address(self.servers["registry"].url), limits=Limits(cpu_s=1.0)),
            listen,
        )
        self.servers["reporting"] = reporting.make_server(reporting.ReportingOptions(client), listen)
        manager = Manager(folder, client)
        limits = HttpLimits(PIPELINES.body_mb * MEGABYTE, PIPELINES.timeout_s, PIPELINES.requests)
        self.servers["pipelines"] = HttpServer(
            lambda: make_service(manager), HttpOptions("127.0.0.1:0", limits=limits)
        )
        self.thread = ServerThread(list(self.servers.values()))
        self.thread.start()

    def address(self, service: str) -> str:
        """HOST:PORT."""
        return urlsplit(self.servers[service].url).netloc

    def send(self, service: str, method: str, request: HeavyRequest) -> int:
        """The status of the answer; 0 if the connection was closed instead."""
        connection = http.client.HTTPConnection(self.address(service), timeout=120)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before it was read
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
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AllServices]:
    gc.collect()
    gc.freeze()  # the objects of the tests are not looked through in the turns of the services
    with Broker() as broker:
        create_topic(broker.bootstrap, "heavy", 3)
        started = AllServices(broker.bootstrap, tmp_path_factory.mktemp("pipelines"))
        yield started
        started.thread.stop()
    gc.unfreeze()


GOOD: Final = HeavyRequest("good", "/health", {}, None)


def longest_turns(
    services: AllServices, service: str, method: str, path: str, large_bytes: int = LARGE_BYTES
) -> dict[str, tuple[int, int, int]]:
    """(status, ms of CPU of the longest turn, ms for which a thread held the interpreter's lock) of each heavy request.

    One that takes more than is allowed is sent again: the first time, modules are imported and code is compiled, and on a
    busy machine a thread pays for what others have driven out of the caches.
    """
    turns_by_shape = {}
    for request in heavy_requests(service, method, path, large_bytes):
        for _ in range(3):
            with services.measured() as turns, LockHolds() as holds:
                status = services.send(service, method, request)
                assert services.send(service, "GET", GOOD) == 200
            assert status != 500, f"{request.shape}: an error of the service's own"
            assert status != 415 or request.shape == "long content-type", f"{request.shape}: nobody read it"
            turns_by_shape[request.shape] = status, round(turns.longest_cpu_ms), round(holds.longest_cpu_ms)
            if turns.longest_cpu_ms <= TURN_CPU_MS_MAX and holds.longest_cpu_ms <= HELD_CPU_MS_MAX:
                break
    return turns_by_shape


def too_long(service: str, turns: dict[str, tuple[int, int, int]]) -> dict[str, tuple[int, int, int]]:
    """What held others up. The server of pipelines never runs in a broker's process: only its own loop counts."""
    held_ms_max = float("inf") if service == "pipelines" else HELD_CPU_MS_MAX
    return {shape: row for shape, row in turns.items() if row[1] > TURN_CPU_MS_MAX or row[2] > held_ms_max}


@pytest.mark.parametrize(("service", "method", "path"), one_in(14, ROUTES))
def test_no_heavy_request_holds_up_the_services(
    services: AllServices, service: str, method: str, path: str
) -> None:
    with shared():  # the processes beside registry and proxy go on, and end with the services
        turns = longest_turns(services, service, method, path)
    assert too_long(service, turns) == {}, "(status, ms of CPU of a turn, ms with the lock), by what was sent"


@pytest.mark.parametrize("service", TABLES)
def test_bodies_that_never_come_hold_up_nobody(services: AllServices, service: str) -> None:
    path = {"registry": "/subjects/s/versions", "pipelines": "/pipelines", "reporting": "/topics/heavy"}
    head = f"POST {path.get(service, '/topics/heavy')} HTTP/1.1\r\nHost: localhost\r\n"
    kinds = (
        "Content-Length: 1000000\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n",
        "Content-Length: 9\r\n\r\n{",
    )
    host, _, port = services.address(service).partition(":")
    with services.measured() as turns, contextlib.ExitStack() as kept:
        for number in range(SILENT):
            peer = kept.enter_context(socket.create_connection((host, int(port)), timeout=60))
            peer.sendall(f"{head}{kinds[number % len(kinds)]}".encode())
        assert services.send(service, "GET", GOOD) == 200
        listed = {"registry": "/subjects", "rest": "/topics", "pipelines": "/pipelines"}
        if service in listed:  # requests that need a place among those in progress
            request = HeavyRequest("good", listed[service], {}, None)
            assert services.send(service, "GET", request) == 200
    assert turns.longest_cpu_ms <= TURN_CPU_MS_MAX
