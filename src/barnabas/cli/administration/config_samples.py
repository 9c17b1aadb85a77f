"""`barnabas config samples`: the property files that books work with, and a folder like that of an unpacked Kafka."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.cli.administration.config import app
from barnabas.kafka_tools.servers.samples import Place, samples
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json, summarize
from barnabas.terminal.runner import example

PORT_MAX: Final = 65_535
BROKERS: Final = 3
TOOLS: Final = ("kafka-", "connect-", "zookeeper-", "zk", "schema-registry-", "ksql")
"""What the names of the commands begin with that books type below bin/."""
NEXT: Final = """\
Next, each in a terminal of its own:
  {bin}zookeeper-server-start {folder}/zookeeper.properties
  {bin}kafka-server-start {folder}/server.properties"""


@app.command(
    "samples",
    epilog=example("barnabas config samples config", "barnabas config samples --home kafka"),
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
    home: Annotated[
        bool,
        typer.Option("--home", help="Make DIR like the folder of an unpacked Kafka: DIR/config and DIR/bin."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there already.")] = False,
    json: AsJson = False,
) -> int:
    """Write server.properties, zookeeper.properties and the other files that books type below config/."""
    if not 1 <= port <= PORT_MAX - BROKERS or not 1 <= zookeeper_port <= PORT_MAX:
        raise UsageError(f"--port {port} and --zookeeper-port {zookeeper_port} are not both ports")
    config = folder / "config" if home else folder
    links = dict(commands(folder / "bin")) if home else {}
    place = Place(port, zookeeper_port, str(data.expanduser().absolute()))
    files = {config / name: text for name, text in samples(place, str(config))}
    there = [str(path) for path in files if path.exists()]
    there += [str(path) for path, tool in links.items() if path.exists() and not path.samefile(tool)]
    if there and not force:
        raise CliError(
            f"{', '.join(there)}: there already, and nothing was written; --force replaces such files"
        )
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    for path, tool in links.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(tool)
    if json:
        print_json([str(path) for path in (*files, *links)])
        return EXIT_OK
    for path in files:
        print(path)
    if links:
        print(f"{folder / 'bin'}: {len(links)} commands")
    summarize(NEXT.format(folder=config, bin=f"{folder / 'bin'}/" if home else ""))
    return EXIT_OK


def commands(folder: Path) -> Iterator[tuple[Path, Path]]:
    """(path in the folder, what is installed) of each command of Kafka's. Raises CliError."""
    installed = Path(sys.executable).parent
    programs = [path for path in sorted(installed.iterdir()) if path.name.startswith(TOOLS)]
    # PyPI's kafka-python brings a command of its own, which no book means.
    programs = [path for path in programs if path.name != "kafka-python"]
    if not programs:
        raise CliError(
            f"there are no commands such as kafka-topics in {installed}: install Barnabas with pip"
        )
    return ((folder / path.name, path) for path in programs)
