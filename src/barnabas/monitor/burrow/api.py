"""Burrow's HTTP API, version 3, as it answers about clusters, topics and groups. Source: Burrow's wiki, "HTTP Endpoint"."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from barnabas.monitor.burrow.board import Board, GroupStatus, PartitionStatus
from barnabas.monitor.burrow.window import Commit, Status, Window

PREFIX: Final = "/v3/kafka"
HOST: Final = socket.gethostname()


class Cluster(Protocol):
    """What the API needs of a cluster. servers: its brokers. refresh_s: time between looks at it."""

    board: Board

    @property
    def servers(self) -> Sequence[str]: ...

    @property
    def refresh_s(self) -> float: ...


def routes(clusters: Mapping[str, Cluster], now_ms: Callable[[], int]) -> list[BaseRoute]:
    """The requests. clusters: by name."""
    api = _Api(clusters, now_ms)
    paths: dict[str, Callable[[Request], Response]] = {
        "": api.clusters,
        "/{cluster}": api.cluster,
        "/{cluster}/topic": api.topics,
        "/{cluster}/topic/{topic}": api.topic,
        "/{cluster}/topic/{topic}/consumers": api.topic_consumers,
        "/{cluster}/consumer": api.consumers,
        "/{cluster}/consumer/{group}": api.consumer,
        "/{cluster}/consumer/{group}/status": api.status,
        "/{cluster}/consumer/{group}/lag": api.lag,
    }
    api_routes: list[BaseRoute] = [Route("/burrow/admin", _healthy)]
    api_routes += [Route(PREFIX + path, _asynchronous(handler)) for path, handler in paths.items()]
    return api_routes


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("GOOD")


def _asynchronous(handler: Callable[[Request], Response]) -> Any:
    """Handlers only read memory: they run in the loop, not in a thread."""

    async def handle(request: Request) -> Response:
        return handler(request)

    return handle


class _Api:
    """One function for each path."""

    def __init__(self, clusters: Mapping[str, Cluster], now_ms: Callable[[], int]) -> None:
        self._clusters = clusters
        self._now_ms = now_ms

    def _board(self, request: Request) -> Board | None:
        cluster = self._clusters.get(request.path_params["cluster"])
        return None if cluster is None else cluster.board

    def clusters(self, request: Request) -> Response:
        return _answer(request, "cluster list returned", clusters=list(self._clusters))

    def cluster(self, request: Request) -> Response:
        cluster = self._clusters.get(request.path_params["cluster"])
        if cluster is None:
            return _missing(request, "cluster module not found")
        seconds = round(cluster.refresh_s)
        module = {
            "class-name": "kafka",
            "servers": list(cluster.servers),
            "client-profile": {"name": "", "client-id": "", "kafka-version": "", "tls": None, "sasl": None},
            "topic-refresh": seconds,
            "offset-refresh": seconds,
        }
        return _answer(request, "cluster module detail returned", module=module)

    def topics(self, request: Request) -> Response:
        board = self._board(request)
        if board is None:
            return _missing(request, "cluster not found")
        return _answer(request, "topic list returned", topics=list(board.topics()))

    def topic(self, request: Request) -> Response:
        board = self._board(request)
        offsets = None if board is None else board.topics().get(request.path_params["topic"])
        if offsets is None:
            return _missing(request, "cluster or topic not found")
        return _answer(request, "topic offsets returned", offsets=offsets)

    def topic_consumers(self, request: Request) -> Response:
        board, topic = self._board(request), request.path_params["topic"]
        if board is None:
            return _missing(request, "cluster or topic not found")
        names = [group for group, windows in board.groups.items() if any(key[0] == topic for key in windows)]
        return _answer(request, "consumers of topic returned", consumers=names)

    def consumers(self, request: Request) -> Response:
        board = self._board(request)
        if board is None:
            return _missing(request, "cluster not found")
        return _answer(request, "consumer list returned", consumers=list(board.groups))

    def consumer(self, request: Request) -> Response:
        board, group = self._board(request), request.path_params["group"]
        if board is None or group not in board.groups:
            return _missing(request, "cluster or consumer not found")
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, number), window in sorted(board.groups[group].items()):
            rows = topics.setdefault(topic, [])
            rows += [_shown_window(Window(), None) for _ in range(number - len(rows))]
            rows.append(_shown_window(window, board.end((topic, number))))
        return _answer(request, "consumer detail returned", topics=topics)

    def status(self, request: Request) -> Response:
        return self._status(request, all_partitions=False)

    def lag(self, request: Request) -> Response:
        return self._status(request, all_partitions=True)

    def _status(self, request: Request, *, all_partitions: bool) -> Response:
        board, group = self._board(request), request.path_params["group"]
        group_status = None if board is None else board.status(group, self._now_ms())
        code = 404 if group_status is None else 200
        shown = group_status or GroupStatus(group, Status.NOTFOUND, ())
        rows = [row for row in shown.partitions if all_partitions or row.status > Status.OK]
        status = {
            "cluster": request.path_params["cluster"],
            "group": group,
            "status": shown.status.name,
            "complete": 1.0 if group_status is None else shown.complete,
            "partitions": [_shown_partition(row) for row in rows],
            "partition_count": len(shown.partitions),
            "maxlag": None if shown.slowest is None else _shown_partition(shown.slowest),
            "totallag": shown.lag,
        }
        return _answer(request, "consumer status returned", code, status=status)


def _answer(request: Request, message: str, code: int = 200, **values: Any) -> Response:
    where = {"url": request.url.path, "host": HOST}
    return JSONResponse({"error": False, "message": message, **values, "request": where}, code)


def _missing(request: Request, message: str) -> Response:
    where = {"url": request.url.path, "host": HOST}
    return JSONResponse({"error": True, "message": message, "request": where}, 404)


def _shown_commit(commit: Commit | None) -> dict[str, int] | None:
    if commit is None:
        return None
    return {"offset": commit.offset, "timestamp": commit.timestamp_ms, "lag": commit.lag}


def _shown_window(window: Window, end: int | None) -> dict[str, Any]:
    """Burrow's windows have a null for each commit that they lack, at their beginning."""
    missing = (window.commits.maxlen or 0) - len(window.commits)
    return {
        "offsets": [None] * missing + [_shown_commit(commit) for commit in window.commits],
        "owner": window.owner,
        "client_id": window.client,
        "current-lag": window.lag(end),
    }


def _shown_partition(row: PartitionStatus) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "owner": row.owner,
        "client_id": row.client,
        "status": row.status.name,
        "start": _shown_commit(row.start),
        "end": _shown_commit(row.end),
        "current_lag": row.lag,
        "complete": row.complete,
    }
