"""The metrics of the broker as a service for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.services.row import Given, Row
from barnabas.terminal.errors import UsageError

if TYPE_CHECKING:
    from barnabas.http.server import HttpServer


def make(given: Given) -> HttpServer:
    """A server that is not started yet. Raises UsageError."""
    if given.measure is None:
        raise UsageError("metrics are those of a broker in the same process: barnabas start --with metrics")
    try:
        from barnabas.services.metrics_page import make_server
    except ImportError as error:
        from barnabas.extras import how_to_install

        raise UsageError(
            f"--with metrics needs {error.name}, which is not installed; install it with {how_to_install('services')}"
        ) from None
    return make_server(given.measure, given.http)


METRICS: Final = Row(
    name="metrics",
    port=9644,
    who="the metrics",
    about="Serve the broker's metrics to Prometheus.",
    examples=("barnabas start --with metrics",),
    make=make,
    ready=lambda given: "GET /metrics",
)
