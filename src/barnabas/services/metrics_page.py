"""`GET /metrics`: the broker's metrics as Prometheus text or OpenMetrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import Future

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from barnabas.http.errors import HttpError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.observe.metric import Sample
from barnabas.services.metrics_text import written

Measure = Callable[[], Future[list[Sample]]]
"""Asks the broker's loop for the values of its metrics."""


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """An error as JSON."""
    return json.dumps({"error": error.message}).encode(), "application/json"


class Page:
    """Answers scrapes. Those that arrive while values are read share them, and texts are written one at a time."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._reading: asyncio.Future[list[Sample]] | None = None
        self._writing = asyncio.Lock()

    async def answer(self, request: Request) -> Response:
        """The answer to one scrape."""
        reading = self._reading
        if reading is None or reading.done():
            self._reading = reading = asyncio.wrap_future(self._measure())
        samples = await asyncio.shield(reading)
        async with self._writing:
            body, media_type = await asyncio.to_thread(written, samples, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type})


async def _start(url: str) -> None:
    """There is nothing to prepare."""


def make_server(measure: Measure, http: HttpOptions) -> HttpServer:
    """A server that is not started yet."""

    def build() -> Service:
        page = Page(measure)
        return Service(
            "metrics", [Route("/metrics", page.answer, methods=["GET"])], error_shape, start=_start
        )

    return HttpServer(build, http)
