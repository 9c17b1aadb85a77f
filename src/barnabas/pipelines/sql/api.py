"""ksqlDB's HTTP API: statements, queries that stream their rows, and what the server says of itself.

POST /ksql             {"ksql": "CREATE ...; SHOW ...;", "streamsProperties": {}}
POST /query            {"ksql": "SELECT ...;", "streamsProperties": {}}     an array of objects, a row at a time
POST /query-stream     {"sql": "SELECT ...;", "properties": {}}             a line of JSON for each row
POST /close-query      {"queryId": ...}
POST /inserts-stream   a line {"target": "S"}, then a line of JSON for each row, which may come as they like
GET  /ws/query?request={"ksql": "SELECT ...;"}      a WebSocket: a message with the columns, then one for each row
GET  /info  /healthcheck  /clusterStatus  /status/{type}/{entity}/{action}  /is_valid_property/{name}
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from typing import Any, Final

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

import barnabas
from barnabas.http.bodies import object_of
from barnabas.http.errors import HttpError
from barnabas.http.streaming import DuplexResponse
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.catalog import Column
from barnabas.pipelines.fronts.sql.errors import TOO_DEEP, SqlError
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.serving.lookups import BadLookup, Lookups
from barnabas.pipelines.sql import answers
from barnabas.pipelines.sql.engine import PROPERTIES, Engine, Session
from barnabas.pipelines.sql.pulling import Result, pull
from barnabas.pipelines.sql.pushing import Push, printed
from barnabas.pipelines.sql.streaming import (
    acknowledged,
    as_messages,
    in_array,
    lines_of,
    refuse,
    request_in,
    send_all,
    target_of,
    with_beats,
)
from barnabas.pipelines.views.lookup import NothingYet, TooSlow
from barnabas.pipelines.views.store import ViewError

DELIMITED: Final = "application/vnd.ksqlapi.delimited.v1"
JSON_V1: Final = "application/vnd.ksql.v1+json"
BODY_BYTES: Final = 1 << 20
READ_S: Final = 60.0
"""How long a client may take to read an acknowledgement."""
BEAT: Final = "\n"
"""An empty line between two rows: clients wait for a few seconds only, and see by it that the server is there."""
TRIES: Final = 100
TRY_S: Final = 0.1


class SqlApi:
    """The handlers of all paths, for one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.lookups = Lookups(engine.manager)

    def routes(self) -> list[BaseRoute]:
        """What the service adds to that of the pipelines."""
        return [
            Route("/ksql", self.ksql, methods=["POST"]),
            Route("/query", self.query, methods=["POST"]),
            Route("/query-stream", self.query_stream, methods=["POST"]),
            Route("/close-query", self.close_query, methods=["POST"]),
            Route("/inserts-stream", self.inserts, methods=["POST"]),
            WebSocketRoute("/ws/query", self.socket),
            Route("/info", self.info),
            Route("/healthcheck", self.healthcheck),
            Route("/clusterStatus", self.cluster_status),
            Route("/status/{kind}/{entity}/{action}", self.status),
            Route("/is_valid_property/{name}", self.is_valid_property),
        ]

    # --- statements --------------------------------------------------------------------------------

    async def ksql(self, request: Request) -> Response:
        """Carries out statements; those before a mistake stay done, and are in the answer's entities."""
        body = await _body(request)
        text = str(body.get("ksql", ""))
        return await run_in_threadpool(self._ksql, text, _session(body))

    def _ksql(self, text: str, session: Session) -> Response:
        answers_so_far: list[answers.Answer] = []
        try:
            for answer in self.engine.execute(text, session):
                answers_so_far.append(answer)
        except SqlError as error:
            return JSONResponse(
                answers.failure(error.shown(text), text, answers_so_far), 400, media_type=JSON_V1
            )
        return JSONResponse(answers_so_far, media_type=JSON_V1)

    # --- queries -----------------------------------------------------------------------------------

    async def query(self, request: Request) -> Response:
        """A query, or PRINT, as an array of objects that grows."""
        body = await _body(request)
        text = str(body.get("ksql", body.get("sql", "")))
        opened = await run_in_threadpool(self._open, text, _session(body))
        if isinstance(opened, Response):
            return opened
        if isinstance(opened, s.Print):
            return self._print(request, opened)
        return self._streamed(request, _as_array(opened), "application/json", opened.query_id, BEAT)

    async def query_stream(self, request: Request) -> Response:
        """A query as lines: a header, then an array for each row."""
        body = await _body(request)
        text = str(body.get("sql", body.get("ksql", "")))
        opened = await run_in_threadpool(self._open, text, _session(body))
        if isinstance(opened, Response):
            return opened
        if isinstance(opened, s.Print):
            return self._print(request, opened)
        accepts = request.headers.get("accept", "")
        if JSON_V1 in accepts:
            return self._streamed(request, _as_array(opened), JSON_V1, opened.query_id, BEAT)
        if wants_array(accepts):
            return self._streamed(request, _as_list(opened), "application/json", opened.query_id)
        return self._streamed(request, _as_lines(opened), DELIMITED, opened.query_id)

    def _open(self, text: str, session: Session) -> Result | s.Print | Response:
        try:
            statements = list(read_statements(text, session.variables, self.engine.catalog.types))
            if len(statements) != 1 or not isinstance(statements[0], s.Query | s.Print):
                raise SqlError("one SELECT or PRINT is expected; other statements go to /ksql")
            statement = statements[0]
            if isinstance(statement, s.Print):
                return statement
            return self.opened(statement.select, session)
        except RecursionError:
            return JSONResponse(answers.failure(TOO_DEEP, text), 400, media_type=JSON_V1)
        except (SqlError, BadLookup, KeyError) as error:
            shown = error.shown(text) if isinstance(error, SqlError) else str(error.args[0])
            return JSONResponse(answers.failure(shown, text), 400, media_type=JSON_V1)
        except (NothingYet, TooSlow, ViewError) as error:
            return JSONResponse(answers.failure(str(error), text, code=50300), 503, media_type=JSON_V1)

    def opened(self, select: s.Select, session: Session) -> Result:
        """A query that has begun: a push query with EMIT, and for a stream without it, as in 2018. Raises SqlError."""
        relation = self.engine.catalog.find(select.source.name, select.source.spot)
        if select.emit or relation.kind == "STREAM" or select.joins:
            push = Push(self.engine, select, session.start)
            push.start()
            self.engine.following[push.id] = push
            return Result(push.columns, push.rows(), push.id)
        answer = pull(self.engine.catalog, self.lookups, select)
        rows = iter(answer.rows)
        first = next(rows, None)  # so that a mistake is an answer of its own
        return Result(answer.columns, rows if first is None else _with_first(first, rows), answer.query_id)

    def _print(self, request: Request, statement: s.Print) -> Response:
        closed = threading.Event()

        def lines() -> Iterator[str]:
            try:
                for line in printed(self.engine, statement, closed):
                    yield line + "\n"
            except SqlError as error:
                yield f"{error.message}\n"

        return _response(request, lines(), "text/plain", closed.set)

    def _streamed(
        self, request: Request, parts: Iterator[str], media_type: str, query_id: str, beat: str = ""
    ) -> Response:
        return _response(request, parts, media_type, self._closing(query_id), beat)

    def _closing(self, query_id: str, parts: Iterator[str] | None = None) -> Callable[[], None]:
        """A function that ends a query, and the making of its parts; it may be called several times."""
        push = self.engine.following.get(query_id)

        def close() -> None:
            self.engine.following.pop(query_id, None)
            if push is not None:
                push.close()
            if parts is not None:
                threading.Thread(target=_ended, args=(parts,), name="query ends").start()

        return close

    async def close_query(self, request: Request) -> Response:
        """Ends a push query."""
        body = await _body(request)
        push = self.engine.following.get(str(body.get("queryId")))
        if push is None:
            text = f"there is no query {body.get('queryId')}: it may have ended"
            return JSONResponse(answers.failure(text, ""), 400, media_type=JSON_V1)
        push.close()
        return Response(status_code=200)

    async def inserts(self, request: Request) -> Response:
        """Rows, a line each; an acknowledgement for each as soon as it is written."""
        lines = lines_of(request)
        try:
            relation = target_of(self.engine, await anext(lines, b""))
        except SqlError as error:
            return JSONResponse(answers.failure(error.message, ""), 400, media_type=JSON_V1)
        acknowledgements = acknowledged(self.engine, relation, lines)
        if wants_array(request.headers.get("accept", "")):
            return DuplexResponse(in_array(acknowledgements), "application/json", READ_S)
        return DuplexResponse(acknowledgements, DELIMITED, READ_S)

    async def socket(self, socket: WebSocket) -> None:
        """A query, or PRINT, as messages: the columns, then each row."""
        await socket.accept()
        try:
            body = request_in(socket)
        except SqlError as error:
            await refuse(socket, answers.failure(error.message, ""))
            return
        text = str(body.get("ksql") or body.get("sql") or "")
        opened = await run_in_threadpool(self._open, text, _session(body))
        if isinstance(opened, Response):
            await refuse(socket, json.loads(bytes(opened.body)))
        elif isinstance(opened, s.Print):
            closed = threading.Event()
            await send_all(socket, printed(self.engine, opened, closed), closed.set)
        else:
            parts = as_messages(opened.columns, opened.rows)
            await send_all(socket, parts, self._closing(opened.query_id, parts))

    # --- the server --------------------------------------------------------------------------------

    async def info(self, request: Request) -> Response:
        """Version and names."""
        return JSONResponse(
            {
                "KsqlServerInfo": {
                    "version": barnabas.__version__,
                    "kafkaClusterId": await run_in_threadpool(self._cluster_id),
                    "ksqlServiceId": "default_",
                    "serverStatus": "RUNNING",
                }
            },
            media_type=JSON_V1,
        )

    def _cluster_id(self) -> str:
        with self.engine.admin() as admin:
            return admin.cluster.describe().id or ""

    async def healthcheck(self, request: Request) -> Response:
        """Whether the server can work; like ksqlDB it answers with status 200 if not. /health and /ready do otherwise."""
        try:
            await run_in_threadpool(self._cluster_id)
            kafka = True
        except Exception:
            kafka = False
        details = {
            "metastore": {"isHealthy": True},
            "kafka": {"isHealthy": kafka},
            "commandRunner": {"isHealthy": self.engine.manager.trouble is None},
        }
        healthy = all(detail["isHealthy"] for detail in details.values())
        return JSONResponse(
            {"isHealthy": healthy, "details": details, "serverState": "READY"}, media_type=JSON_V1
        )

    async def cluster_status(self, request: Request) -> Response:
        """This server alone."""
        here = request.url.netloc
        row = {
            "hostAlive": True,
            "lastStatusUpdateMs": int(time.time() * 1000),
            "activeStandbyPerQuery": {},
            "hostStoreLags": {"stateStoreLags": {}, "updateTimeMs": 0},
        }
        return JSONResponse({"clusterStatus": {here: row}}, media_type=JSON_V1)

    async def status(self, request: Request) -> Response:
        """A statement has been carried out when it is answered, so all are done."""
        return JSONResponse({"status": "SUCCESS", "message": "done", "queryId": None}, media_type=JSON_V1)

    async def is_valid_property(self, request: Request) -> Response:
        """Whether SET knows a property."""
        name = request.path_params["name"]
        if name in PROPERTIES or name.startswith("ksql."):
            return JSONResponse(True, media_type=JSON_V1)
        return JSONResponse(
            answers.failure(
                f"Not recognizable as ksql, streams, consumer, or producer property: '{name}'", ""
            ),
            400,
            media_type=JSON_V1,
        )


def wants_array(accepts: str) -> bool:
    """Whether a client asks for one array instead of lines."""
    return "application/json" in accepts and DELIMITED not in accepts


def _with_first(first: list[Any], rest: Iterator[list[Any]]) -> Iterator[list[Any]]:
    yield first
    yield from rest


def _response(
    request: Request, parts: Iterator[str], media_type: str, close: Callable[[], None], beat: str = ""
) -> Response:
    """An answer whose parts are made in threads. close: ends the making, also when the client goes while none comes. beat:
    sent every second while no part comes."""

    async def watch() -> None:
        # The body has been read: what comes next is that the client has gone.
        while (await request.receive())["type"] != "http.disconnect":
            pass
        close()

    async def body() -> AsyncIterator[str]:
        watching = asyncio.create_task(watch())
        try:
            async for part in with_beats(parts, beat) if beat else iterate_in_threadpool(parts):
                yield part
        finally:
            watching.cancel()
            close()
            threading.Thread(target=_ended, args=(parts,), name="query ends").start()

    return StreamingResponse(body(), media_type=media_type)


def _ended(parts: Iterator[str]) -> None:
    """Ends a generator that another thread may still be in: it is waiting for a row, and sees within a moment that nobody
    wants it."""
    assert isinstance(parts, Generator)
    for _ in range(TRIES):
        try:
            parts.close()
            return
        except ValueError:  # it is running
            time.sleep(TRY_S)


async def _body(request: Request) -> dict[str, Any]:
    """The body as a JSON object. Raises HttpError."""
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > BODY_BYTES:
            raise HttpError(413, f"the body has more than {BODY_BYTES:,} bytes")
    return object_of(bytes(raw))


def _session(body: Mapping[str, Any]) -> Session:
    """What a request says besides its statements."""
    properties = body.get("streamsProperties", body.get("properties"))
    return Session(_texts(properties), _texts(body.get("sessionVariables")))


def _texts(document: Any) -> dict[str, str]:
    return {str(n): str(v) for n, v in document.items()} if isinstance(document, dict) else {}


def _schema(columns: tuple[Column, ...]) -> str:
    return ", ".join(
        f"`{c.name}` {answers.type_text(c.type)}" + (" KEY" if c.is_key else "") for c in columns
    )


def _as_array(result: Result) -> Iterator[str]:
    """An array of objects, each on a line of its own: clients read it line by line."""
    header = {"header": {"queryId": result.query_id, "schema": _schema(result.columns)}}
    yield "[" + json.dumps(header) + ",\n"
    try:
        for row in result.rows:
            yield json.dumps({"row": {"columns": row}}, ensure_ascii=False) + ",\n"
        yield '{"finalMessage":"Query Completed"}]\n'
    except SqlError as error:
        yield json.dumps({"errorMessage": {"message": error.message}}) + "]\n"


def _as_list(result: Result) -> Iterator[str]:
    """The lines of `_as_lines`, as one array."""
    lines = _as_lines(result)
    yield "[" + next(lines).rstrip("\n")
    for line in lines:
        yield ",\n" + line.rstrip("\n")
    yield "]\n"


def _as_lines(result: Result) -> Iterator[str]:
    header = {
        "queryId": result.query_id,
        "columnNames": [column.name for column in result.columns],
        "columnTypes": [answers.type_text(column.type) for column in result.columns],
    }
    yield json.dumps(header) + "\n"
    try:
        for row in result.rows:
            yield json.dumps(row, ensure_ascii=False) + "\n"
    except SqlError as error:
        yield json.dumps(answers.failure(error.message, "", code=50000)) + "\n"
