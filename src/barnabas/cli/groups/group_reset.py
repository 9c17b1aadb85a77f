"""`barnabas group reset, export, import`: move a group's offsets, after showing what would move."""

from __future__ import annotations

import json as json_module
import time
from typing import Annotated

import typer

from barnabas.admin import Admin, TopicPartition
from barnabas.cli.admin import Key, clamp, committed_of, keys_of, resolve_all
from barnabas.cli.groups.group import app
from barnabas.cli.groups.share import alter_shares, share_offsets_of
from barnabas.terminal.administering import administer, explain_error, saying
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.files import read_text
from barnabas.terminal.offsets import Clock, parse_place
from barnabas.terminal.options import AsJson, AsJsonAlready, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, print_json, print_table, summarize
from barnabas.terminal.runner import example
from barnabas.wire.errors import ErrorCode

Execute = Annotated[bool, typer.Option("--execute", help="Do it; without this, only show it.")]


@app.command(
    epilog=example(
        "barnabas group reset billing --to beginning",
        "barnabas group reset billing --to @2024-01-01T10:00 --topic orders --execute",
        "barnabas group reset billing --shift -100 --execute",
    )
)
def reset(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="beginning, end, an offset, -N (before the end) or @TIME, as in `consume -o`.",
            show_default=False,
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option("--shift", metavar="N", help="Forward by N, or back when negative.", show_default=False),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--topic",
            metavar="TOPIC[:0,1]",
            help="Only this topic; may be repeated. Default: all in which the group has offsets.",
            show_default=False,
        ),
    ] = None,
    execute: Execute = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Set a group's offsets; shows what would change unless --execute is given."""
    if (to is None) == (shift is None):
        raise UsageError("give either --to WHERE or --shift N")
    place = None if to is None else parse_place(to, Clock(time.time_ns() // 1_000_000))
    if to is not None and place is None:
        raise UsageError(f"--to {to!r} is not a place; use beginning, end, 500, -10, @2024-01-01 or @-1h")
    with administer(bootstrap, properties, verbose) as admin:
        shared = share_offsets_of(admin, group)
        current = committed_of(admin, group) if shared is None else shared
        keys = keys_of(admin, topic or [], current)
        if not keys:
            raise CliError(f"{group} has no offsets; name topics with --topic to give it some")
        if place is not None:
            wanted = resolve_all(admin, place, keys, current)
        else:
            missing = [key for key in keys if key not in current]
            if missing:
                raise CliError(
                    f"{group} has no offset in {missing[0][0]} [{missing[0][1]}] that could be shifted"
                )
            wanted = clamp(admin, {key: current[key] + (shift or 0) for key in keys})
        if execute:
            apply(admin, group, wanted, is_share=shared is not None)
    return show(group, wanted, current, execute, json)


def apply(admin: Admin, group: str, wanted: dict[Key, int], *, is_share: bool) -> None:
    """Set offsets of a group, or where a share group begins. Raises CliError."""
    if is_share:
        alter_shares(admin, group, wanted)
        return
    offsets = {TopicPartition(*key): offset for key, offset in wanted.items()}
    with saying(f"{group}: cannot set its offsets (it must have no members)"):
        results = admin.groups.alter_offsets(group, offsets)
    for part, error in results.failed.items():
        if getattr(error, "code", 0) == ErrorCode.UNKNOWN_MEMBER_ID:
            raise CliError(
                f"{group}: cannot set its offsets (it must have no members): {explain_error(error)}"
            )
        raise CliError(f"{part.topic} [{part.partition}]: {explain_error(error)}")


def show(group: str, wanted: dict[Key, int], current: dict[Key, int], executed: bool, json: bool) -> int:
    """Say what was or would be changed; the exit code."""
    rows = [
        {"topic": key[0], "partition": key[1], "before": current.get(key), "after": wanted[key]}
        for key in sorted(wanted)
    ]
    if json:
        print_json({"group": group, "executed": executed, "offsets": rows})
        return EXIT_OK
    print_table(("TOPIC", "PARTITION", "BEFORE", "AFTER"), [list(row.values()) for row in rows])
    summarize(
        f"{group}: {count_of(len(rows), 'offset')} set"
        if executed
        else "nothing was changed; --execute does it"
    )
    return EXIT_OK


@app.command("export", epilog=example("barnabas group export billing > billing.json"))
def export_offsets(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", show_default=False)],
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJsonAlready = False,
) -> int:
    """Write the offsets of groups to standard output, one JSON object per line, for `group import`."""
    with administer(bootstrap, properties, verbose) as admin:
        for group in dict.fromkeys(groups):
            shared = share_offsets_of(admin, group)
            offsets = committed_of(admin, group) if shared is None else shared
            for key in sorted(offsets):
                row = {"group": group, "topic": key[0], "partition": key[1], "offset": offsets[key]}
                print(json_module.dumps(row, ensure_ascii=False))
    return EXIT_OK


@app.command(
    "import", epilog=example("barnabas group import billing.json --execute", "... | barnabas group import -")
)
def import_offsets(
    file: Annotated[str, typer.Argument(metavar="FILE", help="- for standard input.", show_default=False)],
    group: Annotated[
        str | None,
        typer.Option("-g", "--group", metavar="GROUP", help="Into this group instead.", show_default=False),
    ] = None,
    execute: Execute = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Set offsets that `group export` wrote; shows what would change unless --execute is given."""
    try:
        rows = [json_module.loads(line) for line in read_text(file).splitlines() if line.strip()]
        wanted: dict[str, dict[Key, int]] = {}
        for row in rows:
            name = group or str(row["group"])
            wanted.setdefault(name, {})[str(row["topic"]), int(row["partition"])] = int(row["offset"])
    except (ValueError, KeyError, TypeError) as error:
        raise CliError(f"{file} is not what `barnabas group export` writes: {error}") from None
    with administer(bootstrap, properties, verbose) as admin:
        for name, offsets in wanted.items():
            shared = share_offsets_of(admin, name)
            current = committed_of(admin, name) if shared is None else shared
            clamped = clamp(admin, offsets)
            if execute:
                apply(admin, name, clamped, is_share=shared is not None)
            show(name, clamped, current, execute, json)
    return EXIT_OK
