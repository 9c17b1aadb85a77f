"""`barnabas log`: what lies on the brokers' disks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli.direct import direct
from barnabas.cli.errors import EXIT_OK, CliError
from barnabas.cli.options import AsJson, Bootstrap, Properties
from barnabas.cli.output import print_json, print_table, size_text
from barnabas.cli.runner import example, new_app

app = new_app("Sizes of partitions on disk; what segment files hold.")


@app.command(epilog=example("barnabas log dirs", "barnabas log dirs orders --json"))
def dirs(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", help="Default: all.", show_default=False)
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Show the size of each partition in each broker's log dirs."""
    from barnabas.cli.kafka.log_dirs import broker_row

    rows: list[dict[str, Any]] = []
    with direct(bootstrap, properties) as admin:
        for broker in sorted(admin.nodes()):
            for folder in broker_row(admin, broker, set(topics or ()))["logDirs"]:
                if folder["error"]:
                    raise CliError(f"broker {broker}: {folder['logDir']}: {folder['error']}")
                rows += [
                    {
                        "broker": broker,
                        "dir": folder["logDir"],
                        "partition": part["partition"],
                        "bytes": part["size"],
                        "lag": part["offsetLag"],
                    }
                    for part in folder["partitions"]
                ]
    rows.sort(key=lambda row: (-row["bytes"], row["partition"]))
    if json:
        print_json(rows)
        return EXIT_OK
    print_table(
        ("BROKER", "DIR", "PARTITION", "SIZE", "LAG"),
        [(row["broker"], row["dir"], row["partition"], size_text(row["bytes"]), row["lag"]) for row in rows],
    )
    return EXIT_OK


@app.command(
    epilog=example("barnabas log dump ~/.local/share/barnabas/orders-0/00000000000000000000.log --records")
)
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False)],
    records: Annotated[bool, typer.Option("-r", "--records", help="The records of each batch, too.")] = False,
) -> int:
    """Print the batches of .log files and the entries of .index and .timeindex files."""
    from barnabas.cli.kafka import dump_log
    from barnabas.cli.kafka.common import ToolError

    words = ["--files", ",".join(map(str, files)), *(["--print-data-log"] if records else [])]
    try:
        return dump_log.main(words)
    except ToolError as error:
        raise CliError(str(error)) from None
    except OSError as error:
        raise CliError(f"cannot read {error.filename}: {error.strerror}") from None
