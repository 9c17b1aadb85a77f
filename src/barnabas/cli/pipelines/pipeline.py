"""`barnabas pipeline`: runs pipelines on Spark; everything that needs PySpark is imported only then."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from barnabas.extras import how_to_install
from barnabas.services.rows.pipelines import spark_settings
from barnabas.terminal.errors import CliError
from barnabas.terminal.options import AsJson
from barnabas.terminal.runner import example, new_app

app = new_app("Run a pipeline on Spark; preview it; replay its dead letters.")


@app.callback()
def pipeline() -> None:
    """Run a pipeline on Spark; preview it; replay its dead letters."""


@app.command(epilog=example("barnabas pipeline run examples/access_log/pipeline.yaml --once"))
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml", show_default=False)],
    once: Annotated[
        bool, typer.Option("--once", help="Stop when all present records are processed.")
    ] = False,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--bootstrap",
            envvar="BARNABAS_BOOTSTRAP",
            metavar="HOST:PORT,...",
            help="The cluster to talk to; takes precedence over the file's.",
            show_default=False,
        ),
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            "--checkpoints",
            metavar="DIR|URL",
            help="Where progress is kept: a directory, or a URL that Spark reaches (hdfs://, s3a://).",
        ),
    ] = "data/checkpoints",
    master: Annotated[
        str | None,
        typer.Option(
            "--master",
            metavar="URL",
            help="The Spark cluster, e.g. spark://host:7077. Default: local[*].",
            show_default=False,
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting of Spark; may be repeated. Takes precedence over the file's.",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on standard error.")] = False,
    json: AsJson = False,
) -> int:
    """Run the pipeline that a file describes."""
    if not file.is_file():
        raise CliError(f"{file}: no such file")
    if find_spec("pyspark") is None:
        raise CliError(
            f"pipelines need an extra that is not installed (pyspark); install it with {how_to_install('pipelines')}"
        )
    from barnabas.pipelines.plan.errors import PipelineError
    from barnabas.pipelines.serving.run import run_file

    try:
        return run_file(
            file,
            once=once,
            bootstrap=bootstrap,
            checkpoint_dir=checkpoints,
            master=master,
            conf=spark_settings(conf),
            as_json=json,
            quiet=quiet,
        )
    except PipelineError as error:
        raise CliError(str(error)) from None
