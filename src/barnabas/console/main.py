"""The console as a service: what `barnabas console` and `barnabas start --with console` run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route
from starlette.types import Scope

from barnabas.client.options import ClientOptions
from barnabas.console.answering import Console, routes
from barnabas.console.clusters import Cluster
from barnabas.console.login import LOGIN, MCP, Sessions
from barnabas.console.oidc import OidcOptions, Provider
from barnabas.console.records.decoding import Decoder
from barnabas.console.records.glue import GlueSchemas
from barnabas.console.records.masking import NO_MASKING, Masking
from barnabas.console.roles import Roles
from barnabas.http.errors import HttpError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.http_client import Address

if TYPE_CHECKING:
    from barnabas.console.assistants.serving import Endpoint

STOP_S: Final = 3.0
"""How long requests in progress may take when the console stops: live tails never end by themselves."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """One cluster to show. See Cluster. glue: the folder with schemas of AWS Glue. decoders: see Decoder."""

    name: str
    client: ClientOptions
    registry: Callable[[], Address | None] = lambda: None
    services: Mapping[str, Callable[[], Address | None]] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)
    glue: Path | None = None
    decoders: Mapping[str, Callable[[bytes], Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """What the console shows, and to whom. audit: the topic that gets a record for each change; None: none does.

    assistants: whether they are served at `/mcp`, and to do what: read or change. oidc: the provider where people log in.
    """

    clusters: Sequence[ClusterOptions]
    roles: Roles = field(default_factory=Roles)
    audit: str | None = None
    masking: Masking = NO_MASKING
    assistants: str | None = None
    oidc: OidcOptions | None = None


def make_console(options: ConsoleOptions, sessions: Sessions, *, is_secure: bool) -> Console:
    """What pages and tools share. To be called in the event loop that serves them."""
    clusters = {
        cluster_options.name: Cluster(
            cluster_options.name,
            cluster_options.client,
            cluster_options.registry,
            cluster_options.services,
            cluster_options.tables,
            Decoder(
                cluster_options.registry,
                None if cluster_options.glue is None else GlueSchemas(cluster_options.glue),
                cluster_options.decoders,
            ),
        )
        for cluster_options in options.clusters
    }
    for cluster in clusters.values():
        cluster.others = clusters
        cluster.audit = options.audit
    return Console(clusters, sessions, options.roles, options.audit, options.masking, is_secure=is_secure)


def make_server(options: ConsoleOptions, http: HttpOptions) -> HttpServer:
    """A server that is not started yet."""
    sessions = Sessions(http.authenticate, None if options.oidc is None else Provider(options.oidc))
    guarded = replace(
        http,
        authenticate=sessions.authenticate if sessions.are_needed else None,
        stop_s=min(http.stop_s, STOP_S),
    )

    def build() -> Service:
        console = make_console(options, sessions, is_secure=http.tls is not None)
        assistants = endpoint_of(options, console)

        async def start(url: str) -> None:
            """The console starts without its clusters: it says on its pages that they do not answer."""
            for cluster in console.clusters.values():
                cluster.visited()  # the first page finds what it needs
            if assistants is not None:
                await assistants.start()

        async def stop() -> None:
            if assistants is not None:
                await assistants.stop()
            await console.close()

        return Service(
            "console",
            routes(console, [] if assistants is None else [Route(MCP, assistants)]),
            error_shape,
            start=start,
            stop=stop,
            raw_paths=True,
            is_streaming=is_streaming,
            takes_forms=takes_forms,
            is_page=is_page,
        )

    return HttpServer(build, guarded)


def endpoint_of(options: ConsoleOptions, console: Console) -> Endpoint | None:
    """What serves assistants; None if they are not served."""
    if options.assistants is None:
        return None
    from barnabas.console.assistants.serving import Endpoint

    return Endpoint(console, with_changes=options.assistants == "change")


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """An error as the API writes it."""
    return json.dumps({"error_code": error.code, "message": error.message}).encode(), "application/json"


def is_page(scope: Mapping[str, object] | Scope) -> bool:
    """Whether the path is that of a page, which links of other sites may lead to."""
    path = str(scope["path"])
    return path.startswith(("/clusters/", LOGIN + "/")) or path == LOGIN


def is_streaming(scope: Scope) -> bool:
    """Whether an answer may take any time: those that end when their reader goes away."""
    path: str = scope["path"]
    return (
        scope["method"] == "GET"
        and path.startswith("/api/")
        and path.endswith(("/tail", "/search", "/export", "/verify"))
    )


def takes_forms(scope: Scope) -> bool:
    """Whether a request may be a form: pages may, since their handlers look for the session's stamp."""
    return not scope["path"].startswith(("/api/", MCP))
