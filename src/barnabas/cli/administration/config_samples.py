"""`barnabas config samples`: the property files that books work with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.cli.administration.config import app
from barnabas.kafka_tools.samples import Place, samples
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json, summarize
from barnabas.terminal.runner import example

PORT_MAX: Final = 65_535
BROKERS: Final = 3
NEXT: Final = """\
Next, each in a terminal of its own:
  zookeeper-server-start {folder}/zookeeper.properties
  kafka-server-start {folder}/server.properties"""


@app.command(
    "samples",
    epilog=example("barnabas config samples config", "barnabas config samples config --port 19092 --force"),
)
def write_samples(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to write to; it may exist.", show_default=False)
    ],
    port: Annotated[
        int,
        typer.Option("--port", metavar="PORT", help="Port of the first broker; others have the next ones."),
    ] = 9092,
    zookeeper_port: Annotated[
        int, typer.Option("--zookeeper-port", metavar="PORT", help="Port of ZooKeeper.")
    ] = 2181,
    data: Annotated[
        Path,
        typer.Option("--data", metavar="DIR", help="Folder in which brokers and ZooKeeper keep their data."),
    ] = Path("/tmp"),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there already.")] = False,
    json: AsJson = False,
) -> int:
    """Write server.properties, zookeeper.properties and the other files that books type below config/."""
    if not 1 <= port <= PORT_MAX - BROKERS or not 1 <= zookeeper_port <= PORT_MAX:
        raise UsageError(f"--port {port} and --zookeeper-port {zookeeper_port} are not both ports")
    place = Place(port, zookeeper_port, str(data.expanduser().absolute()))
    files = {folder / name: text for name, text in samples(place, str(folder))}
    there = [str(path) for path in files if path.exists()]
    if there and not force:
        raise CliError(
            f"{', '.join(there)}: there already, and nothing was written; --force replaces such files"
        )
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    if json:
        print_json([str(path) for path in files])
        return EXIT_OK
    for path in files:
        print(path)
    summarize(NEXT.format(folder=folder))
    return EXIT_OK
