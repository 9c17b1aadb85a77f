"""Reporting as a service: what `barnabas reporting start` and `barnabas start --with reporting` run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.http.errors import HttpError
from barnabas.http.listening import ServiceError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.observe.metric import Sample
from barnabas.observe.service_metrics import POINTS
from barnabas.proxy.errors import error_shape
from barnabas.proxy.kafka import Kafka
from barnabas.proxy.producing import Producing
from barnabas.proxy.reporting.api import Reporting, routes
from barnabas.proxy.reporting.points import DEFAULT_TOPIC, Point, Points


@dataclass(frozen=True, slots=True)
class ReportingOptions:
    """properties: librdkafka's, with bootstrap.servers. topic: of the access points. secrets, hooks: see Reporting."""

    properties: Mapping[str, Any]
    topic: str = DEFAULT_TOPIC
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    hooks: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)


def make_server(options: ReportingOptions, http: HttpOptions) -> HttpServer:
    """A server that is not started yet."""

    def build() -> Service:
        kafka = Kafka({"client.id": "reporting", **options.properties})
        try:
            client = kafka.client_options()
        except HttpError as error:
            raise _unreachable(error) from error
        producing = Producing(kafka)
        points = Points(client, producing, options.topic)

        async def stop() -> None:
            await points.stop()
            await producing.stop()
            await kafka.close()

        async def start(url: str) -> None:
            try:
                await points.start()
            except HttpError as error:
                await stop()
                raise _unreachable(error) from error

        reporting = Reporting(points, producing, options.secrets, options.hooks)
        return Service(
            "reporting",
            routes(reporting),
            error_shape,
            start=start,
            stop=stop,
            unready=points.trouble,
            raw_paths=True,
            takes_forms=reporting.is_hook,
            samples=lambda: samples(points.all()),
        )

    return HttpServer(build, http)


def samples(points: Sequence[Point]) -> list[Sample]:
    """What is measured of the access points."""
    paused = sum(point.paused for point in points)
    return [Sample(POINTS, paused, ("true",)), Sample(POINTS, len(points) - paused, ("false",))]


def _unreachable(error: HttpError) -> ServiceError:
    return ServiceError(f"the service cannot reach its cluster: {error.message}")
