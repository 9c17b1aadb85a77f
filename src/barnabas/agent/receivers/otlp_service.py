"""The HTTP service that takes OpenTelemetry's logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from barnabas.agent.receivers.otlp_events import BODY_BYTES_MAX, requested
from barnabas.agent.receivers.receiver import Event, Tls
from barnabas.http.errors import HttpError
from barnabas.http.guard import Limits
from barnabas.http.listening import TlsFiles
from barnabas.http.server import HttpOptions, HttpServer, Service


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """An error as OTLP has it in JSON."""
    return json.dumps({"code": 3, "message": error.message}).encode(), "application/json"


async def _start(url: str) -> None:
    """There is nothing to prepare."""


def make_server(
    keep: Callable[[list[Event]], Awaitable[None]], listen: str, tls: Tls | None = None
) -> HttpServer:
    """A server that is not started yet. keep: called with events; they are safe when it returns."""

    async def logs(request: Request) -> Response:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip()
        body = await request.body()
        try:
            events = await asyncio.to_thread(
                requested, body, media_type, request.headers.get("content-encoding", "")
            )
        except ValueError as error:
            raise HttpError(400, str(error)) from None
        await keep(events)
        if media_type == "application/json":
            return Response(b"{}", media_type="application/json")
        return Response(b"", media_type="application/x-protobuf")

    def build() -> Service:
        return Service("agent", [Route("/v1/logs", logs, methods=["POST"])], error_shape, start=_start)

    files = None
    if tls is not None:
        files = TlsFiles(tls.certificate, tls.key, client_ca_file=tls.authority or None)
    return HttpServer(build, HttpOptions(listen, Limits(BODY_BYTES_MAX, 60.0, 100), tls=files))
