"""The HTTP API of a pipeline server, as JSON.

    GET    /health
    GET    /pipelines                      names, states, rates, lag
    POST   /pipelines                      a pipeline file as YAML: checked, stored and, unless ?start=false, started;
                                           ?rebuild=true: from the earliest record on, if its state cannot go on
    GET    /pipelines/{name}               the same of one pipeline
    GET    /pipelines/{name}/file          its YAML, without secrets
    GET    /pipelines/{name}/logs          {"lines": [{"at", "level", "query", "text"}], "next": PLACE}: the last
                                           ?lines=200 lines, with ?after=PLACE those after an earlier answer
    GET    /pipelines/{name}/views         its views: key, fields, as of when
    GET    /pipelines/{name}/views/{view}  rows, by ?key=VALUE (repeated for a key of several fields, or the first of them),
                                           ?from= and ?to= (bounds of the key's next field), ?window=TIME or FROM/TO; all
                                           without; ?limit=100, ?after= the `next` of an earlier answer
    DELETE /pipelines/{name}               stops and removes the pipeline
    POST   /pipelines/{name}/start|resume|pause|stop
    POST   /pipelines/{name}/restart       {"from": "earliest" | "latest" | milliseconds | {"topic": {"0": 5}}}
    GET    /pipelines/{name}/picture       its plan as nodes and arrows
    POST   /check                          a pipeline file as YAML: {"mistakes": [{"line", "message"}], "remarks": [...],
                                           "picture": nodes and arrows, null if there are mistakes}; stores nothing
    POST   /preview                        {"pipeline": YAML, or "name": that of a stored one, "topic": ..., "count": 5,
                                           "oldest": false, "output": ...}
    GET    /metrics                        Prometheus text

An error is {"error": "one line"}: 400 for an invalid request or a pipeline that cannot run, 403 for a page of another
site, 404 for an unknown pipeline, view or action, 413 for a body of more than a megabyte, 415 for a form, 503 for a view
without rows yet, or whose file cannot be read, and for a lookup that takes too long.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from barnabas.http.bodies import json_object, read_body
from barnabas.http.errors import HttpError
from barnabas.http.server import UNHEALTHY, Service
from barnabas.pipelines.entries.hiding import masked
from barnabas.pipelines.fronts.yaml.spec import PIPELINE
from barnabas.pipelines.plan.errors import PipelineError, SparkAway
from barnabas.pipelines.serving.checking import check, drawn
from barnabas.pipelines.serving.lookups import BadLookup, Lookups, asked_in
from barnabas.pipelines.serving.managed import Wanted
from barnabas.pipelines.serving.manager import Manager
from barnabas.pipelines.serving.measuring import samples
from barnabas.pipelines.serving.preview import preview
from barnabas.pipelines.serving.supervisor import Supervisor
from barnabas.pipelines.views.lookup import NothingYet, TooSlow
from barnabas.pipelines.views.store import ViewError

Handler = Callable[[Request], Awaitable[Response]]
LINES_MAX = 10_000
"""How many lines of a log are in one answer."""
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
        except SparkAway as error:
            return JSONResponse({"error": str(error)}, 503)
        except (PipelineError, BadRequest, BadLookup) as error:
            return JSONResponse({"error": str(error)}, 400)
        except (NothingYet, TooSlow, ViewError) as error:
            return JSONResponse({"error": str(error)}, 503)
        return result if isinstance(result, Response) else JSONResponse(result)

    return handle


@dataclass(frozen=True)
class Looking:
    """The handlers that only look."""

    supervisor: Supervisor
    lookups: Lookups

    def health(self) -> dict[str, Any]:
        """Whether the server can work, and how many pipelines have failed."""
        states = self.supervisor.states()
        counts = {"pipelines": len(states), "failed": states.count("failed")}
        trouble = self.supervisor.trouble
        if trouble is not None:
            return {"status": UNHEALTHY, "reason": trouble, **counts}
        return {"status": "ok", **counts}

    async def listing(self, request: Request) -> Any:
        """The status of every pipeline."""
        return await run_in_threadpool(self.supervisor.statuses)

    async def one(self, request: Request) -> Any:
        """The status of one pipeline."""
        return await run_in_threadpool(self.supervisor.status, request.path_params["name"])

    async def picture(self, request: Request) -> Any:
        """A pipeline's plan as nodes and arrows."""
        return drawn(self.supervisor.get(request.path_params["name"]).spec)

    async def views(self, request: Request) -> Any:
        """The views of a pipeline."""
        return await run_in_threadpool(self.lookups.listing, request.path_params["name"])

    async def rows(self, request: Request) -> Any:
        """Rows of a view."""
        asked = asked_in(request.query_params.multi_items())
        name, view = request.path_params["name"], request.path_params["view"]
        text = await run_in_threadpool(self.lookups.find, name, view, asked)
        return Response(text, media_type="application/json")

    def routes(self) -> list[Route]:
        """Their paths."""
        return [
            Route("/pipelines", guarded(self.listing), methods=["GET"]),
            Route("/pipelines/{name}", guarded(self.one), methods=["GET"]),
            Route("/pipelines/{name}/picture", guarded(self.picture), methods=["GET"]),
            Route("/pipelines/{name}/views", guarded(self.views), methods=["GET"]),
            Route("/pipelines/{name}/views/{view}", guarded(self.rows), methods=["GET"]),
        ]


@dataclass(frozen=True)
class Api(Looking):
    """The handlers of all paths, for one manager."""

    manager: Manager

    async def put(self, request: Request) -> Any:
        """Store a pipeline file and, unless ?start=false, start the pipeline."""
        raw = await read_body(request)
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise BadRequest("the body is not UTF-8 text") from error
        start = request.query_params.get("start", "true") != "false"
        rebuild = request.query_params.get("rebuild") == "true"
        managed = await run_in_threadpool(self.manager.put, text, start=start, rebuild=rebuild)
        return JSONResponse(self.manager.status(managed.spec.name), 201)

    async def text(self, request: Request) -> Any:
        """A pipeline's file, without secrets."""
        stored = self.manager.get(request.path_params["name"]).text
        shown = await run_in_threadpool(masked, stored, PIPELINE)
        return PlainTextResponse(shown, media_type="application/yaml")

    async def check(self, request: Request) -> Any:
        """What is wrong with a pipeline file."""
        raw = await read_body(request)
        return await run_in_threadpool(check, self.manager, raw.decode("utf-8", "replace"))

    async def logs(self, request: Request) -> Any:
        """The last lines of a pipeline's log."""
        count, after = request.query_params.get("lines", "200"), request.query_params.get("after", "")
        if not count.isdecimal() or not 1 <= int(count) <= LINES_MAX:
            raise BadRequest(f"lines is {count!r}, not a number from 1 to {LINES_MAX:,}")
        try:
            page = await run_in_threadpool(self.manager.logs, request.path_params["name"], int(count), after)
        except ValueError:
            raise BadRequest(f"after is {after!r}, not the `next` of an earlier answer") from None
        return asdict(page)

    async def remove(self, request: Request) -> Any:
        """Stop and remove a pipeline."""
        await run_in_threadpool(self.manager.remove, request.path_params["name"])
        return Response(status_code=204)

    async def act(self, request: Request) -> Any:
        """Start, pause, stop or restart a pipeline."""
        name, action = request.path_params["name"], request.path_params["action"]
        if action == "restart":
            body = await json_object(request)
            starting = starting_options(body["from"]) if "from" in body else None
            await run_in_threadpool(self.manager.restart, name, starting)
        elif action in ACTIONS:
            await run_in_threadpool(self.manager.want, name, ACTIONS[action])
        else:
            raise KeyError(f"there is no action {action!r}; allowed: start, resume, pause, stop, restart")
        return await run_in_threadpool(self.manager.status, name)

    async def show_preview(self, request: Request) -> Any:
        """What a pipeline would make of a few existing records."""
        body = await json_object(request)
        count = body.get("count", 5)
        if type(count) is not int or not 1 <= count <= 1000:
            raise BadRequest(f"count is {count!r}, not a number from 1 to 1000")
        if "name" in body:
            spec = self.manager.get(str(body["name"])).spec
        else:
            spec = await run_in_threadpool(self.manager.parsed, str(body.get("pipeline", "")))
        previews = await run_in_threadpool(
            preview,
            self.manager.spark,
            spec,
            self.manager.address(spec),
            topic=body.get("topic"),
            count=count,
            output=body.get("output"),
            oldest=bool(body.get("oldest", False)),
        )
        return [asdict(record) for record in previews]


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """The body and media type of an error."""
    return json.dumps({"error": error.message}).encode(), "application/json"


async def _started(url: str) -> None:
    """Others start and stop the pipelines."""


def make_lookups(supervisor: Supervisor) -> Service:
    """The part of the API that only looks, for pipelines that run without a server."""
    api = Looking(supervisor, Lookups(supervisor))
    return Service(
        "pipelines",
        api.routes(),
        error_shape,
        start=_started,
        health=api.health,
        unready=lambda: supervisor.trouble,
        samples=lambda: samples(supervisor.statuses()),
    )


def make_service(manager: Manager) -> Service:
    """The API for a manager, which others start and stop."""
    api = Api(manager, Lookups(manager), manager)
    return Service(
        "pipelines",
        [
            *api.routes(),
            Route("/pipelines", guarded(api.put), methods=["POST"]),
            Route("/pipelines/{name}", guarded(api.remove), methods=["DELETE"]),
            Route("/pipelines/{name}/file", guarded(api.text), methods=["GET"]),
            Route("/pipelines/{name}/logs", guarded(api.logs), methods=["GET"]),
            Route("/pipelines/{name}/{action}", guarded(api.act), methods=["POST"]),
            Route("/check", guarded(api.check), methods=["POST"]),
            Route("/preview", guarded(api.show_preview), methods=["POST"]),
        ],
        error_shape,
        start=_started,
        health=api.health,
        unready=lambda: manager.trouble,
        samples=lambda: samples(manager.statuses()),
        media_type="application/yaml or application/json",
    )
