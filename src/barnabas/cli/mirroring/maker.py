"""`barnabas mirror maker`: MirrorMaker 2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.mirroring.mirror import app
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
    from barnabas.kafka_tools.connect_mirror import run

    return run(file, clusters or ())
