"""`barnabas logs`: finds lines in logs that were shipped into topics and taken to tables."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from barnabas.logs.errors import LogError
from barnabas.logs.patterns import Patterns
from barnabas.logs.query import BadQuery, Node, parse
from barnabas.logs.rows import Row, milliseconds, shown
from barnabas.logs.searching import Search
from barnabas.terminal.connection import connect
from barnabas.terminal.errors import EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson, Bootstrap, Properties, Quiet, Verbose
from barnabas.terminal.output import count_of, note, print_json, print_table, size_text, summarize
from barnabas.terminal.runner import example, new_app
from barnabas.terminal.signals import ending

if TYPE_CHECKING:
    from barnabas.logs.tables import LogTable

app = new_app("Find lines in logs that were shipped into topics and taken to tables.")

DURATION: Final = re.compile(r"(\d+)(s|m|h|d|w)")
UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
BAR: Final = 50
LIMIT: Final = 100
STEPS_SHOWN_MAX: Final = 10_000

Query = Annotated[
    str,
    typer.Argument(
        metavar="QUERY",
        help="Words ('timeout -retry user:anna'), or a condition (\"level = 'ERROR'\").",
        show_default=False,
    ),
]
Topic = Annotated[
    str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="The log's topic.", show_default=False)
]
TableFolder = Annotated[
    Path | None, typer.Option("--table", metavar="DIR", help="The log's Delta table.", show_default=False)
]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Not older: 30m, 2h, 7d, or a time.", show_default=False)
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Older than this.", show_default=False)]


@app.callback()
def logs() -> None:
    """Find lines in logs that were shipped into topics and taken to tables."""


def read_query(text: str) -> Node:
    """A query. Raises UsageError."""
    try:
        return parse(text)
    except BadQuery as error:
        raise UsageError(str(error)) from None


def read_time(text: str | None, option: str) -> int | None:
    """A time, or how long ago, in ms since 1970. Raises UsageError."""
    if text is None:
        return None
    duration = DURATION.fullmatch(text.strip())
    if duration is not None:
        return int(time.time() * 1000) - int(duration[1]) * UNITS_MS[duration[2]]
    at = milliseconds(text)
    if at is None:
        raise UsageError(f"{option} {text!r} is no time; examples: 30m, 2h, 7d, 2026-01-31T12:00:00Z")
    return at


@contextmanager
def searching(
    query: str,
    topic: str | None,
    table: Path | None,
    since: str | None,
    until: str | None,
    reach: tuple[str | None, list[str] | None, bool],
) -> Iterator[Search]:
    """A search over what the options name. reach: -b, -X and -v. Raises CliError."""
    if topic is None and table is None:
        raise UsageError("name the log: --topic TOPIC, --table DIR, or both")
    tail = None
    new_search = Search(
        read_query(query), None, None, read_time(since, "--since"), read_time(until, "--until")
    )
    if table is not None:
        new_search.table = open_table(table)
    if topic is not None:
        from barnabas.cli.log_search.tail import Tail

        new_search.tail = tail = Tail(connect(*reach), topic)
    try:
        yield new_search
    except LogError as error:
        raise CliError(str(error)) from None
    finally:
        if tail is not None:
            tail.close()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except LogError as error:
        raise CliError(str(error)) from None


class WithoutPandas:
    """Arrow asks of Python values whether they are those of pandas, and imports pandas for that, which takes as long as a
    search. In the process of a search nothing else wants pandas.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("searches do without pandas", name=name)


def open_table(folder: Path) -> LogTable:
    """The table in a folder. Raises CliError."""
    sys.meta_path.insert(0, WithoutPandas())
    try:
        from barnabas.logs.tables import LogTable
    except ImportError as error:
        from barnabas.extras import how_to_install

        raise CliError(
            f"tables need {error.name}, which is not installed; install it with {how_to_install('pipelines')}"
        ) from None
    return LogTable(folder)


def line_of(row: Row) -> str:
    """A row for people."""
    where = " ".join(text for text in (row.host, row.path) if text)
    parts = [shown(row.time), row.level, where and f"[{where}]", row.message]
    return " ".join(part for part in parts if part)


@app.command(
    epilog=example(
        "barnabas logs search 'timeout -retry user:anna' -t app --since 2h",
        "barnabas logs search \"level = 'ERROR' AND message LIKE '%timeout%'\" --table logs/app -t app",
        "barnabas logs search 'level:error' --table logs/app --histogram",
    )
)
def search(
    query: Query = "",
    topic: Topic = None,
    table: TableFolder = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[
        int, typer.Option("-n", "--limit", metavar="COUNT", help="At most so many; 0: all.")
    ] = LIMIT,
    histogram: Annotated[
        bool, typer.Option("--histogram", help="Show how many there are over time, not the lines.")
    ] = False,
    step: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of the histogram: 1m, 1h.", show_default=False)
    ] = None,
    quiet: Quiet = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show the lines that match, the newest first. With --topic and --table, both are searched: the table, and what is
    in the topic but not in the table yet.
    """
    began = time.monotonic()
    with searching(query, topic, table, since, until, (bootstrap, properties, verbose)) as query_search:
        if histogram:
            return show_histogram(query_search, step, json)
        number = 0
        for row in query_search.rows(limit or None):
            number += 1
            if json:
                print_json({**row._asdict(), "time": shown(row.time)})
            else:
                sys.stdout.write(line_of(row) + "\n")
        sys.stdout.flush()
        if not quiet and not json:
            summarize(summary(number, limit, time.monotonic() - began, query_search))
    return EXIT_OK


def summary(number: int, limit: int, seconds: float, finished: Search) -> str:
    """What a search has found, and what it cost."""
    text = f"{count_of(number, 'line')} in {seconds:.2f} s"
    if limit and number >= limit:
        text += f"; there may be more (-n {limit})"
    if finished.table is not None:
        looked = finished.table.looked
        text += f"; {looked.files_read} of {count_of(looked.files, 'file')} were read"
    return text


def show_histogram(prepared: Search, step: str | None, json: bool) -> int:
    """Print how many lines there are over time. Raises UsageError."""
    duration = DURATION.fullmatch(step) if step is not None else None
    if step is not None and duration is None:
        raise UsageError(f"--step {step!r} is no duration; examples: 1m, 1h")
    if duration is not None:
        step_ms = int(duration[1]) * UNITS_MS[duration[2]]
        counts = prepared.histogram(step_ms)
    else:
        counts, step_ms = prepared.over_time()
    if counts and (max(counts) - min(counts)) // step_ms > STEPS_SHOWN_MAX:
        raise UsageError(
            f"--step {step} makes more than {STEPS_SHOWN_MAX:,} lines; choose a longer one, or --since"
        )
    rows = [(at, counts[at]) for at in range(min(counts), max(counts) + 1, step_ms)] if counts else []
    if json:
        print_json([{"time": shown(at), "lines": count} for at, count in rows])
        return EXIT_OK
    most = max((count for _, count in rows), default=1)
    for at, count in rows:
        bar = "█" * round(BAR * count / most)
        sys.stdout.write(f"{shown(at)[:19]}  {count:>9,}  {bar}".rstrip() + "\n")
    sys.stdout.flush()
    return EXIT_OK


@app.command(epilog=example("barnabas logs tail 'level:error' -t app"))
def tail(
    query: Query = "",
    topic: Topic = None,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show the lines that match as they arrive in the topic, until Ctrl-C."""
    from barnabas.cli.log_search.tail import Tail

    if topic is None:
        raise UsageError("name the log's topic with --topic TOPIC")
    node, stopped = read_query(query), list[int]()
    source = Tail(connect(bootstrap, properties, verbose), topic)
    try:
        with ending(lambda: stopped.append(1)):
            for row in source.follow(lambda: bool(stopped)):
                if not node.matches(row):
                    continue
                if json:
                    print_json({**row._asdict(), "time": shown(row.time)})
                else:
                    sys.stdout.write(line_of(row) + "\n")
                sys.stdout.flush()
    finally:
        source.close()
    return EXIT_OK


@app.command(epilog=example("barnabas logs patterns 'level:error' -t app --since 1h --before 24h"))
def patterns(
    query: Query = "",
    topic: Topic = None,
    table: TableFolder = None,
    since: Since = None,
    until: Until = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Mark what did not occur from this time until --since.", show_default=False
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("-n", "--limit", metavar="COUNT", help="At most so many patterns.")
    ] = 30,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
    json: AsJson = False,
) -> int:
    """Show the kinds of lines that match, with their numbers: what differs between lines of one kind is <*>."""
    if before is not None and since is None:
        raise UsageError("--before needs --since, which says where the lines begin that are looked at")
    counted = Patterns()
    begins = read_time(since, "--since")
    with searching(query, topic, table, before or since, until, (bootstrap, properties, verbose)) as prepared:
        for row in prepared.rows(None):
            is_before = before is not None and begins is not None and row.time < begins
            counted.add(row.message, row.time, row.level, is_before=is_before)
    rows = counted.common()
    is_new = {pattern.text: before is not None and not pattern.before for pattern in rows}
    if json:
        print_json(
            [
                {
                    "pattern": pattern.text, "lines": pattern.count, "before": pattern.before, "level": pattern.level,
                    "first": shown(pattern.first), "last": shown(pattern.last), "example": pattern.example,
                    "is_new": is_new[pattern.text],
                }
                for pattern in rows[:limit]
            ]
        )  # fmt: skip
        return EXIT_OK
    print_table(
        ["LINES", "NEW", "LEVEL", "LAST", "PATTERN"],
        [
            [f"{pattern.count:,}", "new" if is_new[pattern.text] else "-", pattern.level or "-",
             shown(pattern.last)[:19], pattern.text]
            for pattern in rows[:limit]
        ],
    )  # fmt: skip
    if len(rows) > limit:
        note(f"and {count_of(len(rows) - limit, 'pattern')} more (-n)")
    return EXIT_OK


@app.command(epilog=example("barnabas logs index logs/app"))
def index(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The log's Delta table.", show_default=False)],
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Again and again, after so long: 30s, 5m.", show_default=False),
    ] = None,
    json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Write an index of words for each file of the table that has none. Searches read files without one whole."""
    pause = DURATION.fullmatch(every) if every is not None else None
    if every is not None and pause is None:
        raise UsageError(f"--every {every!r} is no duration; examples: 30s, 5m")
    table, stopped = open_table(folder), list[int]()
    with ending(lambda: stopped.append(1)), _explained():
        while True:
            began, files, size, rows, data = time.monotonic(), 0, 0, 0, 0
            for file, written in table.build_indexes():
                files, size, rows, data = files + 1, size + written, rows + file.rows, data + file.size_bytes
                if stopped:
                    break
            seconds = time.monotonic() - began
            if json:
                print_json({"files": files, "lines": rows, "bytes": data, "index_bytes": size})
            elif files and not quiet:
                note(
                    f"{count_of(files, 'file')}, {count_of(rows, 'line')} in {seconds:.1f} s; the index of "
                    f"{size_text(data)} is {size_text(size)}"
                )
            if pause is None or stopped:
                return EXIT_OK
            until = time.monotonic() + int(pause[1]) * UNITS_MS[pause[2]] / 1000
            while not stopped and time.monotonic() < until:
                time.sleep(0.2)


@app.command(epilog=example("barnabas logs template -t app logs/app > logs.yaml"))
def template(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the table is to be.", show_default=False)
    ],
    topic: Topic = None,
    text: Annotated[
        bool, typer.Option("--text/--json", help="Whether records are lines of text, or events in JSON.")
    ] = False,
) -> int:
    """Print the pipeline that takes the log from its topic to a Delta table by day and hour."""
    from barnabas.logs.template import pipeline

    if topic is None:
        raise UsageError("name the log's topic with --topic TOPIC")
    sys.stdout.write(pipeline(topic, folder, is_json=not text))
    return EXIT_OK


@app.command(epilog=example("barnabas logs watch alerts.yaml"))
def watch(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Rules and receivers of alerts.", show_default=False)
    ],
    quiet: Quiet = False,
    bootstrap: Bootstrap = None,
    properties: Properties = None,
    verbose: Verbose = False,
) -> int:
    """Raise alerts for saved searches: rules of kind search in a file of alerts, judged as lines arrive, until Ctrl-C."""
    from barnabas.cli.log_search.watching import saved_searches
    from barnabas.cli.log_search.watching import watch as run
    from barnabas.client.errors import ClientError
    from barnabas.client.options import ClientOptions
    from barnabas.services.rows.monitor import read_rules

    rules = read_rules(file)
    searches = saved_searches(rules)
    connection = connect(bootstrap, properties, verbose)
    reach = {"client.id": "barnabas-logs", **connection.properties, "bootstrap.servers": connection.bootstrap}
    try:
        clients = {"local": ClientOptions.from_kafka(reach)}
    except ClientError as error:
        raise UsageError(str(error)) from None
    stopped = list[int]()
    with ending(lambda: stopped.append(1)):
        if not quiet:
            note(
                f"barnabas logs watch: ready, {len(searches)} saved {'search' if len(searches) == 1 else 'searches'}"
            )
        run(rules, connection, clients, lambda: bool(stopped), lambda text: None if quiet else note(text))
    return EXIT_OK
