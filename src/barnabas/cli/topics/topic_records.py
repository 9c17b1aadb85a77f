"""`barnabas topic offsets` and `topic trim`: show where logs begin and end, and delete their beginning."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from barnabas.admin import TopicPartition
from barnabas.cli.admin import bounds_of, keys_of, resolve_all
from barnabas.cli.topics.topic import app
from barnabas.terminal.administering import administer, saying
from barnabas.terminal.errors import EXIT_OK, UsageError
from barnabas.terminal.offsets import Clock, Place, parse_place
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import print_json, print_table, summarize
from barnabas.terminal.runner import example

TopicItems = Annotated[list[str], typer.Argument(metavar="TOPIC[:0,1]", show_default=False)]


def place_of(text: str, option: str) -> Place:
    """A position, as in `consume -o`. Raises UsageError."""
    place = parse_place(text, Clock(time.time_ns() // 1_000_000))
    if place is None:
        raise UsageError(
            f"{option} {text!r} is not a place; use beginning, end, 500, -10, @2024-01-01 or @-1h"
        )
    return place


@app.command(epilog=example("barnabas topic offsets orders", "barnabas topic offsets orders:0 --at @-1h"))
def offsets(
    topics: TopicItems,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="WHERE",
            help="Also show the offset of this position: @TIME, -N ...",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show where each partition's log begins and ends, and the offset at a time."""
    place = None if at is None else place_of(at, "--at")
    with administer(bootstrap, properties, verbose) as admin:
        keys = keys_of(admin, topics, {})
        bounds = bounds_of(admin, keys, {})
        placed = {} if place is None else resolve_all(admin, place, keys, {})
    rows: list[dict[str, Any]] = []
    for key in keys:
        row = {"topic": key[0], "partition": key[1], "start": bounds[key].start, "end": bounds[key].end}
        rows.append(row if place is None else {**row, "at": placed[key]})
    if json:
        print_json(rows)
    else:
        heads = ["TOPIC", "PARTITION", "START", "END", *(["AT"] if place else [])]
        print_table(heads, [list(row.values()) for row in rows])
    return EXIT_OK


@app.command(
    epilog=example(
        "barnabas topic trim orders --before @-7d", "barnabas topic trim orders --before end --execute"
    )
)
def trim(
    topics: TopicItems,
    before: Annotated[
        str,
        typer.Option("--before", metavar="WHERE", help="end, an offset, -N or @TIME.", show_default=False),
    ],
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without this, only show it.")] = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Delete the records before a position; shows what would be deleted unless --execute is given."""
    place = place_of(before, "--before")
    with administer(bootstrap, properties, verbose) as admin:
        keys = keys_of(admin, topics, {})
        bounds = bounds_of(admin, keys, {})
        wanted = resolve_all(admin, place, keys, {})
        if execute:
            results = admin.records.delete({TopicPartition(*key): offset for key, offset in wanted.items()})
            for part in results:
                with saying(f"{part.topic} [{part.partition}]: cannot delete records"):
                    _ = results[part]
    rows: list[dict[str, Any]] = [
        {"topic": key[0], "partition": key[1], "start": bounds[key].start, "new_start": wanted[key],
         "offsets": wanted[key] - bounds[key].start}
        for key in keys
    ]  # fmt: skip
    if json:
        print_json({"executed": execute, "partitions": rows})
        return EXIT_OK
    print_table(("TOPIC", "PARTITION", "START", "NEW START", "OFFSETS"), [list(row.values()) for row in rows])
    if not execute:
        summarize("nothing was deleted; --execute does it")
    return EXIT_OK
