"""The SQL server: a server of pipelines, whose pipelines are the queries of statements."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from barnabas.http.server import HttpOptions, HttpServer, Service
from barnabas.pipelines.serving.api import make_service
from barnabas.pipelines.serving.manager import Manager
from barnabas.pipelines.serving.serve import ServerOptions, make_server
from barnabas.pipelines.sql.api import SqlApi
from barnabas.pipelines.sql.engine import Engine

log = logging.getLogger(__name__)

STREAMING: Final = ("/query", "/query-stream")


def make_sql_server(
    options: ServerOptions,
    http: HttpOptions,
    statements: str = "",
    registry: Callable[[], str | None] = lambda: None,
) -> HttpServer:
    """A server that is not started yet. statements: run at the first start. registry: the address of the schema registry."""

    def make(manager: Manager) -> Service:
        engine = Engine(manager, options.client, registry)
        engine.open()
        api = SqlApi(engine)
        base = make_service(manager)
        return replace(
            base,
            name="sql",
            routes=[*api.routes(), *base.routes],
            is_streaming=lambda scope: scope["path"] in STREAMING,
            media_type="application/json or application/vnd.ksql.v1+json",
        )

    return make_server(options, http, make)
