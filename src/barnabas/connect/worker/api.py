"""Kafka Connect's REST API. Source: Kafka 4.x's documentation of Connect, ConnectorsResource, ConnectorPluginsResource."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from barnabas.connect.errors import OptionError
from barnabas.connect.plugins import plugins
from barnabas.connect.worker import formats, loggers, positions
from barnabas.connect.worker.describing import definitions_of, other_plugins
from barnabas.connect.worker.formats import Target
from barnabas.connect.worker.journal import Journal
from barnabas.connect.worker.requests import Requests
from barnabas.http.bodies import object_of, read_body
from barnabas.http.errors import HttpError

log = logging.getLogger("barnabas.connect")

VERSION: Final = "4.1.0"
"""The version of Kafka Connect's API."""
Handler = Callable[[Request], Awaitable[Response]]


def error_shape(error: HttpError, request_id: str) -> tuple[bytes, str]:
    """The body and media type of an error."""
    return formats.dump({"error_code": error.code, "message": error.message}), "application/json"


class Reply(JSONResponse):
    """JSON as Kafka writes it."""

    def render(self, content: Any) -> bytes:
        """See JSONResponse."""
        return formats.dump(content)


def texts(fields: Any, what: str) -> dict[str, str | None]:
    """A configuration of JSON: numbers and booleans become texts. Raises HttpError 400."""
    if not isinstance(fields, dict):
        raise HttpError(HTTPStatus.BAD_REQUEST, f"{what} is not an object with options and their texts")
    config: dict[str, str | None] = {}
    for name, value in fields.items():
        if isinstance(value, (dict, list)):
            raise HttpError(HTTPStatus.BAD_REQUEST, f"the value of {name} is not a text")
        config[name] = value if value is None or isinstance(value, str) else json.dumps(value)
    return config


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request. Raises HttpError 400."""
    return object_of(await read_body(request))


def flag(request: Request, name: str) -> bool:
    """A query parameter."""
    return request.query_params.get(name, "false").lower() == "true"


def part(request: Request, name: str = "connector") -> str:
    """A part of the path."""
    return unquote(request.path_params[name])


@dataclass(frozen=True, slots=True)
class Api:
    """The handlers of all paths. cluster_id: of the brokers."""

    requests: Requests
    journal: Journal
    cluster_id: Callable[[], str]

    def routes(self) -> list[BaseRoute]:
        """All paths."""
        one = "/connectors/{connector}"
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/", self.root),
            ("GET", "/connectors", self.listing),
            ("GET", "/connectors/", self.listing),
            ("POST", "/connectors", self.create),
            ("POST", "/connectors/", self.create),
            ("GET", one, self.info),
            ("DELETE", one, self.delete),
            ("GET", f"{one}/config", self.config),
            ("PUT", f"{one}/config", self.put_config),
            ("PATCH", f"{one}/config", self.patch_config),
            ("GET", f"{one}/status", self.status),
            ("GET", f"{one}/tasks", self.tasks),
            ("GET", f"{one}/tasks-config", self.tasks_config),
            ("GET", f"{one}/tasks/{{task}}/status", self.task_status),
            ("POST", f"{one}/tasks/{{task}}/restart", self.restart_task),
            ("POST", f"{one}/restart", self.restart),
            ("PUT", f"{one}/pause", self.wanting(Target.PAUSED, HTTPStatus.ACCEPTED)),
            ("PUT", f"{one}/resume", self.wanting(Target.STARTED, HTTPStatus.ACCEPTED)),
            ("PUT", f"{one}/stop", self.wanting(Target.STOPPED, HTTPStatus.NO_CONTENT)),
            ("GET", f"{one}/topics", self.topics),
            ("PUT", f"{one}/topics/reset", self.reset_topics),
            ("GET", f"{one}/offsets", self.offsets),
            ("PATCH", f"{one}/offsets", self.alter_offsets),
            ("DELETE", f"{one}/offsets", self.reset_offsets),
            ("GET", f"{one}/logs", self.logs),
            ("GET", "/connector-plugins", self.plugins),
            ("GET", "/connector-plugins/", self.plugins),
            ("GET", "/connector-plugins/{plugin}/config", self.plugin_config),
            ("PUT", "/connector-plugins/{plugin}/config/validate", self.validate),
            ("GET", "/admin/loggers", self.loggers),
            ("GET", "/admin/loggers/{logger}", self.logger),
            ("PUT", "/admin/loggers/{logger}", self.set_logger),
        ]
        return [Route(path, handler, methods=[method]) for method, path, handler in table]

    # --- connectors -----------------------------------------------------------------------------------

    async def root(self, request: Request) -> Response:
        """ServerInfo."""
        return Reply({"version": VERSION, "commit": "barnabas", "kafka_cluster_id": self.cluster_id()})

    async def listing(self, request: Request) -> Response:
        """Names, or with ?expand= info and status of each."""
        wanted = request.query_params.getlist("expand")
        names = self.requests.board.names()
        if not wanted:
            return Reply(names)
        return Reply({name: self._expanded(name, wanted) for name in names})

    def _expanded(self, name: str, wanted: list[str]) -> dict[str, Any]:
        row: dict[str, Any] = {}
        if "status" in wanted:
            row["status"] = self.requests.status(name)
        if "info" in wanted:
            row["info"] = self.requests.info(name)
        return row

    async def create(self, request: Request) -> Response:
        """A new connector."""
        body = await body_of(request)
        config = texts(body.get("config"), "config")
        name = str(body.get("name") or "").strip()
        inside = config.get("name")
        if inside is not None and inside != name:
            # Kafka Connect took this until 0.11, and lessons from then have it.
            log.warning(
                "the name inside a configuration is replaced", extra={"connector": name, "inside": inside}
            )
        config["name"] = name
        info = await run_in_threadpool(self.requests.create, name, config, body.get("initial_state"))
        return Reply(info, HTTPStatus.CREATED, {"Location": f"/connectors/{quote(name, safe='')}"})

    async def info(self, request: Request) -> Response:
        """ConnectorInfo."""
        return Reply(self.requests.info(part(request)))

    async def config(self, request: Request) -> Response:
        """The configuration."""
        return Reply(self.requests.deployed(part(request)).config)

    async def put_config(self, request: Request) -> Response:
        """A new connector, or another configuration."""
        name = part(request)
        config = texts(await body_of(request), "the body")
        _require_name(name, config)
        is_new, info = await run_in_threadpool(self.requests.put_config, name, {**config, "name": name})
        if is_new:
            return Reply(info, HTTPStatus.CREATED, {"Location": f"/connectors/{quote(name, safe='')}"})
        return Reply(info)

    async def patch_config(self, request: Request) -> Response:
        """Some other options; null removes one."""
        name = part(request)
        changes = texts(await body_of(request), "the body")
        _require_name(name, changes)
        return Reply(await run_in_threadpool(self.requests.patch_config, name, changes))

    async def delete(self, request: Request) -> Response:
        """Removes a connector."""
        await run_in_threadpool(self.requests.delete, part(request))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def status(self, request: Request) -> Response:
        """ConnectorStateInfo."""
        return Reply(self.requests.status(part(request)))

    async def tasks(self, request: Request) -> Response:
        """TaskInfos."""
        return Reply(self.requests.tasks(part(request)))

    async def tasks_config(self, request: Request) -> Response:
        """The configurations of tasks by their names (deprecated in Kafka)."""
        name = part(request)
        rows = self.requests.tasks(name)
        return Reply({f"{name}-{row['id']['task']}": row["config"] for row in rows})

    async def task_status(self, request: Request) -> Response:
        """TaskState."""
        return Reply(self.requests.task_status(part(request), _task(request)))

    async def restart_task(self, request: Request) -> Response:
        """Restarts a task, also one that another worker runs."""
        await run_in_threadpool(self.requests.restart_task, part(request), _task(request))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def restart(self, request: Request) -> Response:
        """Restarts a connector, with ?includeTasks= and ?onlyFailed= some of its tasks."""
        name = part(request)
        include, only = flag(request, "includeTasks"), flag(request, "onlyFailed")
        state = await run_in_threadpool(self.requests.restart, name, include, only)
        if not include and not only:
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return Reply(state, HTTPStatus.ACCEPTED)

    def wanting(self, target: Target, status: HTTPStatus) -> Handler:
        """A handler that pauses, resumes or stops."""

        async def handle(request: Request) -> Response:
            await run_in_threadpool(self.requests.want, part(request), target)
            return Response(status_code=status)

        return handle

    # --- topics and offsets ---------------------------------------------------------------------------

    async def topics(self, request: Request) -> Response:
        """ActiveTopicsInfo."""
        return Reply(self.requests.topics(part(request)))

    async def reset_topics(self, request: Request) -> Response:
        """Forgets them."""
        await run_in_threadpool(self.requests.reset_topics, part(request))
        return Response(status_code=HTTPStatus.ACCEPTED)

    async def offsets(self, request: Request) -> Response:
        """ConnectorOffsets."""
        return Reply(await run_in_threadpool(positions.read_offsets, self.requests, part(request)))

    async def alter_offsets(self, request: Request) -> Response:
        """Sets some."""
        body = await body_of(request)
        return Reply(await run_in_threadpool(positions.alter_offsets, self.requests, part(request), body))

    async def reset_offsets(self, request: Request) -> Response:
        """Removes all."""
        return Reply(await run_in_threadpool(positions.reset_offsets, self.requests, part(request)))

    async def logs(self, request: Request) -> Response:
        """What happened to a connector on this worker (Barnabas's own): ?lines=200, ?after= the `next` of before."""
        name = part(request)
        self.requests.deployed(name)
        after = request.query_params.get("after", "0")
        count = request.query_params.get("lines", "200")
        if not (after.isdigit() and count.isdigit()):
            raise HttpError(HTTPStatus.BAD_REQUEST, "lines and after must be numbers")
        return Reply(self.journal.page(name, int(count[:5]), int(after[:18])))

    # --- plug-ins and loggers -------------------------------------------------------------------------

    async def plugins(self, request: Request) -> Response:
        """The connectors; with ?connectorsOnly=false transforms, converters and predicates as well."""
        rows = [{"class": row.class_name, "type": row.kind, "version": row.version} for row in plugins()]
        if request.query_params.get("connectorsOnly", "true").lower() == "false":
            rows += other_plugins()
        return Reply(sorted(rows, key=lambda row: (row["type"], row["class"])))

    async def plugin_config(self, request: Request) -> Response:
        """The options of a plug-in."""
        name = part(request, "plugin")
        try:
            return Reply(await run_in_threadpool(definitions_of, name))
        except OptionError as error:
            raise HttpError(HTTPStatus.NOT_FOUND, f"Unknown plugin {name}. {error}") from error

    async def validate(self, request: Request) -> Response:
        """ConfigInfos."""
        config = texts(await body_of(request), "the body")
        return Reply(await run_in_threadpool(self.requests.validate, part(request, "plugin"), config))

    async def loggers(self, request: Request) -> Response:
        """Those with a level of their own."""
        return Reply(loggers.all_loggers())

    async def logger(self, request: Request) -> Response:
        """One logger."""
        return Reply(loggers.one_logger(part(request, "logger")))

    async def set_logger(self, request: Request) -> Response:
        """Sets a level on this worker, or with ?scope=cluster on all."""
        name, level = part(request, "logger"), loggers.level_of(await body_of(request))
        if request.query_params.get("scope", "worker").lower() == "cluster":
            await run_in_threadpool(self.requests.set_cluster_level, name, level)
            return Response(status_code=HTTPStatus.NO_CONTENT)
        return Reply(loggers.set_level(name, level))


def _task(request: Request) -> int:
    text = part(request, "task")
    if not text.isdigit() or len(text) > 9:
        raise HttpError(HTTPStatus.NOT_FOUND, f"{text!r} is not the number of a task")
    return int(text)


def _require_name(name: str, config: Mapping[str, str | None]) -> None:
    inside = config.get("name")
    if inside is not None and inside != name:
        raise HttpError(
            HTTPStatus.BAD_REQUEST,
            f"Connector name configuration ({inside}) doesn't match connector name in the URL ({name})",
        )
