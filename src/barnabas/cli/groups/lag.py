"""`barnabas group lag`: how far groups are behind, in records and in seconds; again and again; by tenant."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import typer

from barnabas.admin import Admin
from barnabas.cli.groups.group import app, state_word
from barnabas.cli.groups.lag_now import looked, seconds_of
from barnabas.monitor.lag.by import By, Counts, readable
from barnabas.monitor.lag.forecast import caught_up_ms
from barnabas.monitor.lag.model import GroupLag, PartitionLag
from barnabas.monitor.lag.reading import LagReader, Look, slowest_first
from barnabas.records.batch import Record
from barnabas.terminal.administering import administer, explain_error, saying
from barnabas.terminal.errors import EXIT_FAILED, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import note, print_json, print_table
from barnabas.terminal.runner import example, say_error, say_missing

LOOKS_KEPT: Final = 30
"""From so many looks --watch estimates when a group has caught up."""
FETCH_BYTES: Final = 4 << 20
HEADS: Final = ("GROUP", "TYPE", "STATE", "LAG", "LAG SECONDS", "BEHIND SECONDS")
COMMAND: Final = "barnabas group lag"


@app.command(
    "lag",
    epilog=example(
        "barnabas group lag", "barnabas group lag billing --watch", "barnabas group lag billing --by tenant"
    ),
)
def lag_of_groups(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GROUP]", show_default=False, help="Default: all consumer groups and share groups."
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Look again and again until Ctrl-C.")] = False,
    interval_s: Annotated[
        float, typer.Option("--interval-s", metavar="SECONDS", min=0.1, help="Time between looks of --watch.")
    ] = 5.0,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="NAME",
            help="Read what is unread, and count it by the header NAME, by `key`, or by `key:TEXT`: the key up to TEXT.",
        ),
    ] = None,
    uncommitted: Annotated[
        bool,
        typer.Option(
            "--uncommitted",
            help="Count records of open and aborted transactions as well, up to the log's end.",
        ),
    ] = False,
    records_max: Annotated[
        int,
        typer.Option("--max-records", metavar="N", min=1, help="Maximum number of records that --by reads."),
    ] = 1_000_000,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show how far groups are behind, in records and in seconds, the slowest first.

    LAG SECONDS: how long the next record has been waiting. BEHIND SECONDS: its distance in time to the newest record.
    """
    if watch and by is not None:
        raise UsageError("--by reads all that is unread; it cannot be used with --watch")
    wanted = list(dict.fromkeys(groups or ())) or None
    with administer(bootstrap, properties, verbose) as admin:
        reader = LagReader(admin.asynchronous, read_committed=not uncommitted)
        if watch:
            return _watch(admin, reader, wanted, interval_s, json)
        look = looked(admin, wanted, reader)
        if by is not None:
            _show_by(admin, look, By.parse(by), not uncommitted, records_max, json)
        elif json:
            print_json([shown_group(group, look.now_ms) for group in slowest_first(look.groups, look.now_ms)])
        else:
            print_table(HEADS, _cells(look))
    for name, error in look.failed.items():
        say_error(COMMAND, f"{name}: {explain_error(error)}")
    code = say_missing(COMMAND, "group", list(look.missing))
    return EXIT_FAILED if look.failed else code


def shown_group(group: GroupLag, now_ms: int) -> dict[str, Any]:
    """A group and its partitions, for JSON."""
    return {
        "group": group.name,
        "type": state_word(group.type),
        "state": state_word(group.state),
        "members": group.members,
        "lag": group.records,
        "lag_seconds": seconds_of(group.waiting_s(now_ms)),
        "behind_seconds": seconds_of(group.behind_s),
        "never_read": group.never_read,
        "partitions": [_shown_partition(row, now_ms) for row in group.partitions],
    }


def _shown_partition(row: PartitionLag, now_ms: int) -> dict[str, Any]:
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "committed": row.committed,
        "end": row.end,
        "held": row.in_transactions,
        "lag": row.records,
        "lag_seconds": seconds_of(row.waiting_s(now_ms)),
        "behind_seconds": seconds_of(row.behind_s),
        "client": row.client,
    }


def _cells(look: Look) -> list[list[Any]]:
    return [
        [
            group.name,
            state_word(group.type),
            state_word(group.state),
            group.records,
            seconds_of(group.waiting_s(look.now_ms)),
            seconds_of(group.behind_s),
        ]
        for group in slowest_first(look.groups, look.now_ms)
    ]


# --- again and again ------------------------------------------------------------------------------------


def _watch(admin: Admin, reader: LagReader, wanted: list[str] | None, interval_s: float, json: bool) -> int:
    """Until Ctrl-C. On a terminal each look replaces the one before; JSON is a line per look."""
    import sys

    kept: dict[str, deque[tuple[int, int]]] = defaultdict(lambda: deque(maxlen=LOOKS_KEPT))
    while True:
        look = looked(admin, wanted, reader)
        for group in look.groups:
            kept[group.name].append((look.now_ms, group.records))
        if json:
            import json as lines

            rows = [
                {**shown_group(group, look.now_ms), "caught_up": _caught_up(kept[group.name])}
                for group in slowest_first(look.groups, look.now_ms)
            ]
            print(lines.dumps({"time": _time_text(look.now_ms), "groups": rows}), flush=True)
        else:
            if sys.stdout.isatty():
                print("\x1b[2J\x1b[H", end="")
            print(_time_text(look.now_ms))
            print_table((*HEADS, "CAUGHT UP"), [[*row, _caught_up(kept[row[0]])] for row in _cells(look)])
            sys.stdout.flush()
        time.sleep(interval_s)


def _caught_up(looks: Sequence[tuple[int, int]]) -> str | None:
    """When a group that is behind will have caught up; None if it is not behind, or not catching up."""
    at_ms = caught_up_ms(looks)
    return None if at_ms is None or not looks[-1][1] else _time_text(at_ms)


def _time_text(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000).astimezone().isoformat(" ", "seconds")
    except (OverflowError, ValueError, OSError):
        return "after the year 9999"


# --- by tenant --------------------------------------------------------------------------------------------


def _show_by(admin: Admin, look: Look, by: By, read_committed: bool, records_max: int, json: bool) -> None:
    rows: list[dict[str, Any]] = []
    for group in look.groups:
        counts, left = Counts(), records_max
        for record in _unread(admin, group, read_committed):
            if not left:
                note(
                    f"{group.name}: only the first {records_max:,} unread records are counted (--max-records)"
                )
                break
            left -= 1
            counts.add(by.value_of(record), record.timestamp)
        for value, number in sorted(counts.records.items(), key=lambda item: (-item[1], item[0])):
            oldest_ms = counts.oldest_ms.get(value)
            seconds = None if oldest_ms is None else max(look.now_ms - oldest_ms, 0) / 1000
            rows.append(
                {"group": group.name, "value": value, "lag": number, "lag_seconds": seconds_of(seconds)}
            )
    if json:
        print_json(rows)
    else:
        print_table(("GROUP", "VALUE", "LAG", "LAG SECONDS"), [list(row.values()) for row in rows])


def _unread(admin: Admin, group: GroupLag, read_committed: bool) -> Iterator[Record]:
    """The records that the group has not read, partition by partition. Raises CliError."""
    from barnabas.client.async_fetching import fetch

    for row in group.partitions:
        if not row.records or row.committed is None or row.end is None:
            continue
        at = row.committed
        while at < row.end:
            with saying(f"cannot read {row.partition}"):
                piece = admin.thread.run(
                    fetch(
                        admin.asynchronous.connections,
                        *row.partition,
                        at,
                        max_bytes=FETCH_BYTES,
                        read_committed=read_committed,
                    )
                )
            yield from readable(piece.records, at, row.end, piece.aborted)
            if piece.next_offset <= at:
                break
            at = piece.next_offset
