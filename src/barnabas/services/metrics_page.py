"""`GET /metrics`: the broker's metrics as Prometheus text or OpenMetrics; `GET /beans`: as JMX shows them; `GET /slow`: the
requests that took long."""

from __future__ import annotations

import asyncio
import json
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from barnabas.http.errors import HttpError
from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.observe.beans import Rates, beans
from barnabas.observe.metric import Measure, Sample
from barnabas.services.metrics_text import Labels, written


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """An error as JSON."""
    return json.dumps({"error": error.message}).encode(), "application/json"


class Page:
    """Answers scrapes. Those that arrive while values are read share them, and texts are written one at a time."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._rates = Rates(measure.started_s)
        self._reading: asyncio.Future[list[Sample]] | None = None
        self._writing = asyncio.Lock()
        self._labels = Labels()

    async def _samples(self) -> list[Sample]:
        reading = self._reading
        if reading is None or reading.done():
            self._reading = reading = asyncio.wrap_future(self._measure())
        return await asyncio.shield(reading)

    async def answer(self, request: Request) -> Response:
        """The answer to one scrape."""
        samples = await self._samples()
        async with self._writing:
            body, media_type = await asyncio.to_thread(
                written, samples, request.headers.get("accept", ""), self._labels
            )
        return Response(body, headers={"content-type": media_type})

    async def beans(self, request: Request) -> Response:
        """The MBeans that the parameters `name` mean, or all."""
        samples, patterns = await self._samples(), request.query_params.getlist("name")
        async with self._writing:
            now_s = time.monotonic()
            beans_read = await asyncio.to_thread(beans, samples, self._rates, now_s, patterns)
        return JSONResponse({"time_ms": time.time_ns() // 1_000_000, "beans": beans_read})

    async def slow(self, request: Request) -> Response:
        """The last slow requests, the newest first, with the parts of their time in ms."""
        return JSONResponse({"requests": self._measure.slow()[::-1]})


async def _start(url: str) -> None:
    """There is nothing to prepare."""


def make_server(measure: Measure, http: HttpOptions) -> HttpServer:
    """A server that is not started yet."""

    def build() -> Service:
        page = Page(measure)
        routes = [
            Route("/metrics", page.answer, methods=["GET"]),
            Route("/beans", page.beans, methods=["GET"]),
            Route("/slow", page.slow, methods=["GET"]),
        ]
        return Service("metrics", routes, error_shape, start=_start)

    return HttpServer(build, http)
