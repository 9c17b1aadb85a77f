"""The registry as a service: what `barnabas registry start` and `barnabas start --with registry` run."""

from __future__ import annotations

from barnabas.client.errors import ClientError
from barnabas.http.listening import ServiceError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.registry.api import error_shape, routes
from barnabas.registry.api.call import MEDIA_TYPE
from barnabas.registry.measuring import samples
from barnabas.registry.service import Registry, RegistryOptions


def make_server(options: RegistryOptions, http: HttpOptions) -> HttpServer:
    """A server that has not been started. Must be created in the event loop in which it will run."""
    registry: list[Registry] = []

    def build() -> Service:
        service = Registry(options)
        registry.append(service)

        async def start(url: str) -> None:
            try:
                await service.start(url)
            except ClientError as error:
                await service.stop()
                raise ServiceError(f"the registry cannot reach its cluster: {error}") from error

        return Service(
            "registry",
            routes(service),
            error_shape,
            start=start,
            stop=service.stop,
            unready=service.unready,
            samples=lambda: samples(service.state, writes=service.writing),
            raw_paths=True,
            media_type=MEDIA_TYPE,
        )

    return HttpServer(build, http.known_as(options.advertise))
