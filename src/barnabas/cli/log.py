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
    epilog=example(
        "barnabas log dump orders-0/00000000000000000000.log --print-data",
        "barnabas log dump orders-0/*.index orders-0/*.timeindex --verify",
    )
)
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False)],
    deep: Annotated[bool, typer.Option("--deep", help="The records of each batch, too.")] = False,
    print_data: Annotated[
        bool,
        typer.Option("-r", "--print-data", "--records", help="Their keys and payloads, too."),
    ] = False,
    payload_only: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Keys and payloads alone.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare indexes with their logs; print no entries.")
    ] = False,
    sanity: Annotated[
        bool, typer.Option("--sanity", help="Whether a start would rebuild the indexes; print no entries.")
    ] = False,
    max_bytes: Annotated[
        int | None,
        typer.Option("--max-bytes", help="Read at most this much of each log.", show_default=False),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="TOPIC",
            help="Decode records as those of this internal topic. Default: by the folder's name.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Print .log, .index, .timeindex, .txnindex and .snapshot files, ours or Kafka's, as Kafka's tool does."""
    from barnabas.cli.kafka import dump_log
    from barnabas.cli.kafka.common import ToolError

    try:
        return dump_log.dump(
            files,
            deep=deep,
            print_data=print_data or payload_only,
            skip_record_metadata=payload_only,
            verify_only=verify,
            sanity_only=sanity,
            max_bytes=max_bytes,
            topic=topic,
            by_folder=topic is None,
        )
    except ToolError as error:
        raise CliError(str(error)) from None
    except BrokenPipeError:
        raise  # the reader of our output has seen enough
    except OSError as error:
        raise CliError(f"cannot read {error.filename}: {error.strerror}") from None
