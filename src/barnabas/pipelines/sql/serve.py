"""The SQL server: a server of pipelines, whose pipelines are the queries of statements."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from starlette.types import Scope

from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.pipelines.fronts.sql import statements as s
from barnabas.pipelines.fronts.sql.errors import SqlError
from barnabas.pipelines.fronts.sql.grammar import read_statements
from barnabas.pipelines.plan.errors import PipelineError
from barnabas.pipelines.serving.api import make_service
from barnabas.pipelines.serving.manager import Manager
from barnabas.pipelines.serving.serve import ServerOptions, make_server
from barnabas.pipelines.sql.api import SqlApi
from barnabas.pipelines.sql.engine import Engine, Session
from barnabas.pipelines.sql.own_functions import load_functions, register

log = logging.getLogger(__name__)

STREAMING: Final = ("/query", "/query-stream", "/inserts-stream")
TYPED: Final = frozenset({"/ksql", "/query", "/query-stream", "/inserts-stream", "/close-query"})
FROM_BROWSERS: Final = frozenset(
    {
        b"origin",
        b"referer",
        b"cookie",
        b"sec-fetch-site",
        b"sec-fetch-mode",
        b"sec-fetch-dest",
        b"accept-language",
    }
)
SOCKET: Final = "/ws/query"


def make_sql_server(
    options: ServerOptions,
    http: HttpOptions,
    statements: str = "",
    registry: Callable[[], str | None] = lambda: None,
    functions: Sequence[str] = (),
    connect: Callable[[], str | None] = lambda: None,
) -> HttpServer:
    """A server that is not started yet. statements: run at the first start. registry, connect: the addresses of the schema
    registry and of a worker of Connect. functions: modules and files with functions in Python. Raises PipelineError if
    they cannot be used."""
    load_functions(functions)

    engines: list[Engine] = []

    def make(manager: Manager) -> Service:
        engine = Engine(manager, options.client, registry, connect)
        engine.open()
        engines.append(engine)
        api = SqlApi(engine)
        base = make_service(manager)
        return replace(
            base,
            name="sql",
            routes=[*api.routes(), *base.routes],
            is_streaming=lambda scope: scope["path"] in STREAMING,
            http2=True,
            takes_forms=is_typed,
            is_socket=lambda scope: scope["path"] == SOCKET,
            media_type="application/json or application/vnd.ksql.v1+json",
        )

    def opened() -> None:
        if statements and engines[0].is_new:
            run_script(engines[0], statements)

    return make_server(replace(options, opened=opened, with_session=register), http, make)


def is_typed(scope: Scope) -> bool:
    """Whether a request of a form's type is one of the API's that no browser has sent: curl sends that type if it is told
    none, as in ksqlDB's documentation. Browsers say where a form comes from."""
    names = {name for name, _ in scope["headers"]}
    return scope["path"] in TYPED and not names & FROM_BROWSERS


def run_script(engine: Engine, text: str) -> None:
    """Carries out the statements of a file, with SET and DEFINE among them. Raises PipelineError at the first mistake."""
    properties: dict[str, str] = {}
    variables: dict[str, str] = {}
    try:
        for statement in read_statements(text, variables, engine.catalog.types):
            if isinstance(statement, s.SetProperty):
                _put(properties, statement)
            elif isinstance(statement, s.Define):
                _put(variables, statement)
            else:
                answer = engine.one(statement, Session(properties, variables))
                done = answer.get("commandStatus", {}).get("message", "")
                log.info("statement was run", extra={"statement": statement.text, "answer": done})
    except SqlError as error:
        raise PipelineError(f"the file of statements: {error.shown(text)}") from error


def _put(values: dict[str, str], statement: s.SetProperty | s.Define) -> None:
    if statement.value is None:
        values.pop(statement.name, None)
    else:
        values[statement.name] = statement.value
