"""`barnabas top`: hot topics, partitions, groups and clients on the whole screen."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from barnabas.admin import Admin
from barnabas.monitor.busy import COLUMNS, RATE, Order, What, rows_of
from barnabas.monitor.lag.reading import LagReader
from barnabas.monitor.snapshot import Snapshot
from barnabas.monitor.watching import take_look
from barnabas.terminal.administering import administer, saying
from barnabas.terminal.errors import EXIT_OK
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Verbose
from barnabas.terminal.output import count_of, note, print_json, print_table
from barnabas.terminal.runner import example, new_app

app = new_app("Show hot topics, partitions, groups and clients on the whole screen.")

KEYS: Final = {"t": What.TOPICS, "p": What.PARTITIONS, "g": What.GROUPS, "c": What.CLIENTS}
HELP_LINE: Final = "t topics  p partitions  g groups  c clients  s sort by the next column  / filter  q quit"
ENTER: Final = ("\r", "\n")
BACKSPACE: Final = ("\x7f", "\b")
ESCAPE: Final = "\x1b"


@app.command(epilog=example("barnabas top", "barnabas top --show groups --filter billing"))
def top(
    show: Annotated[
        What, typer.Option("--show", metavar="WHAT", help="topics, partitions, groups or clients.")
    ] = What.TOPICS,
    text: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Only rows whose name contains it.")
    ] = "",
    interval_s: Annotated[
        float, typer.Option("--interval-s", metavar="SECONDS", min=0.2, help="Time between looks.")
    ] = 2.0,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show hot topics, partitions, groups and clients; without a terminal, the rates between two looks, once."""
    order = Order(show, RATE, text)
    with administer(bootstrap, properties, verbose) as admin:
        reader = LagReader(admin.asynchronous)
        if json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            before = _look(admin, reader, order)
            time.sleep(interval_s)
            seen = _look(admin, reader, order)
            for failure in seen.failures:
                note(failure)
            rows = rows_of(before, seen, order)
            heads = [column.head for column in COLUMNS[order.what]]
            if json:
                names = [head.lower().replace(" ", "_").replace("/s", "_per_second") for head in heads]
                print_json([dict(zip(names, row, strict=True)) for row in rows])
            else:
                print_table(heads, [[_cell(value) for value in row] for row in rows])
            return EXIT_OK
        return _on_screen(admin, reader, order, interval_s)


def _look(admin: Admin, reader: LagReader, order: Order) -> Snapshot:
    with saying("cannot read the cluster"):
        return admin.thread.run(
            take_look(
                admin.asynchronous,
                reader,
                time.time_ns() // 1_000_000,
                with_connections=order.what is What.CLIENTS,
            )
        )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return (
        f"{value:,.1f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


# --- the screen -------------------------------------------------------------------------------------------


def _on_screen(admin: Admin, reader: LagReader, order: Order, interval_s: float) -> int:
    """Until q or Ctrl-C. The terminal is as it was afterwards."""
    from rich.live import Live

    before = seen = _look(admin, reader, order)
    typing: str | None = None
    with _keys(), Live(screen=True, auto_refresh=False) as live:
        while True:
            live.update(_screen(before, seen, order, typing), refresh=True)
            next_look = time.monotonic() + interval_s
            while (left := next_look - time.monotonic()) > 0:
                key = _key(left)
                if key is None:
                    continue
                if typing is None and key == "q":
                    return EXIT_OK
                order, typing = pressed(key, order, typing)
                live.update(_screen(before, seen, order, typing), refresh=True)
            before, seen = seen, _look(admin, reader, order)


def pressed(key: str, order: Order, typing: str | None) -> tuple[Order, str | None]:
    """What a key does. typing: the filter while it is typed; None otherwise."""
    if typing is not None:
        if key in ENTER:
            return order, None
        if key == ESCAPE:
            return replace(order, text=""), None
        typed = typing[:-1] if key in BACKSPACE else typing + key if key.isprintable() else typing
        return replace(order, text=typed), typed
    if key == "/":
        return order, order.text
    if key == "s":
        return replace(order, column=(order.column + 1) % len(COLUMNS[order.what])), None
    if key in KEYS:
        return Order(KEYS[key], RATE, order.text), None
    return order, None


def _screen(before: Snapshot, seen: Snapshot, order: Order, typing: str | None) -> Any:
    """All that is on the screen: the cluster, the table as far as there is room, the keys."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = rows_of(before, seen, order)
    room = max(os.get_terminal_size().lines - 5, 1)
    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    for number, column in enumerate(COLUMNS[order.what]):
        head = (
            f"{column.head} {'▼' if column.is_descending else '▲'}" if number == order.column else column.head
        )
        table.add_column(head, justify="right" if number else "left", no_wrap=True, overflow="ellipsis")
    for row in rows[:room]:
        table.add_row(*(Text(_cell(value)) for value in row))
    state = [
        time.strftime("%H:%M:%S", time.localtime(seen.now_ms / 1000)),
        count_of(len(seen.brokers), "broker"),
        count_of(len(seen.partitions), "partition"),
        f"{len(seen.under_replicated):,} under-replicated",
        f"{len(seen.offline):,} offline",
    ]
    bad = bool(seen.under_replicated or seen.offline)
    first = Text("  ".join(state), style="bold red" if bad else "bold")
    hidden = f"  and {len(rows) - room:,} more" if len(rows) > room else ""
    filtered = f"  filter: {order.text}" if order.text or typing is not None else ""
    last = Text(
        HELP_LINE if typing is None else f"filter: {typing}_",
        style="reverse" if typing is not None else "dim",
    )
    failed = f"  {seen.failures[0]}" if seen.failures else ""
    return Group(first, Text(f"{order.what}{hidden}{filtered}{failed}", style="cyan"), table, last)


@contextmanager
def _keys() -> Iterator[None]:
    """Keys arrive one by one and are not shown."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _key(timeout_s: float) -> str | None:
    """The next key; None if none is pressed in time."""
    ready, _, _ = select.select([sys.stdin], [], [], timeout_s)
    return os.read(sys.stdin.fileno(), 1).decode("latin-1") if ready else None
