"""`barnabas mirror maker`: MirrorMaker 2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.mirroring.mirror import app
from barnabas.client.errors import ClientError
from barnabas.terminal.errors import EXIT_OK, CliError
from barnabas.terminal.output import print_json, print_table, summarize
from barnabas.terminal.runner import example


@app.command(
    "maker",
    epilog=example(
        "barnabas mirror maker mm2.properties", "barnabas mirror maker mm2.properties --clusters west"
    ),
)
def run_maker(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Properties, as connect-mirror-maker reads them.")
    ],
    clusters: Annotated[
        list[str] | None,
        typer.Option(
            "--clusters",
            metavar="ALIAS",
            help="Only copy into this cluster of the file; may be repeated. Default: into all.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Run MirrorMaker 2: copy topics, checkpoints and heartbeats between any clusters, until Ctrl-C."""
    from barnabas.kafka_tools.servers.connect_mirror import run

    return run(file, clusters or ())


def show_lags(file: Path, json: bool) -> int:
    """How far the flows of a file are behind. Raises CliError."""
    from confluent_kafka import KafkaException

    from barnabas.connect.errors import ConnectError
    from barnabas.connect.mirror.flow import message_of
    from barnabas.connect.mirror.lagging import TopicLag, lags
    from barnabas.kafka_tools.servers.connect_mirror import read_file

    rows: list[TopicLag] = []
    where = str(file)
    try:
        for flow in read_file(file).flows():
            where = str(flow)
            rows += lags(flow)
    except (ClientError, ConnectError, KafkaException) as error:
        raise CliError(f"{where}: {message_of(error)}") from None
    if json:
        print_json([row._asdict() for row in rows])
    elif rows:
        print_table(
            ("FLOW", "TOPIC", "COPY", "PARTITIONS", "BEGUN", "LAG", "LAG S"),
            [(*row[:6], None if row.lag_ms is None else round(row.lag_ms / 1000, 1)) for row in rows],
        )
    else:
        summarize("nothing is copied")
    return EXIT_OK
