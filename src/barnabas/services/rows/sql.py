"""SQL on streams as a service: ksqlDB's HTTP API over a server of pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.services.option import ServiceOption
from barnabas.services.row import Row, ServiceContext
from barnabas.services.rows.pipelines import OPTIONS as OF_PIPELINES
from barnabas.services.rows.pipelines import check, spark_settings
from barnabas.terminal.errors import CliError
from barnabas.terminal.files import read_text

if TYPE_CHECKING:
    from barnabas.http.server import HttpServer

OPTIONS: Final = {
    "data": ServiceOption(
        "DIR",
        "Folder of the statements, and of the states and checkpoints of their queries.",
        default=Path("data/sql"),
        in_start=True,
    ),
    "queries-file": ServiceOption(
        "FILE.sql",
        "Statements that run when the server starts, if it has not run them before.",
        Path,
        in_start=True,
    ),
    "registry": ServiceOption(
        "URL",
        "The schema registry, for the formats AVRO, PROTOBUF and JSON_SR.",
        str,
        names=("-r", "--registry"),
        env="BARNABAS_REGISTRY",
    ),
    "connect": ServiceOption(
        "URL",
        "A worker of Kafka Connect's API, for CREATE CONNECTOR.",
        str,
        env="BARNABAS_CONNECT",
        in_start=True,
    ),
    "functions": ServiceOption(
        "MODULE|FILE.py",
        "Functions in Python that statements may call, beside those of installed packages; may be repeated.",
        str,
        repeats=True,
        in_start=True,
    ),
    **{word: OF_PIPELINES[word] for word in ("checkpoints", "master", "conf")},
}


def make(context: ServiceContext) -> HttpServer:
    """A server that is not started yet. Raises UsageError, CliError."""
    values = context.values
    statements = "" if values["queries_file"] is None else read_text(values["queries_file"])
    from barnabas.pipelines.plan.errors import PipelineError
    from barnabas.pipelines.serving.serve import ServerOptions
    from barnabas.pipelines.sql.serve import make_sql_server

    options = ServerOptions(
        values["data"].expanduser(),
        context.client,
        values["checkpoints"],
        values["master"],
        spark_settings(values["conf"]),
    )

    def registry() -> str | None:
        neighbour = context.registry()
        return values["registry"] or (None if neighbour is None else neighbour.url)

    try:
        functions, connect = values["functions"] or (), values["connect"]
        return make_sql_server(options, context.http, statements, registry, functions, lambda: connect)
    except PipelineError as error:
        raise CliError(str(error)) from None


def ready(context: ServiceContext, health: Mapping[str, Any]) -> str:
    """See Row."""
    return f"{health['pipelines']} queries, folder {context.values['data'].expanduser().absolute()}"


SQL: Final = Row(
    name="sql",
    port=8088,
    who="the SQL server",
    about="Run statements of SQL on streams, and continue the queries that an earlier server in the folder ran.",
    examples=(
        "barnabas sql start -b localhost:9092",
        "barnabas sql start -b kafka1:9092 --listen 0.0.0.0:8088 --data /var/lib/barnabas/sql --secure DIR",
    ),
    make=make,
    ready=ready,
    check=check,
    options=OPTIONS,
    extra="pipelines",
    modules=("starlette", "uvicorn", "h2", "wsproto", "pyspark", "pyarrow", "sqlglot"),
    body_mb=1,
    timeout_s=600.0,
    requests=200,
)
"""A push query is a request that lasts; the limit of time is for those that do not stream."""
