"""Printing results: aligned tables for people, JSON for programs, numbers with units."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import uuid4


@dataclass(slots=True)
class Manner:
    """How the command in this process writes to its user: the values of -q and -v, and the progress line."""

    quiet: bool = False
    verbose: bool = False
    can_be_verbose: bool = False
    """Whether the command has -v."""
    clear_line: Callable[[], None] = lambda: None
    """Removes the progress line from the terminal before something else is written there."""
    property_option: str = "-X"
    """The option of the command that sets a property of the client; ends with a space if the property goes elsewhere."""
    address_option: str = "-b"
    """The option of the command that names the cluster."""

    def properties(self, *pairs: str) -> str:
        """How properties (name=value) are given to this command: `-X a=b -X c=d`."""
        return " ".join(f"{self.property_option} {pair}" for pair in pairs)


MANNER: Final = Manner()


def print_json(value: Any) -> None:
    """One JSON document, indented on a terminal and on one line in a pipe. Decimals are numbers with all of their digits."""
    print(exact_json(value, indent=2 if sys.stdout.isatty() else None))


def exact_json(value: Any, indent: int | None = None) -> str:
    """The value as JSON text. The standard library writes no decimals: each becomes a text with a mark, which is then taken
    away with its quotes."""
    mark = uuid4().hex

    def marked(other: Any) -> str:
        if isinstance(other, Decimal):
            return f"{mark}{other}{mark}"
        raise TypeError(f"{type(other).__name__} is nothing that JSON has")

    text = json.dumps(value, ensure_ascii=False, indent=indent, default=marked)
    return text.replace(f'"{mark}', "").replace(f'{mark}"', "")


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table with its columns aligned: rich on a terminal, plain text in a pipe. Numbers are aligned to the right."""
    if sys.stdout.isatty():
        _print_rich(heads, rows)
        return
    texts = [[cell(value) for value in row] for row in rows]
    widths = [max([len(head), *(len(row[i]) for row in texts)]) for i, head in enumerate(heads)]
    right = [bool(rows) and all(is_number(row[i]) for row in rows) for i in range(len(heads))]
    for line in [list(heads), *texts]:
        cells = [
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _print_rich(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, head in enumerate(heads):
        right = bool(rows) and all(is_number(row[i]) for row in rows)
        table.add_column(head, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    Console().print(table)


def show_details(
    details: Sequence[dict[str, Any]], json: bool, print_one: Callable[[dict[str, Any]], None]
) -> None:
    """Print what `describe` found: as JSON, or as texts with an empty line between them."""
    if json:
        print_json(details)
        return
    for i, detail in enumerate(details):
        if i:
            print()
        print_one(detail)


def is_number(value: Any) -> bool:
    """Whether a cell is aligned to the right: a number, or the dash of a missing number."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def cell(value: Any) -> str:
    """A value as table text; `-` for none."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(cell(item) for item in value)
    return str(value)


def count_of(number: int, noun: str) -> str:
    """`1 record`, `2 records`, `1,000 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_text(size_bytes: float) -> str:
    """Bytes with a decimal unit: `512 B`, `1.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def note(message: str) -> None:
    """One line on standard error that matters with -q too."""
    MANNER.clear_line()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()  # keeps the order of what was printed, also when both go to one file
    print(message, file=sys.stderr, flush=True)


def summarize(message: str) -> None:
    """One line on standard error that -q leaves out."""
    if not MANNER.quiet:
        note(message)
