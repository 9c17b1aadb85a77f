"""What the HTTP services of a process count: their requests, and what each has to say of itself. `GET /metrics` of every
service shows all of them; prometheus-client counts and writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import CollectorRegistry
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from barnabas.observe.families import families
from barnabas.observe.metric import Metric, Sample

log = logging.getLogger("barnabas.http")

disable_created_metrics()
REGISTRY: Final = CollectorRegistry(auto_describe=False)
"""Of all services of this process: the label `service` tells them apart."""
ROUTE: Final = "barnabas.route"
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

REQUESTS: Final = Counter(
    "barnabas_http_requests",
    "Requests to HTTP services. route: the path as declared, empty if there is none; status 0: no answer began.",
    ("service", "method", "route", "status"),
    registry=REGISTRY,
)
SECONDS: Final = Histogram(
    "barnabas_http_request_seconds",
    "Time from the headers of a request to the end of its answer.",
    ("service", "route"),
    buckets=BUCKETS_S,
    registry=REGISTRY,
)
RECEIVED: Final = Counter(
    "barnabas_http_received_bytes", "Bodies of requests.", ("service",), registry=REGISTRY
)
SENT: Final = Counter("barnabas_http_sent_bytes", "Bodies of answers.", ("service",), registry=REGISTRY)
IN_PROGRESS: Final = Gauge(
    "barnabas_http_requests_in_progress", "Requests being processed.", ("service",), registry=REGISTRY
)
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Measures:
    """Counts the requests of one service."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._received, self._sent = RECEIVED.labels(service), SENT.labels(service)
        self.in_progress = IN_PROGRESS.labels(service)

    def note(self, scope: Scope, status: int, took_s: float, received: int, sent: int) -> None:
        """A request has ended. Methods that no route has are counted together, so that nobody can make series."""
        route = scope.get(ROUTE, "")
        method = scope["method"] if scope["method"] in METHODS else "other"
        REQUESTS.labels(self._service, method, route, str(status)).inc()
        SECONDS.labels(self._service, route).observe(took_s)
        self._received.inc(received)
        self._sent.inc(sent)


class _Marked:
    """An application that writes its route into the scope of each request."""

    def __init__(self, app: ASGIApp, route: str) -> None:
        self._app, self._route = app, route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ROUTE] = self._route
        await self._app(scope, receive, send)


def marked(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """The routes, whose requests will be counted under the paths as they were declared."""
    listed = list(routes)
    for route in listed:
        if isinstance(route, Route) and not isinstance(route.app, _Marked):
            route.app = _Marked(route.app, route.path)
    return listed


class Own:
    """What a service has to say of itself, read at each scrape."""

    def __init__(self, service: str, samples: Callable[[], Iterable[Sample]]) -> None:
        self._service, self._samples = service, samples

    def collect(self) -> Iterator[Family]:
        """Called once for each scrape."""
        samples_by_metric: dict[Metric, list[Sample]] = {}
        try:
            for sample in self._samples():
                samples_by_metric.setdefault(sample.metric, []).append(sample)
        except Exception:  # other services have something to say, too
            log.exception("a service cannot be measured", extra={"service": self._service})
        return families(samples_by_metric)


def page(accept: str, more: Sequence[Any] = ()) -> tuple[bytes, str]:
    """All of it as text, in the format that `accept` prefers, and its media type. more: further collectors."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in (REGISTRY, *more):
        registry.register(collector)
    ProcessCollector(registry=registry)
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type
