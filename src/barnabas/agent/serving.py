"""What the agent tells over HTTP: `GET /metrics`, `GET /status`, and whether all inputs are well at `GET /ready`."""

from __future__ import annotations

import asyncio
import json

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from barnabas.agent.supervising import Supervisor
from barnabas.http.errors import HttpError
from barnabas.http.listening import ServiceError
from barnabas.http.server import HttpOptions, HttpServer, ServerThread, Service
from barnabas.services.metrics_text import Labels, written
from barnabas.terminal.errors import CliError


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """An error as JSON."""
    return json.dumps({"error": error.message}).encode(), "application/json"


async def _start(url: str) -> None:
    """There is nothing to prepare."""


def make_server(supervisor: Supervisor, listen: str) -> HttpServer:
    """A server that is not started yet."""

    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        body, media_type = await asyncio.to_thread(lambda: written(supervisor.samples(), accept, Labels()))
        return Response(body, headers={"content-type": media_type})

    async def status(request: Request) -> Response:
        return JSONResponse({"inputs": await asyncio.to_thread(supervisor.status)})

    def unready() -> str | None:
        wrong = [
            worker
            for worker in [*supervisor.workers.values()]
            if worker.present_trouble or worker.job.run is None
        ]
        return (
            "; ".join(f"{worker.input.name}: {worker.present_trouble or 'starting'}" for worker in wrong)
            or None
        )

    def build() -> Service:
        routes = [Route("/metrics", metrics, methods=["GET"]), Route("/status", status, methods=["GET"])]
        return Service("agent", routes, error_shape, start=_start, unready=unready)

    return HttpServer(build, HttpOptions(listen))


def serve(supervisor: Supervisor, listen: str) -> ServerThread:
    """Serve in a thread. Raises CliError."""
    serving = ServerThread([make_server(supervisor, listen)])
    try:
        serving.start()
    except ServiceError as error:
        raise CliError(str(error)) from None
    return serving
