"""`barnabas debug`: collects what is needed to find a fault without access to the machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from barnabas.local.brokers import brokers_here
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.options import AsJson, Bootstrap, Properties
from barnabas.terminal.output import print_json
from barnabas.terminal.runner import example, new_app, say_error

app = new_app("Collect what is needed to find a fault: a bundle of everything, or the stacks of a broker.")


@app.callback()
def debug() -> None:
    """Collect what is needed to find a fault: a bundle of everything, or the stacks of a broker."""


@app.command(
    epilog=example(
        "barnabas debug bundle",
        "barnabas debug bundle /tmp/fault.zip --data /var/lib/barnabas --log-file /var/log/barnabas.log",
    )
)
def bundle(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.zip", help="Default: barnabas-debug-DATE-TIME.zip here.", show_default=False
        ),
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="A log dir of a broker that does not run; may be repeated. Running ones are found.",
            show_default=False,
        ),
    ] = None,
    log_file: Annotated[
        list[Path] | None,
        typer.Option(
            "--log-file",
            metavar="FILE",
            help="A log to take the end of; may be repeated.",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    json: AsJson = False,
) -> int:
    """Write a zip file with what is needed to find a fault: versions, options, metadata, the end of the log,
    statistics and stacks. It works without a broker too: it takes what is available and says what is missing. It
    contains names of topics, groups, clients and hosts, but no records and no passwords.
    """
    from barnabas.cli.debugging.bundle import Bundle

    target = file or Path(time.strftime("barnabas-debug-%Y%m%d-%H%M%S.zip"))
    collected = Bundle()
    collected.collect(bootstrap, properties, data or [], log_file or [])
    try:
        size_bytes = collected.write(target)
    except OSError as error:
        raise CliError(f"cannot write {target}: {error.strerror}") from None
    if json:
        print_json(
            {
                "file": str(target),
                "bytes": size_bytes,
                "holds": sorted(collected.parts),
                "missing": collected.missing,
            }
        )
        return EXIT_OK
    print(f"{target}: {len(collected.parts)} files, {size_bytes:,} B")
    for what in collected.missing:
        print(f"missing: {what}")
    return EXIT_OK


@app.command(epilog=example("barnabas debug stacks", "barnabas debug stacks --node 2"))
def stacks(
    node: Annotated[
        str | None, typer.Option("--node", metavar="ID", help="Only this broker.", show_default=False)
    ] = None,
    json: AsJson = False,
) -> int:
    """Show what all threads and tasks of your brokers on this machine are doing. `kill -QUIT PID` asks for the same."""
    from barnabas.local.process_facts import stacks_of

    brokers = [broker for broker in brokers_here() if node in (None, broker.node_id)]
    if not brokers:
        raise CliError("no broker of yours runs on this machine")
    rows = []
    failed = False
    for broker in brokers:
        try:
            rows.append({"node_id": broker.node_id, "pid": broker.pid, "stacks": stacks_of(broker.pid)})
        except CliError as error:
            say_error("barnabas debug stacks", str(error))
            failed = True
    if json:
        print_json(rows)
    else:
        print("\n".join(str(row["stacks"]) for row in rows), end="")
    return EXIT_FAILED if failed else EXIT_OK
