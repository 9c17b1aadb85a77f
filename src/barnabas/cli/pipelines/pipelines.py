"""`barnabas pipelines`: a server of many pipelines, and the commands that talk to it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from json import dumps as encode_json
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer

from barnabas.http_client import Address, BadAddress, NoAnswer, ask, without_login
from barnabas.services.command import add_start
from barnabas.services.rows.pipelines import PIPELINES
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import note, print_json, print_table
from barnabas.terminal.runner import example, new_app

app = new_app("Run many pipelines in one server; start, pause, resume and restart them.")

FOLLOW_SECONDS: Final = 1.0
LINES_MAX: Final = 10_000
PAGE_MAX: Final = 10_000
"""How many rows the server gives at once."""
DEFAULT_SERVER: Final = f"http://{PIPELINES.listen}"
TIMEOUT_S: Final = 120
Server = Annotated[
    str,
    typer.Option(
        "-u", "--url", "--server", envvar="BARNABAS_PIPELINES", metavar="URL", help="The server to talk to."
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.callback()
def pipelines() -> None:
    """Run many pipelines in one server; start, pause, resume and restart them."""


add_start(app, PIPELINES)


def call(server: str, method: str, path: str, body: bytes | None = None, *, exact: bool = False) -> Any:
    """The decoded answer. exact: numbers with a point become decimals. Raises CliError with the server's own line."""
    shown = without_login(server)
    headers = {}
    if body is not None:
        headers["content-type"] = "application/yaml" if path == "/pipelines" else "application/json"
    try:
        answer = ask(Address(server, port=PIPELINES.port), method, path, body, headers, timeout_s=TIMEOUT_S)
    except BadAddress:
        raise UsageError(f"--url {shown!r} is not a URL like {DEFAULT_SERVER}") from None
    except NoAnswer as error:
        raise CliError(
            f"no pipeline server answers at {shown}: {error}; start one with `barnabas pipelines serve`, or an app "
            "with `barnabas streams run --listen`"
        ) from None
    try:
        value = json.loads(answer.body, parse_float=Decimal if exact else None) if answer.body else None
    except ValueError:
        raise CliError(f"{shown} is not a pipeline server: it answered {answer.status}") from None
    if answer.status >= 400:
        message = value.get("error") if isinstance(value, dict) else None
        raise CliError(message or f"{shown} answered {answer.status}")
    return value


def show(rows: list[dict[str, Any]], as_json: bool) -> int:
    """Statuses as a table with a line per query; exit code 1 when a pipeline has failed."""
    if as_json:
        print_json(rows)
    else:
        lines = []
        for row in rows:
            queries = row["queries"] or [{}]
            for query in queries:
                lag = query.get("lag")
                lines.append(
                    (
                        row["name"],
                        row["state"],
                        query.get("name", "-"),
                        query.get("records", "-"),
                        query.get("failed", "-"),
                        query.get("records_per_second", "-"),
                        "-" if lag is None else lag,
                        query.get("state_rows", "-"),
                        query.get("state_bytes", "-"),
                    )
                )
        print_table(
            (
                "pipeline",
                "state",
                "query",
                "records",
                "failed",
                "records/s",
                "lag",
                "state rows",
                "state bytes",
            ),
            lines,
        )
        for row in rows:
            if row.get("waiting"):
                print(f"{row['name']}: {row['waiting']}", file=sys.stderr)
            if row.get("stuck"):
                print(f"{row['name']} stands still: {row['stuck']}", file=sys.stderr)
        for row in rows:
            if row["last_error"]:
                again = f"; again in {row['retry_in_seconds']:g} s" if row["retry_in_seconds"] else ""
                print(f"{row['name']}: {row['last_error']}{again}")
    return EXIT_FAILED if any(row["state"] == "failed" for row in rows) else EXIT_OK


@app.command("list", epilog=example("barnabas pipelines list"))
def list_pipelines(server: Server = DEFAULT_SERVER, json: AsJson = False) -> int:
    """Show every pipeline with its state, rates and lag."""
    return show(call(server, "GET", "/pipelines"), json)


@app.command(epilog=example("barnabas pipelines status access-log --json"))
def status(name: Name, server: Server = DEFAULT_SERVER, json: AsJson = False) -> int:
    """Show one pipeline with its last failures. Exit code 1: it has failed."""
    row = call(server, "GET", f"/pipelines/{quote(name)}")
    code = show([row], json)
    if not json:
        for failure in row.get("failures") or ():
            print(f"failed at {failure['at']}: {failure['reason']}")
    return code


@app.command(
    epilog=example("barnabas pipelines logs access-log", "barnabas pipelines logs access-log -n 20 --follow")
)
def logs(
    name: Name,
    lines: Annotated[
        int, typer.Option("-n", "--lines", metavar="LINES", min=1, max=10_000, help="How many lines to show.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on with new lines until Ctrl-C.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    json: AsJson = False,
) -> int:
    """Show the log of one pipeline: what the server did with it, and what Spark logged about it."""
    path = f"/pipelines/{quote(name)}/logs"
    page = call(server, "GET", f"{path}?lines={lines}")
    while True:
        for line in page["lines"]:
            print(encode_json(line) if json else log_line(line), flush=True)
        if not follow:
            return EXIT_OK
        try:
            time.sleep(FOLLOW_SECONDS)
        except KeyboardInterrupt:
            return EXIT_OK
        page = call(server, "GET", f"{path}?lines={LINES_MAX}&after={page['next']}")


def log_line(line: dict[str, str]) -> str:
    """A line of a pipeline's log for people."""
    about = f"{line['query']}: " if line["query"] else ""
    return f"{line['at']} {line['level']:<5} {about}{line['text']}"


@app.command(epilog=example("barnabas pipelines views orders"))
def views(name: Name, server: Server = DEFAULT_SERVER, json: AsJson = False) -> int:
    """Show what can be looked up in a pipeline: its views, their keys, and as of when they are."""
    rows = call(server, "GET", f"/pipelines/{quote(name)}/views")
    if json:
        print_json(rows)
        return EXIT_OK
    lines = []
    for row in rows:
        key = ", ".join(f"{field['name']} {field['type']}" for field in row["key"] or ()) or "-"
        window = row["window"]["start"] if row["window"] else "-"
        lines.append((row["view"], key, window, row["bytes"], row["as_of"]["time"] if row["as_of"] else "-"))
    print_table(("view", "key", "window", "bytes", "as of"), lines)
    return EXIT_OK


@app.command(
    epilog=example(
        "barnabas pipelines get orders C17",
        "barnabas pipelines get orders/totals C17 --window 2026-01-31T12:00:00Z",
        "barnabas pipelines get orders --from C10 --to C20 --json",
    )
)
def get(
    name: Annotated[str, typer.Argument(metavar="NAME[/VIEW]", show_default=False)],
    key: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY",
            help="The values of the key's fields, or of the first ones.",
            show_default=False,
        ),
    ] = None,
    low: Annotated[
        str | None,
        typer.Option("--from", metavar="KEY", help="The first key of a range.", show_default=False),
    ] = None,
    high: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="KEY", help="The end of a range, which is not in it itself.", show_default=False
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|FROM/TO",
            help="Windows that contain a time, or that begin between two.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("-a", "--all", help="Show rows of all keys.")] = False,
    limit: Annotated[
        int, typer.Option("-n", "--limit", metavar="COUNT", min=1, help="How many rows to show at most.")
    ] = 100,
    server: Server = DEFAULT_SERVER,
    json: AsJson = False,
) -> int:
    """Show rows of a view: those of a key, of a range of keys, of a window, or all. Exit code 1: there are none."""
    if everything == bool(key or low is not None or high is not None or window is not None):
        raise UsageError("name a KEY, a range (--from, --to), a --window, or --all")
    query = [("key", value) for value in key or ()]
    bounds = (("from", low), ("to", high), ("window", window))
    query += [(option, value) for option, value in bounds if value is not None]
    answer = looked_up(server, name, query, limit)
    if json:
        print_json(answer)
    else:
        rows = answer["rows"]
        names = list(rows[0]) if rows else []
        if rows:
            print_table(names, [[_cell(row[field]) for field in names] for row in rows])
        as_of = answer["as_of"]
        more = "; there are more: raise --limit" if answer["next"] else ""
        freshness = f"as of {as_of['time']}, micro-batch {as_of['batch']}{lines_behind(as_of)}"
        note(f"{len(rows)} rows of {answer['view']} {freshness}{more}")
    return EXIT_OK if answer["rows"] else EXIT_FAILED


def lines_behind(as_of: Mapping[str, Any]) -> str:
    """What a reader should know if the rows may be older than the records in the topics; nothing if they are not."""
    facts = []
    if as_of["state"] != "running":
        facts.append(f"the pipeline is {as_of['state']}")
    if as_of["lag"] or facts:
        facts.append(f"{float(as_of['seconds_ago']):,.0f} s ago")
    if as_of["lag"]:
        facts.append(f"{as_of['lag']:,} records behind")
    elif as_of["lag"] is None and facts:
        facts.append("how many records have come since is not known yet")
    return f" ({', '.join(facts)})" if facts else ""


def _cell(value: Any) -> Any:
    return (
        "-"
        if value is None
        else encode_json(value, default=str)
        if isinstance(value, (dict, list))
        else value
    )


def looked_up(server: str, name: str, query: list[tuple[str, str]], limit: int) -> dict[str, Any]:
    """Rows of a view, page by page until there are `limit`, with what the last page said about them. Numbers with a point
    are decimals."""
    pipeline, _, view = name.partition("/")
    if not view:
        there = [row["name"] for row in call(server, "GET", f"/pipelines/{quote(pipeline)}/views")]
        if len(there) != 1:
            which = f"name one of its views: {', '.join(f'{pipeline}/{each}' for each in there)}"
            raise CliError(f"pipeline {pipeline} has {len(there)} views" + (f": {which}" if there else ""))
        view = there[0]
    path = f"/pipelines/{quote(pipeline)}/views/{quote(view)}"
    rows: list[Any] = []
    after: list[tuple[str, str]] = []
    while True:
        asked = [*query, ("limit", str(min(limit - len(rows), PAGE_MAX))), *after]
        page: dict[str, Any] = call(server, "GET", f"{path}?{urlencode(asked)}", exact=True)
        rows += page["rows"]
        if page["next"] is None or len(rows) >= limit:
            return page | {"rows": rows}
        after = [("after", page["next"])]


@app.command(epilog=example("barnabas pipelines add examples/access_log/pipeline.yaml"))
def add(
    file: Annotated[Path, typer.Argument(metavar="FILE.yaml")],
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="If what is changed cannot go on with the state: compute it again from the earliest record.",
        ),
    ] = False,
    server: Server = DEFAULT_SERVER,
    json: AsJson = False,
) -> int:
    """Add a pipeline, or replace the one of the same name, and start it.

    A changed pipeline goes on where it was. One that cannot, because other state is needed, is refused before anything
    stops; what changes is said by the check of the console's editor, or by POST /check.
    """
    if not file.is_file():
        raise CliError(f"{file}: no such file")
    path = "/pipelines?rebuild=true" if rebuild else "/pipelines"
    return say_state(call(server, "POST", path, file.read_bytes()), json)


def say_state(row: dict[str, Any], as_json: bool) -> int:
    """Print the state of a pipeline; the exit code."""
    if as_json:
        print_json(row)
    else:
        print(f"{row['name']}: {row['state']}")
    return EXIT_OK


def act(name: str, action: str, server: str, as_json: bool, body: bytes | None = None) -> int:
    """Ask the server to do something with a pipeline; the exit code."""
    return say_state(call(server, "POST", f"/pipelines/{quote(name)}/{action}", body), as_json)


@app.command(epilog=example("barnabas pipelines start access-log"))
def start(name: Name, server: Server = DEFAULT_SERVER, json: AsJson = False) -> int:
    """Start a stopped pipeline where it left off."""
    return act(name, "start", server, json)


@app.command(epilog=example("barnabas pipelines stop access-log"))
def stop(name: Name, server: Server = DEFAULT_SERVER, json: AsJson = False) -> int:
    """Stop a pipeline after its micro-batch."""
    return act(name, "stop", server, json)


@app.command(epilog=example("barnabas pipelines pause access-log"))
def pause(name: Name, server: Server = DEFAULT_SERVER, json: AsJson = False) -> int:
    """Pause a pipeline after its micro-batch."""
    return act(name, "pause", server, json)


@app.command(epilog=example("barnabas pipelines resume access-log"))
def resume(name: Name, server: Server = DEFAULT_SERVER, json: AsJson = False) -> int:
    """Continue a paused pipeline."""
    return act(name, "resume", server, json)


@app.command(
    epilog=example(
        "barnabas pipelines restart access-log",
        "barnabas pipelines restart access-log --from earliest",
        "barnabas pipelines restart access-log --from 2026-01-31T12:00:00+01:00",
    )
)
def restart(
    name: Name,
    place: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help='earliest, latest, a time (ISO 8601 or milliseconds), or offsets: {"topic": {"0": 5}}.',
            show_default=False,
        ),
    ] = None,
    server: Server = DEFAULT_SERVER,
    json: AsJson = False,
) -> int:
    """Start a pipeline again, where it left off or at another position. At another position it gets new checkpoints:
    aggregates start from zero.
    """
    body = {} if place is None else {"from": parse_place(place)}
    return act(name, "restart", server, json, encode_json(body).encode())


def parse_place(text: str) -> Any:
    """What `--from` means. Raises UsageError."""
    if text in ("earliest", "latest"):
        return text
    if text.isdigit():
        return int(text)
    try:
        if text.startswith("{"):
            return json.loads(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f'--from {text!r} is not earliest, latest, a time, or offsets like {{"topic": {{"0": 5}}}}'
        ) from None
    return int(moment.timestamp() * 1000)


@app.command(epilog=example("barnabas pipelines remove access-log"))
def remove(name: Name, server: Server = DEFAULT_SERVER, json: AsJson = False) -> int:
    """Stop a pipeline and forget it; its checkpoints are put aside."""
    call(server, "DELETE", f"/pipelines/{quote(name)}")
    return say_state({"name": name, "state": "removed"}, json)
