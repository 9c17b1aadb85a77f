"""Listens and serves. A service is a list of routes with functions that start and stop it; a process can run several.

async with HttpServer(service, HttpOptions("127.0.0.1:8081")) as server:
    print(server.url)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from barnabas.http.accepting import Acceptor, ConnectionLimits, Place
from barnabas.http.connection import LimitedConnection
from barnabas.http.errors import ErrorShape
from barnabas.http.guard import Authenticate, Guard, Limits
from barnabas.http.listening import ServiceError, TlsFiles, listen, load
from barnabas.http.measuring import REGISTRY, Own, marked, page
from barnabas.http.visitors import Visitors, name_of
from barnabas.http_client import Address
from barnabas.observe.metric import Sample
from barnabas.open_files import allow_all_files

log = logging.getLogger("barnabas.http")

KEEP_ALIVE_S: Final = 75
METRICS: Final = "/metrics"
SOCKET_MESSAGE_BYTES: Final = 1 << 20
"""Of one message of a WebSocket."""
UNHEALTHY: Final = "unhealthy"


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """The settings of a server. listen: HOST:PORT; port 0 chooses a free port. cors_origins: `*` for all.

    names: of the service, beside the one it listens on and those of the machine, see Visitors.
    stop_s: how long requests in progress may take when the service stops.
    """

    listen: str
    limits: Limits = field(default_factory=Limits)
    cors_origins: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    authenticate: Authenticate | None = None
    stop_s: float = 30.0
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)

    def visitors(self, is_page: Callable[[Scope], bool] = lambda scope: False) -> Visitors:
        """Whose requests are accepted. is_page: see Visitors."""
        return Visitors(
            self.cors_origins,
            (name_of(self.listen), *self.names),
            any_name=self.tls is not None or self.authenticate is not None,
            is_page=is_page,
        )

    def known_as(self, address: str | None) -> HttpOptions:
        """These settings, for a service that is also known by the name in HOST:PORT or a URL."""
        return self if address is None else replace(self, names=(*self.names, name_of(address)))


def _sockets() -> Any:
    """uvicorn's class of WebSockets, with our limits."""
    from barnabas.http.socket import LimitedSocket

    return LimitedSocket


async def _nothing() -> None:
    return None


@dataclass(slots=True)
class Service:
    """What a server serves. routes: the API. shape: writes the API's errors.

    start runs before the first request, with the service's own URL; stop after the last answer.
    health: the answer to `GET /health`, from memory; with status 500 if its `status` is `unhealthy`.
    unready: why requests cannot be served right now, None when they can (`GET /ready`).
    stop_s, kill: if `stop` takes longer, `kill` ends what the service runs outside of this process.
    raw_paths: handlers receive paths as they were sent, not decoded, so that a name may contain `%2F`.
    is_streaming: whether a request has no limits on body and time; its handler has limits of its own.
    media_type: of bodies. takes_forms: see Guard. is_page: see Visitors.
    samples: what the service measures of itself, for `GET /metrics`; called in any thread.
    http2: whether it speaks HTTP/2, too (needs h2). is_socket: whether a path is a WebSocket's (needs wsproto).
    """

    name: str
    routes: Sequence[BaseRoute]
    shape: ErrorShape
    start: Callable[[str], Awaitable[None]]
    stop: Callable[[], Awaitable[None]] = _nothing
    stop_s: float | None = None
    kill: Callable[[], None] = lambda: None
    health: Callable[[], Mapping[str, Any]] = lambda: {"status": "ok"}
    unready: Callable[[], str | None] = lambda: None
    raw_paths: bool = False
    is_streaming: Callable[[Scope], bool] = lambda scope: False
    media_type: str = "application/json"
    takes_forms: Callable[[Scope], bool] = lambda scope: False
    is_page: Callable[[Scope], bool] = lambda scope: False
    samples: Callable[[], Iterable[Sample]] = tuple
    http2: bool = False
    is_socket: Callable[[Scope], bool] | None = None


def make_app(service: Service, options: HttpOptions) -> ASGIApp:
    """The service with everything that surrounds it, as an ASGI application."""

    async def health(request: Request) -> Response:
        body = service.health()
        return JSONResponse(body, 500 if body.get("status") == UNHEALTHY else 200)

    async def ready(request: Request) -> Response:
        reason = service.unready()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "reason": reason}, 503)

    async def metrics(request: Request) -> Response:
        text, media_type = await asyncio.to_thread(page, request.headers.get("accept", ""))
        return Response(text, headers={"content-type": media_type})

    # The most general paths come last: an API may have `/{name}`.
    own = [Route("/health", health), Route("/ready", ready)]
    if not any(isinstance(route, Route) and route.path == METRICS for route in service.routes):
        own.append(Route(METRICS, metrics))
    routes = marked([*own, *service.routes])
    middleware = []
    if options.cors_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(options.cors_origins),
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=["x-request-id"],
            )
        )
    app = Starlette(routes=routes, middleware=middleware)
    app.router.redirect_slashes = False
    visitors = options.visitors(service.is_page)
    visitors.learn_full_name()
    return Guard(
        _Bare(app, service.raw_paths),
        service.shape,
        limits=options.limits,
        service=service.name,
        visitors=visitors,
        media_type=service.media_type,
        takes_forms=service.takes_forms,
        authenticate=options.authenticate,
        is_streaming=service.is_streaming,
        is_socket=service.is_socket or (lambda scope: False),
    )


class _Bare:
    """Starlette without its own error pages: exceptions of handlers reach the guard."""

    def __init__(self, app: Starlette, raw_paths: bool) -> None:
        self._raw_paths = raw_paths
        self._router: ASGIApp = app.router
        for middleware in reversed(app.user_middleware):
            self._router = middleware.cls(self._router, *middleware.args, **middleware.kwargs)
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self._app
        if self._raw_paths:
            scope["path"] = scope["raw_path"].decode("latin-1")
        await self._router(scope, receive, send)


class BoundedServer(uvicorn.Server):
    """uvicorn with limits on connections, which leaves the process's signals alone.

    listening: set once it accepts connections, or has failed.
    """

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits, *, http2: bool = False) -> None:
        super().__init__(config)
        self._http2 = http2
        self._limits = limits
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start accepting connections. uvicorn itself would limit neither their number nor that of TLS handshakes."""
        try:
            await super().startup([])
            for listening in sockets or ():
                acceptor = Acceptor(listening, self._connection, self.config.ssl, self._limits)
                self.servers.append(cast("asyncio.Server", acceptor))
        finally:
            self.listening.set()

    def _connection(self, place: Place) -> LimitedConnection:
        return LimitedConnection(
            self.config, self.server_state, self.lifespan.state, place=place, http2=self._http2
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles no signals: that is left to the process, which may contain other servers."""
        yield


class HttpServer:
    """One service on one address. url: its address, once it has started.

    build: creates the service; called in the event loop that will serve it.
    """

    def __init__(self, build: Callable[[], Service], options: HttpOptions) -> None:
        self._build = build
        self.options = options
        self.url = ""
        self._service: Service | None = None
        self._listening: socket.socket | None = None
        self._socket: socket.socket | None = None
        self._server: BoundedServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._own: Own | None = None
        self.hangs = False
        """Whether the service has not stopped: its threads may never end."""

    def listen_on(self, listening: socket.socket) -> None:
        """Serve on a socket that listens already, not on the address of the options."""
        self._listening = listening

    async def start(self) -> None:
        """Listen, start the service, serve. Raises ServiceError."""
        self._socket = self._listening or listen(self.options.listen)
        service = self._service = self._build()
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if self.options.tls is None else "https"
        self.url = f"{scheme}://{shown}:{port}"
        try:
            config = self._config(service)
            await service.start(self.url)
        except BaseException:
            self._socket.close()
            raise
        self._server = BoundedServer(config, self.options.connections, http2=service.http2)
        self._task = asyncio.create_task(self._server.serve([self._socket]), name=service.name)
        await self._server.listening.wait()
        if self._task.done():
            await self._task
        self._own = Own(service.name, service.samples)
        REGISTRY.register(self._own)
        log.info("service started", extra={"service": service.name, "url": self.url})

    async def stop(self) -> None:
        """Stop accepting requests, answer those in progress, and stop the service."""
        service = self._service
        if service is None or self._server is None or self._task is None:
            return
        self._server.should_exit = True
        if self._own is not None:
            REGISTRY.unregister(self._own)
            self._own = None
        try:
            await self._task
        finally:
            await self._stop_service(service)
        if not self.hangs:
            log.info("service stopped", extra={"service": service.name})

    async def _stop_service(self, service: Service) -> None:
        stopping = asyncio.ensure_future(service.stop())
        done, _ = await asyncio.wait({stopping}, timeout=service.stop_s)
        if done:
            await stopping
            return
        log.error(
            "a service does not stop: what it runs is killed, and cut off",
            extra={"service": service.name, "waited_s": service.stop_s},
        )
        self.hangs = True
        service.kill()

    def _config(self, service: Service) -> uvicorn.Config:
        tls = self.options.tls
        config = uvicorn.Config(
            make_app(service, self.options),
            http=LimitedConnection,
            ws=_sockets() if service.is_socket is not None else "none",
            ws_max_size=SOCKET_MESSAGE_BYTES,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=int(self.options.stop_s),
            **({} if tls is None else tls.for_uvicorn()),
        )
        load(config, tls)
        if service.http2 and config.ssl is not None:
            config.ssl.set_alpn_protocols(["h2", "http/1.1"])
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        return config

    def kill(self) -> None:
        """End what the service runs outside of this process, without waiting."""
        if self._service is not None:
            self._service.kill()

    def health(self) -> Mapping[str, Any]:
        """What the service says about itself, see Service; nothing before it has been made."""
        return {} if self._service is None else self._service.health()

    async def __aenter__(self) -> HttpServer:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def serve(servers: Sequence[HttpServer], ready: Callable[[], None]) -> int:
    """Run servers until SIGTERM or SIGINT; returns 0. ready: called once all have started. Raises ServiceError.

    Ends the process, with what the services run outside of it, at a second signal, and if a service does not stop.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals: list[int] = []

    def end(number: int) -> None:
        signals.append(number)
        ended.set()
        if len(signals) > 1:
            end_now(number)

    def end_now(number: int) -> None:
        for server in servers:
            server.kill()
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    started: list[HttpServer] = []
    try:
        for server in servers:
            await server.start()
            started.append(server)
        if not ended.is_set():
            ready()
        await ended.wait()
    finally:
        await asyncio.gather(*(server.stop() for server in reversed(started)))
        if signals and any(server.hangs for server in started):
            end_now(signals[0])
    return 0


def run(servers: Sequence[HttpServer], ready: Callable[[], None]) -> int:
    """Run `serve` in a new event loop (uvloop's if it is installed), with as many open files as the system allows."""
    allow_all_files()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(serve(servers, ready))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class ServerThread:
    """Servers on an event loop of their own in a thread, so that they do not occupy the loop of a broker."""

    def __init__(
        self, servers: Sequence[HttpServer], registry: Callable[[], Address | None] = lambda: None
    ) -> None:
        """registry: the address of the schema registry among them, once it has started."""
        self.servers = servers
        self._registry = registry
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="http services", daemon=True)

    def start(self) -> None:
        """Start the servers; returns once they accept connections. Raises ServiceError."""
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise ServiceError(str(self._failure)) from self._failure

    def stop(self) -> bool:
        """Stop the servers; returns once requests in progress have been answered. False: a service has not stopped, and
        the process must not wait for its threads.
        """
        if self._loop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._ended.set)
            self._stopped.wait()
        if any(server.hangs for server in self.servers):
            return False
        self._thread.join()
        return True

    def registry(self) -> Address | None:
        """The address of the schema registry among them, once it has started; None without one."""
        return self._registry()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except Exception as error:
            log.exception("services failed")
            self._failure = error
        finally:
            self._ready.set()
            self._stopped.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        started: list[HttpServer] = []
        try:
            for server in self.servers:
                await server.start()
                started.append(server)
        except ServiceError as error:
            self._failure = error
            self._ended.set()
        self._ready.set()
        await self._ended.wait()
        for server in reversed(started):
            await server.stop()
        self._stopped.set()


def say(text: str) -> None:
    """Print a line on standard output, and flush it."""
    print(text, file=sys.stdout, flush=True)
