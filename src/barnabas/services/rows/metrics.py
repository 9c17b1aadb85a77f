"""The metrics of the broker as a service for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.services.row import Row, ServiceContext
from barnabas.terminal.errors import UsageError

if TYPE_CHECKING:
    from barnabas.http.server import HttpServer


def make(context: ServiceContext) -> HttpServer:
    """A server that is not started yet. Raises UsageError."""
    if context.measure is None:
        raise UsageError("metrics are those of a broker in the same process: barnabas start --with metrics")
    from barnabas.services.metrics_page import make_server

    return make_server(context.measure, context.http)


METRICS: Final = Row(
    name="metrics",
    port=9644,
    who="the metrics",
    about="Serve the broker's metrics to Prometheus.",
    examples=("barnabas start --with metrics",),
    make=make,
    modules=("starlette", "uvicorn", "prometheus_client"),
    ready=lambda context, health: "GET /metrics",
)
