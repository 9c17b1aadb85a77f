"""The HTTP API of a pipeline server, as JSON.

    GET    /health
    GET    /pipelines                      names, states, rates, lag
    POST   /pipelines                      a pipeline file as YAML: checked, stored and, unless ?start=false, started
    GET    /pipelines/{name}               the same of one pipeline
    GET    /pipelines/{name}/file          its YAML, without secrets
    DELETE /pipelines/{name}               stops and removes the pipeline
    POST   /pipelines/{name}/start|resume|pause|stop
    POST   /pipelines/{name}/restart       {"from": "earliest" | "latest" | milliseconds | {"topic": {"0": 5}}}
    POST   /preview                        {"pipeline": YAML, "topic": ..., "count": 5, "oldest": false, "output": ...}
    GET    /metrics                        Prometheus text

An error is {"error": "one line"}: 400 for an invalid request or a pipeline that cannot run, 403 for a page of another
origin, 404 for an unknown pipeline or action.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.hiding import masked
from barnabas.pipelines.preview import preview
from barnabas.pipelines.queries import address_of
from barnabas.pipelines.server.manager import Manager
from barnabas.pipelines.spec import PIPELINE, parse_spec
from barnabas.pipelines.supervisor import Wanted

Handler = Callable[[Request], Awaitable[Response]]
BODY_BYTES_MAX = 1 << 20
ACTIONS = {
    "start": Wanted.RUNNING,
    "resume": Wanted.RUNNING,
    "pause": Wanted.PAUSED,
    "stop": Wanted.STOPPED,
}


class BadRequest(Exception):
    """The request is invalid; the response has status 400."""


def starting_options(place: Any) -> dict[str, str]:
    """Source options to begin at a place: earliest, latest, a time in milliseconds, or offsets by topic and partition.

    Raises BadRequest.
    """
    if place in ("earliest", "latest"):
        return {"startingOffsets": str(place)}
    if isinstance(place, int) and not isinstance(place, bool) and place >= 0:
        return {"startingTimestamp": str(place), "startingOffsetsByTimestampStrategy": "latest"}
    if isinstance(place, dict):
        return {"startingOffsets": json.dumps(place)}
    raise BadRequest(
        f"from is {place!r}; it must be earliest, latest, a time in milliseconds, or offsets by topic and partition"
    )


def guarded(work: Callable[[Request], Awaitable[Any]]) -> Handler:
    """A handler that responds with the result of `work` as JSON, or with its error as one line."""

    async def handle(request: Request) -> Response:
        try:
            result = await work(request)
        except KeyError as error:
            return JSONResponse({"error": str(error.args[0])}, 404)
        except (PipelineError, BadRequest) as error:
            return JSONResponse({"error": str(error)}, 400)
        return result if isinstance(result, Response) else JSONResponse(result)

    return handle


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise BadRequest(f"the body is over {BODY_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


async def _json(request: Request) -> dict[str, Any]:
    raw = await _body(request)
    try:
        value = json.loads(raw or b"{}")
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object")
    return value


@dataclass(frozen=True, slots=True)
class Api:
    """The handlers of all paths, for one manager."""

    manager: Manager

    async def health(self, request: Request) -> Any:
        """Whether the server is up, and how many pipelines have failed."""
        states = self.manager.states()
        return {"status": "ok", "pipelines": len(states), "failed": states.count("failed")}

    async def listing(self, request: Request) -> Any:
        """The status of every pipeline."""
        return await run_in_threadpool(self.manager.statuses)

    async def put(self, request: Request) -> Any:
        """Store a pipeline file and, unless ?start=false, start the pipeline."""
        raw = await _body(request)
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise BadRequest("the body is not UTF-8 text") from error
        start = request.query_params.get("start", "true") != "false"
        managed = await run_in_threadpool(self.manager.put, text, start=start)
        return JSONResponse(self.manager.status(managed.spec.name), 201)

    async def one(self, request: Request) -> Any:
        """The status of one pipeline."""
        return await run_in_threadpool(self.manager.status, request.path_params["name"])

    async def text(self, request: Request) -> Any:
        """A pipeline's file, without secrets."""
        return PlainTextResponse(
            masked(self.manager.get(request.path_params["name"]).text, PIPELINE),
            media_type="application/yaml",
        )

    async def remove(self, request: Request) -> Any:
        """Stop and remove a pipeline."""
        await run_in_threadpool(self.manager.remove, request.path_params["name"])
        return Response(status_code=204)

    async def act(self, request: Request) -> Any:
        """Start, pause, stop or restart a pipeline."""
        name, action = request.path_params["name"], request.path_params["action"]
        if action == "restart":
            given = await _json(request)
            starting = starting_options(given["from"]) if "from" in given else None
            await run_in_threadpool(self.manager.restart, name, starting)
        elif action in ACTIONS:
            await run_in_threadpool(self.manager.want, name, ACTIONS[action])
        else:
            raise KeyError(f"there is no action {action!r}; allowed: start, resume, pause, stop, restart")
        return await run_in_threadpool(self.manager.status, name)

    async def show_preview(self, request: Request) -> Any:
        """What a pipeline would make of a few existing records."""
        given = await _json(request)
        spec = parse_spec(str(given.get("pipeline", "")))
        count = given.get("count", 5)
        if type(count) is not int or not 1 <= count <= 1000:
            raise BadRequest(f"count is {count!r}, not a number from 1 to 1000")
        found = await run_in_threadpool(
            preview,
            self.manager.spark,
            spec,
            address_of(spec, self.manager.bootstrap),
            topic=given.get("topic"),
            count=count,
            output=given.get("output"),
            oldest=bool(given.get("oldest", False)),
        )
        return [asdict(record) for record in found]

    async def metrics(self, request: Request) -> Any:
        """Prometheus text."""
        rows = await run_in_threadpool(self.manager.statuses)
        return PlainTextResponse(metrics_text(rows), media_type="text/plain; version=0.0.4")


class OwnOrigin:
    """Refuses requests that a browser sends for a page of another origin, or for a page that was loaded under a host
    name that is not this machine's (DNS rebinding). Such a page could start pipelines otherwise."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = None if scope["type"] != "http" else foreign(Request(scope).headers)
        if reason is not None:
            await JSONResponse({"error": reason}, 403)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def foreign(headers: Mapping[str, str]) -> str | None:
    """Why a request is refused; None if it is accepted."""
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin is not None and urlsplit(origin).netloc != host:
        return f"pages of {origin} may not use this server"
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return "pages of other origins may not use this server"
    name = urlsplit(f"//{host}").hostname or ""
    if origin is not None and not _is_address(name) and name not in OWN_NAMES:
        return f"{name} is not a name of this machine"
    return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


OWN_NAMES = frozenset({"localhost", socket.gethostname().lower(), socket.getfqdn().lower()})


def make_app(manager: Manager) -> Starlette:
    """The HTTP application for a manager."""
    api = Api(manager)
    return Starlette(
        middleware=[Middleware(OwnOrigin)],
        routes=[
            Route("/health", guarded(api.health)),
            Route("/metrics", guarded(api.metrics)),
            Route("/pipelines", guarded(api.listing), methods=["GET"]),
            Route("/pipelines", guarded(api.put), methods=["POST"]),
            Route("/pipelines/{name}", guarded(api.one), methods=["GET"]),
            Route("/pipelines/{name}", guarded(api.remove), methods=["DELETE"]),
            Route("/pipelines/{name}/file", guarded(api.text), methods=["GET"]),
            Route("/pipelines/{name}/{action}", guarded(api.act), methods=["POST"]),
            Route("/preview", guarded(api.show_preview), methods=["POST"]),
        ],
    )


def metrics_text(rows: list[dict[str, Any]]) -> str:
    """The statuses of pipelines as Prometheus text."""
    lines = [
        "# HELP barnabas_pipeline_up Whether the pipeline runs.",
        "# TYPE barnabas_pipeline_up gauge",
    ]
    lines += [f'barnabas_pipeline_up{{pipeline="{r["name"]}"}} {int(r["state"] == "running")}' for r in rows]
    kinds = (
        ("records", "barnabas_pipeline_records_total", "counter", "Records read since the query started."),
        ("failed", "barnabas_pipeline_dead_letters_total", "counter", "Dead letters since the query began."),
        ("records_per_second", "barnabas_pipeline_records_per_second", "gauge", "Rate of the last batch."),
        ("lag", "barnabas_pipeline_lag_records", "gauge", "Records waiting in the source."),
    )
    for name, metric, kind, doc in kinds:
        lines += [f"# HELP {metric} {doc}", f"# TYPE {metric} {kind}"]
        for row in rows:
            for query in row["queries"]:
                if query[name] is not None:
                    labels = f'pipeline="{row["name"]}",query="{query["name"]}"'
                    lines.append(f"{metric}{{{labels}}} {query[name]}")
    return "\n".join(lines) + "\n"
