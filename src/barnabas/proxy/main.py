"""The REST proxy as a service: what `barnabas rest start` and `barnabas start --with rest` run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from barnabas.http import openapi
from barnabas.http.errors import HttpError
from barnabas.http.listening import ServiceError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.http.visitors import media_type
from barnabas.http_client import Address
from barnabas.observe.metric import Sample
from barnabas.observe.service_metrics import CONSUMERS
from barnabas.proxy import v2, v2_consumers, v3_acls, v3_cluster, v3_groups, v3_records, v3_topics
from barnabas.proxy.call import ProxyCall, Services, negotiate
from barnabas.proxy.consuming import IDLE_S, INSTANCES_MAX, Consuming
from barnabas.proxy.encoding import Encoding
from barnabas.proxy.errors import INVALID_PAYLOAD, JSON_MEDIA_TYPE, V2_MEDIA_TYPE, error_shape
from barnabas.proxy.kafka import Kafka
from barnabas.proxy.producing import Producing
from barnabas.proxy.schemas import Schemas
from barnabas.registry.worker import Limits

Work = Callable[[ProxyCall], Awaitable[Response]]
GENERIC: Final = "application/octet-stream"
"""What some libraries send when nobody has said what the body is: it is read as the API's own type."""
TABLE: Final = (
    *v2.ROUTES,
    *v2_consumers.ROUTES,
    *v3_topics.ROUTES,  # before v3_cluster's, whose `/topics/{topic}/configs` matches `/topics/-/configs`, too
    *v3_cluster.ROUTES,
    *v3_records.ROUTES,
    *v3_groups.ROUTES,
    *v3_acls.ROUTES,
)


@dataclass(frozen=True, slots=True)
class RestOptions:
    """properties: librdkafka's, with bootstrap.servers. advertise: HOST:PORT or URL by which clients reach this instance.

    registry: the address of a schema registry; called when the service starts. instances_max: of consumers. idle_s:
    after which unused consumers are closed. limits: of the process that encodes with heavy schemas.
    """

    properties: Mapping[str, Any]
    registry: Callable[[], Address | None] = lambda: None
    advertise: str | None = None
    instances_max: int = INSTANCES_MAX
    idle_s: float = IDLE_S
    limits: Limits | None = None


def make_server(options: RestOptions, http: HttpOptions) -> HttpServer:
    """A server that is not started yet."""

    def build() -> Service:
        kafka = Kafka(options.properties)
        services = Services(
            kafka,
            Producing(kafka),
            Consuming(kafka, options.instances_max, options.idle_s),
            Schemas(options.registry()),
            Encoding(options.limits),
            _advertised(options.advertise),
            http.limits.request_s,
        )

        async def stop() -> None:
            await services.consuming.stop()
            await services.producing.stop()
            services.schemas.close()
            await asyncio.to_thread(services.encoding.close)
            await kafka.close()

        async def start(url: str) -> None:
            services.consuming.start()
            try:
                await kafka.cluster_id()
            except HttpError as error:
                await stop()
                raise ServiceError(f"the service cannot reach its cluster: {error.message}") from error

        return Service(
            "rest",
            routes(services),
            error_shape,
            start=start,
            stop=stop,
            raw_paths=True,
            is_streaming=is_streaming,
            samples=lambda: [Sample(CONSUMERS, len(services.consuming))],
        )

    return HttpServer(build, http.known_as(options.advertise))


def _advertised(address: str | None) -> str | None:
    if address is None:
        return None
    return (address if "://" in address else f"http://{address}").rstrip("/")


def is_streaming(scope: Scope) -> bool:
    """Whether a request may take any time as long as records keep arriving."""
    path: str = scope["path"]
    return scope["method"] == "POST" and path.startswith("/v3/") and path.endswith("/records")


def routes(services: Services) -> list[BaseRoute]:
    """All paths of the API, and of its description."""
    by_path: dict[str, dict[str, Work]] = {}
    for method, path, work in TABLE:
        by_path.setdefault(path, {})[method] = work
    works_routes: list[BaseRoute] = [
        Route(path, _endpoint(services, works, path), methods=list(works)) for path, works in by_path.items()
    ]
    return [
        Route("/", _root),
        *openapi.routes("REST proxy", TABLE, (openapi.JSON, V2_MEDIA_TYPE)),
        *works_routes,
    ]


async def _root(request: Request) -> Response:
    return Response(b"{}", media_type=V2_MEDIA_TYPE)


def _check_media_type(request: Request, accepted: Sequence[str]) -> None:
    content_type = media_type(request.scope)
    if content_type and content_type not in accepted and request.method in ("POST", "PUT", "PATCH"):
        raise HttpError(415, f"content type {content_type[:100]} is not accepted here; send {accepted[0]}")


def _endpoint(
    services: Services, works: Mapping[str, Work], path: str
) -> Callable[[Request], Awaitable[Response]]:
    old = not path.startswith("/v3/")
    accepted = (*v2.RECORDS, GENERIC) if old else (JSON_MEDIA_TYPE, GENERIC)
    offered: Sequence[str] = (JSON_MEDIA_TYPE,)
    if old:
        offered = v2.RECORDS if path.startswith("/consumers/") else v2.GENERAL

    async def endpoint(request: Request) -> Response:
        work = works["GET" if request.method == "HEAD" else request.method]
        try:
            _check_media_type(request, accepted)
            wanted = negotiate(request.headers.get("accept"), offered)
            response = await work(ProxyCall(services, request))
        except HttpError as error:
            if old:
                error.headers.setdefault("content-type", V2_MEDIA_TYPE)
                error.code = error.status if error.code == INVALID_PAYLOAD else error.code
            raise
        if response.media_type == V2_MEDIA_TYPE:
            response.headers["content-type"] = wanted
        return response

    return endpoint
