"""`barnabas log`: what is stored on the brokers' disks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.terminal.administering import administer
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import count_of, print_json, print_table, size_text
from barnabas.terminal.progress import Progress
from barnabas.terminal.runner import example, new_app, say_error

app = new_app("Partitions on the brokers' disks: sizes, moves, what segment files hold.")


@app.command(epilog=example("barnabas log dirs", "barnabas log dirs orders:0,1 --json"))
def dirs(
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC[:0,1]", help="Default: all.", show_default=False),
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Show the size of each partition in each broker's log dirs, and the progress of partitions that are being moved."""
    from barnabas.cli.logs.log_move import partitions_of, placed

    wanted = partitions_of(topics or ())
    with administer(bootstrap, properties) as admin:
        rows = placed(admin, wanted)
    rows.sort(key=lambda row: (-row["bytes"], row["partition"]))
    if json:
        print_json(rows)
        return EXIT_OK
    print_table(
        ("BROKER", "DIR", "PARTITION", "SIZE", "LAG", "MOVING"),
        [
            (
                row["broker"], row["dir"], row["partition"], size_text(row["bytes"]), row["lag"],
                "here" if row["moving"] else None,
            )
            for row in rows
        ],
    )  # fmt: skip
    return EXIT_OK


@app.command(
    epilog=example(
        "barnabas log move orders /mnt/disk2 --wait", "barnabas log move orders:0,3 /mnt/disk2 --json"
    )
)
def move(
    topic: Annotated[str, typer.Argument(metavar="TOPIC[:0,1]", show_default=False)],
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="One of the broker's log.dirs.", show_default=False)
    ],
    broker: Annotated[
        int | None,
        typer.Option(
            "--node", "--broker", metavar="ID", help="On this broker only. Default: all.", show_default=False
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the partitions are moved.")] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Move partitions to another log dir of their broker, while they are served. Naming the dir that they are in
    cancels a move.
    """
    from barnabas.cli.logs.log_move import begin, follow

    with administer(bootstrap, properties) as admin:
        rows = begin(admin, topic, directory, broker)
        if wait:
            follow(admin, rows)
    if json:
        print_json(rows)
    for row in rows:
        if "error" in row:
            say_error("barnabas log move", f"{row['partition']}: {row['error']}")
        elif not json:
            print(f"{row['result']} {row['partition']} (broker {row['broker']}, {row['dir']})")
    return EXIT_FAILED if any("error" in row for row in rows) else EXIT_OK


@app.command(
    epilog=example(
        "barnabas log dump orders-0/00000000000000000000.log --print-data",
        "barnabas log dump orders-0/*.index orders-0/*.timeindex --verify",
    )
)
def dump(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False)],
    deep: Annotated[bool, typer.Option("--deep", help="Print the records of each batch, too.")] = False,
    print_data: Annotated[
        bool,
        typer.Option("-r", "--print-data", "--records", help="Print keys and payloads, too."),
    ] = False,
    payload_only: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Print keys and payloads alone.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare indexes with their logs; print no entries.")
    ] = False,
    sanity: Annotated[
        bool,
        typer.Option("--sanity", help="Check whether a start would rebuild the indexes; print no entries."),
    ] = False,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-bytes", metavar="BYTES", help="Read at most this much of each log.", show_default=False
        ),
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
    json: AsJson = False,
) -> int:
    """Print .log, .index, .timeindex, .txnindex and .snapshot files, of Barnabas or Kafka, as Kafka's tool does."""
    from barnabas.kafka_tools.shared.common import ToolError
    from barnabas.kafka_tools.storage import dump_log

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
            as_json=json,
        )
    except ToolError as error:
        raise CliError(str(error)) from None
    except BrokenPipeError:
        raise  # the reader of the output has stopped reading
    except OSError as error:
        raise CliError(f"cannot read {error.filename}: {error.strerror}") from None


@app.command(
    epilog=example(
        "barnabas log repair /var/lib/barnabas", "barnabas log repair /var/lib/barnabas orders-0 --execute"
    )
)
def repair(
    log_dir: Annotated[
        str, typer.Argument(metavar="DIR", help="A log dir of a broker that is stopped.", show_default=False)
    ],
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC | TOPIC-0", help="Default: all.", show_default=False),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--execute", "--apply", help="Repair them, as the next start would.")
    ] = False,
    remove_damaged: Annotated[
        bool, typer.Option("--remove-damaged", help="Remove the files that were set aside.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Show what is damaged in the segments of a log dir, and repair it. Nothing that may be intact is deleted: it is
    skipped, or set aside in a file whose name ends in `.damaged`.
    """
    import time

    from barnabas.cli.logs import log_repair
    from barnabas.storage.errors import StorageError

    try:
        names = log_repair.partitions_in(log_dir, topics or ())
        rows: list[dict[str, Any]] = []
        with Progress(log_dir, "partition", len(names)) as progress:
            for done, name in enumerate(names):
                progress.update(done)
                rows += log_repair.findings(log_dir, name)
        if apply:
            log_repair.mend(log_dir, names, int(time.time() * 1000))
        if remove_damaged:
            log_repair.remove_set_aside(log_dir, names)
    except StorageError as error:
        raise CliError(str(error)) from None
    except OSError as error:
        raise CliError(f"cannot read {error.filename}: {error.strerror}") from None
    if json:
        print_json(rows)
    elif rows:
        columns = ("partition", "file", "position", "bytes", "result", "reason")
        print_table(
            ("PARTITION", "FILE", "POSITION", "BYTES", "RESULT", "REASON"),
            [tuple(row[column] for column in columns) for row in rows],
        )
    else:
        print(f"nothing is damaged in {count_of(len(names), 'partition')}")
    return EXIT_FAILED if rows and not (apply or remove_damaged) else EXIT_OK
