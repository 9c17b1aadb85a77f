"""A command of Jupyter notebooks: `%load_ext barnabas.sql.magic`, then

    %%barnabas_sql --url http://localhost:8088 --limit 50
    SELECT * FROM clicks EMIT CHANGES;

The rows of a query that follows are shown as they come; the kernel's stop button ends it. `--start earliest` reads what is
there, `--into name` keeps the rows in a variable, as a data frame if pandas is installed."""

from __future__ import annotations

import argparse
import html
import shlex
import time
from collections.abc import Sequence
from typing import Any, Final

from barnabas.sql.dbapi import connect
from barnabas.sql.errors import Error

SHOWN_ROWS: Final = 500
REDRAW_S: Final = 0.3


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("%%barnabas_sql", exit_on_error=False, add_help=False)
    parser.add_argument("--url", default="http://127.0.0.1:8088")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--start", choices=("earliest", "latest"))
    parser.add_argument("--into")
    return parser


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """The last rows, as a table of HTML."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    shown = rows[-SHOWN_ROWS:]
    lines = [
        "".join(f"<td>{html.escape('' if cell is None else str(cell))}</td>" for cell in row) for row in shown
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    more = (
        f"<caption>the last {len(shown):,} of {len(rows):,} rows</caption>" if len(rows) > len(shown) else ""
    )
    return f"<table>{more}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def statements_of(text: str) -> list[str]:
    """The statements of a cell: what stands between semicolons outside of quotes."""
    statements, quote = [""], ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        elif char == ";":
            statements.append("")
            continue
        statements[-1] += char
    return [one.strip() for one in statements if one.strip()]


def run(line: str, cell: str, display: Any) -> tuple[list[str], list[tuple[Any, ...]], str | None]:
    """Carries out the statements of a cell; the names and rows of the last query, and the variable for them. display: shows
    HTML, and returns what can be updated with other HTML. Raises Error."""
    options = _options().parse_args(shlex.split(line))
    names: list[str] = []
    rows: list[tuple[Any, ...]] = []
    with connect(options.url, start=options.start, timeout_s=options.seconds) as connection:
        for statement in statements_of(cell):
            cursor = connection.cursor().execute(statement)
            if cursor.description is None:
                display("<br>".join(html.escape(message) for message in cursor.messages) or "done")
                continue
            names, rows = [column[0] for column in cursor.description], []
            shown, drawn = display(table(names, rows)), 0.0
            try:
                while (options.limit is None or len(rows) < options.limit) and (
                    row := cursor.fetchone()
                ) is not None:
                    rows.append(row)
                    if time.monotonic() - drawn > REDRAW_S:
                        shown.update(table(names, rows))
                        drawn = time.monotonic()
            except KeyboardInterrupt:
                pass
            shown.update(table(names, rows))
            cursor.close()
    return names, rows, options.into


class _Shown:
    """HTML in a cell's output, which can be replaced."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    def update(self, text: str) -> None:
        """Shows other HTML in its place."""
        from IPython.display import HTML  # type: ignore[import-not-found]

        self.handle.update(HTML(text))


def load_ipython_extension(shell: Any) -> None:
    """Called by %load_ext."""
    from IPython.display import HTML, display

    def show(text: str) -> _Shown:
        return _Shown(display(HTML(text), display_id=True))

    def barnabas_sql(line: str, cell: str) -> None:
        try:
            names, rows, into = run(line, cell, show)
        except (Error, argparse.ArgumentError) as error:
            show(f"<pre>{html.escape(str(error))}</pre>")
            return
        if into is not None:
            shell.user_ns[into] = _frame(names, rows)

    shell.register_magic_function(barnabas_sql, magic_kind="cell", magic_name="barnabas_sql")


def _frame(names: list[str], rows: list[tuple[Any, ...]]) -> Any:
    try:
        import pandas as pd  # type: ignore[import-untyped]
    except ImportError:
        return [dict(zip(names, row, strict=True)) for row in rows]
    return pd.DataFrame(rows, columns=names)
