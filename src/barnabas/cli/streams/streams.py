"""`barnabas streams`: topologies in Python; Spark is imported only to run one."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.pipelines.pipelines import get, views
from barnabas.extras import how_to_install
from barnabas.services.rows.pipelines import spark_settings
from barnabas.terminal.errors import CliError, UsageError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import note, print_json
from barnabas.terminal.runner import example, new_app

app = new_app("Run and describe topologies of Kafka Streams' building blocks in Python.")
Named = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP",
        help="An App, a StreamsBuilder or a Topology, or a function that returns one; also FILE.py:APP.",
        show_default=False,
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Stop when all present records are processed.")]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "-b",
        "--bootstrap",
        envvar="BARNABAS_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="The cluster to talk to; takes precedence over the app's.",
        show_default=False,
    ),
]
AppName = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The app's name. Default: its own, or the module's.",
        show_default=False,
    ),
]
Checkpoints = Annotated[
    str,
    typer.Option(
        "--checkpoints",
        metavar="DIR|URL",
        help="Where progress and state are kept: a directory, or a URL that Spark reaches (hdfs://, s3a://).",
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="The Spark cluster, e.g. spark://host:7077. Default: local[*].",
        show_default=False,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may be repeated.", show_default=False),
]
Listen = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Answer lookups in the app's stores over HTTP, like 127.0.0.1:8084, the port that `streams get` asks.",
        show_default=False,
    ),
]
Watch = Annotated[
    bool,
    typer.Option(
        "-w", "--watch", help="Start again when the code in the module's folder changes, until Ctrl-C."
    ),
]


@app.callback()
def streams() -> None:
    """Run and describe topologies of Kafka Streams' building blocks in Python."""


@app.command(
    epilog=example(
        "barnabas streams run wordcount:app -b localhost:9092",
        "barnabas streams run wordcount:app --watch --listen 127.0.0.1:8084",
    )
)
def run(
    named: Named,
    once: Once = False,
    bootstrap: Bootstrap = None,
    name: AppName = None,
    checkpoints: Checkpoints = "data/checkpoints",
    master: Master = None,
    conf: Conf = None,
    listen: Listen = None,
    watching: Watch = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on standard error.")] = False,
    json: AsJson = False,
) -> int:
    """Run a topology on Spark."""
    if find_spec("pyspark") is None:
        raise CliError(
            f"streams need an extra that is not installed (pyspark); install it with {how_to_install('pipelines')}"
        )
    from barnabas.pipelines.plan.errors import PipelineError
    from barnabas.pipelines.serving.run import run_shown
    from barnabas.streams.errors import StreamsError
    from barnabas.streams.loading import app_of, folder_of

    if watching:
        if once:
            raise UsageError("--watch and --once cannot be combined")
        from barnabas.streams.watching import watch

        command = [word for word in sys.argv[1:] if word not in ("-w", "--watch")]
        return watch(command, folder_of(named), lambda text: None if quiet else note(text))
    try:
        chosen_app = app_of(named)
        chosen_app.name = name or chosen_app.name
        return run_shown(
            chosen_app.spec(),
            once=once,
            as_json=json,
            quiet=quiet,
            bootstrap=bootstrap or chosen_app.bootstrap,
            checkpoint_dir=checkpoints,
            master=master,
            conf=spark_settings(conf),
            listen=listen,
        )
    except (PipelineError, StreamsError) as error:
        raise CliError(str(error)) from None


@app.command(epilog=example("barnabas streams describe wordcount:app --svg wordcount.svg"))
def describe(
    named: Named,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", help="Write a picture instead.", show_default=False),
    ] = None,
    json: AsJson = False,
) -> int:
    """Show a topology as Kafka Streams describes it, or draw it."""
    from barnabas.streams.errors import StreamsError
    from barnabas.streams.loading import app_of

    try:
        topology = app_of(named).topology
    except StreamsError as error:
        raise CliError(str(error)) from None
    if json:
        print_json(topology.as_json())
        return 0
    if svg is None:
        print(topology.describe())
        return 0
    try:
        svg.write_text(topology.svg())
    except OSError as error:
        raise CliError(f"{svg}: {error.strerror}") from None
    print(f"drew {svg}")
    return 0


app.command(
    "stores",
    epilog=example("barnabas streams stores word-count", "barnabas streams stores word-count --json"),
)(views)
app.command(
    "get",
    epilog=example(
        "barnabas streams get word-count/counts be",
        "barnabas streams get word-count/counts --all --json",
        "barnabas streams get word-count/by-day be --window 2026-01-31T12:00:00Z",
    ),
)(get)


@app.command(epilog=example("barnabas streams reset wordcount:app -b localhost:9092"))
def reset(
    named: Named,
    bootstrap: Bootstrap = None,
    name: AppName = None,
    checkpoints: Checkpoints = "data/checkpoints",
    dry: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    json: AsJson = False,
) -> int:
    """Put a stopped app back to its beginning: its offsets go there, its state is put aside. Topics that it has written keep
    their records."""
    from barnabas.kafka_tools.groups import streams_reset
    from barnabas.streams.errors import StreamsError
    from barnabas.streams.loading import app_of
    from barnabas.streams.resetting import put_state_aside

    try:
        chosen_app = app_of(named)
        topics = chosen_app.topology.topics
        id = name or chosen_app.name
        where = bootstrap or chosen_app.bootstrap or "localhost:9092"
        words = ["--application-id", id, "--bootstrap-server", where, "--input-topics", ",".join(topics)]
        with redirect_stdout(sys.stderr if json else sys.stdout):
            code = streams_reset.main([*words, *(["--dry-run"] if dry else [])])
        if code:
            return code
        aside = put_state_aside(checkpoints, id, dry=dry)
    except StreamsError as error:
        raise CliError(str(error)) from None
    if json:
        print_json({"app": id, "dry_run": dry, "put_aside": aside and str(aside)})
    elif aside is None:
        print(f"{id} has no state in {checkpoints}")
    else:
        print(f"The state {'would be' if dry else 'is'} put aside as {aside}")
    return 0
