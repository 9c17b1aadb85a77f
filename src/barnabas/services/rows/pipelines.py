"""The server of pipelines as a service."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.services.option import ServiceOption
from barnabas.services.row import Row, ServiceContext
from barnabas.terminal.errors import UsageError
from barnabas.terminal.files import read_text

if TYPE_CHECKING:
    from barnabas.http.server import HttpServer

OPTIONS: Final = {
    "files": ServiceOption("FILE.yaml", "Pipelines to add.", repeats=True, is_argument=True),
    "data": ServiceOption(
        "DIR",
        "Folder of the pipelines' files, states and checkpoints.",
        default=Path("data/pipelines"),
        names=("--data", "--dir"),
        in_start=True,
    ),
    "code": ServiceOption(
        "DIR",
        "Folder of the Python modules that process steps may name. Default: pipelines run no code of their own.",
        str,
        in_start=True,
    ),
    "checkpoints": ServiceOption(
        "DIR|URL",
        "Checkpoints of all pipelines, where Spark reaches it (hdfs://, s3a://). Default: below the folder.",
        str,
        in_start=True,
    ),
    "master": ServiceOption(
        "URL", "The Spark cluster, e.g. spark://host:7077. Default: local[*].", str, in_start=True
    ),
    "conf": ServiceOption(
        "NAME=VALUE", "A setting of Spark; may be repeated.", str, repeats=True, in_start=True
    ),
}


def spark_settings(pairs: list[str] | None, option: str = "--conf") -> dict[str, str]:
    """The settings of `--conf NAME=VALUE`. option: what it is called. Raises UsageError."""
    for pair in pairs or []:
        if not pair.startswith("spark.") or "=" not in pair:
            raise UsageError(f"{option} {pair!r} is not of the form spark.name=value")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs or [])}


def make(context: ServiceContext) -> HttpServer:
    """A server that is not started yet. Raises UsageError, CliError."""
    values = context.values
    texts = [read_text(file) for file in values["files"] or ()]
    settings = spark_settings(values["conf"])
    from barnabas.pipelines.serving.serve import ServerOptions, make_server

    options = ServerOptions(
        values["data"].expanduser(),
        context.client,
        values["checkpoints"],
        values["master"],
        settings,
        texts,
        None if values["code"] is None else Path(values["code"]).expanduser(),
    )
    return make_server(options, context.http)


def check(values: Mapping[str, Any], prefix: str) -> None:
    """See Row."""
    spark_settings(values["conf"], f"{prefix}conf")


def ready(context: ServiceContext, health: Mapping[str, Any]) -> str:
    """See Row."""
    return f"{health['pipelines']} pipelines, folder {context.values['data'].expanduser().absolute()}"


PIPELINES: Final = Row(
    name="pipelines",
    port=8084,
    who="the server of pipelines",
    about="Run pipelines on Spark, and continue those that an earlier server in the folder ran.",
    examples=(
        "barnabas pipelines serve",
        "barnabas pipelines serve --data /var/lib/barnabas/pipelines --master spark://host:7077 access.yaml",
    ),
    make=make,
    ready=ready,
    check=check,
    options=OPTIONS,
    command="serve",
    extra="pipelines",
    modules=("starlette", "uvicorn", "pyspark", "pyarrow"),
    body_mb=1,
    timeout_s=600.0,
    requests=200,
)
"""The largest body is a pipeline file. A preview may start a Spark job, which takes its time."""
