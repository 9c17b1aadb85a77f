"""`barnabas connect`: runs a worker; lists, creates and changes connectors."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from barnabas.cli.connect.asking import DEFAULT_URL, Name, Refused, Url, ask, at
from barnabas.services.command import add_start
from barnabas.services.rows.connect import CONNECT
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import note, print_json, print_table
from barnabas.terminal.runner import example, new_app

app = new_app("Connectors: a worker with Kafka Connect's API, and commands for any worker.")
add_start(app, CONNECT)

CLEAR: Final = "\x1b[H\x1b[2J"
WATCH_S: Final = 2.0
Watch = Annotated[bool, typer.Option("-w", "--watch", help="Show it again every 2 seconds, until Ctrl-C.")]


@app.callback(help="Run connectors: a worker with Kafka Connect's API, and commands for any worker.")
def connect() -> None:
    """What all its commands share."""


def rows_of(url: str) -> list[tuple[str, ...]]:
    """One row per connector."""
    connectors = ask(url, "GET", "/connectors?expand=info&expand=status")
    rows: list[tuple[str, ...]] = []
    for name, row in sorted(connectors.items()):
        status, info = row["status"], row["info"]
        states = [task["state"].lower() for task in status["tasks"]]
        tasks = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        kind = str(info["config"].get("connector.class", "")).rpartition(".")[2]
        rows.append((name, info["type"], status["connector"]["state"].lower(), tasks or "none", kind))
    return rows


def show_again(watch: bool, show: Any) -> int:
    """Shows something once, or again and again."""
    while True:
        if watch and sys.stdout.isatty():
            print(CLEAR, end="")
        code: int = show()
        if not watch:
            return code
        sys.stdout.flush()
        time.sleep(WATCH_S)


@app.command("list", epilog=example("barnabas connect list", "barnabas connect list --watch"))
def list_all(url: Url = DEFAULT_URL, watch: Watch = False, as_json: AsJson = False) -> int:
    """List connectors with their states."""

    def show() -> int:
        if as_json:
            print_json(ask(url, "GET", "/connectors?expand=info&expand=status"))
        else:
            print_table(("NAME", "TYPE", "STATE", "TASKS", "CLASS"), rows_of(url))
        return EXIT_OK

    return show_again(watch, show)


@app.command(
    epilog=example(
        "barnabas connect create lines connector.class=FileStreamSource file=in.txt topic=lines",
        "barnabas connect create lines -f lines.properties",
        "barnabas connect create lines -f lines.json --replace",
        "barnabas connect create --from postgresql://me:secret@db/shop --tables orders,customers",
    )
)
def create(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", show_default=False)] = None,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="OPTION=VALUE...", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "-f", "--file", metavar="FILE", help="Options as JSON or properties; - reads standard input."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change the connector if there is one of this name.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="Subscribe to a database's changes: postgresql://, mysql://, mariadb:// or mongodb://, with "
            "user:password@host/database. Options may follow.",
        ),
    ] = None,
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables",
            metavar="NAMES",
            help="With --from: only these, with commas between; * is any letters.",
        ),
    ] = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="With --from: records are rows, not events with before and after.")
    ] = False,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="running|paused|stopped", help="How it begins. Default: running."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Create a connector, or change its options with --replace."""
    words = list(options or [])
    if source is not None and name is not None and "=" in name:
        words.insert(0, name)
        name = None
    config = {**read_config(file), **pairs(words)}
    config.pop("name", None)
    if source is not None:
        proposed, subscribed = subscribed_to(source, tables, config.get("topic.prefix"), rows)
        name, config = name or proposed, {**subscribed, **config}
    elif tables is not None or rows:
        raise UsageError("--tables and --rows go with --from")
    if name is None:
        raise UsageError("a connector needs a NAME, or --from URL")
    if not config:
        raise UsageError("a connector needs options: OPTION=VALUE, or -f FILE")
    if replace:
        connector = ask(url, "PUT", at(name, "config"), config)
    else:
        body: dict[str, Any] = {"name": name, "config": config}
        if state is not None:
            body["initial_state"] = state.upper()
        connector = ask(url, "POST", "/connectors", body)
    if as_json:
        print_json(connector)
    else:
        print(f"{'changed' if replace else 'created'} {name}")
    return EXIT_OK


def subscribed_to(
    source: str, tables: str | None, prefix: str | None, rows: bool
) -> tuple[str, dict[str, str]]:
    """The name and options of a connector for a database's changes. Raises UsageError."""
    from barnabas.connect.cdc.subscription import subscription
    from barnabas.connect.errors import OptionError

    try:
        return subscription(source, [name.strip() for name in (tables or "").split(",")], prefix, rows=rows)
    except OptionError as error:
        raise UsageError(str(error)) from None


def pairs(words: list[str]) -> dict[str, str]:
    """Raises UsageError."""
    for text in words:
        if "=" not in text:
            raise UsageError(f"{text!r} is not of the form OPTION=VALUE")
    return dict(text.split("=", 1) for text in words)


def read_config(file: Path | None) -> dict[str, str]:
    """The options in a file. Raises CliError."""
    from barnabas.connect.errors import OptionError
    from barnabas.connect.files import read_config as read

    try:
        return {} if file is None else read(file)
    except OptionError as error:
        raise CliError(str(error)) from None


@app.command(epilog=example("barnabas connect status lines", "barnabas connect status lines --watch"))
def status(name: Name, url: Url = DEFAULT_URL, watch: Watch = False, as_json: AsJson = False) -> int:
    """Show the state of a connector and its tasks. Exit code 1: something has failed."""

    def show() -> int:
        connector = ask(url, "GET", at(name, "status"))
        if as_json:
            print_json(connector)
        else:
            _print_status(connector)
        states = [connector["connector"]["state"], *(task["state"] for task in connector["tasks"])]
        return EXIT_FAILED if "FAILED" in states else EXIT_OK

    return show_again(watch, show)


def _print_status(connector: dict[str, Any]) -> None:
    rows = [("connector", connector["connector"]["state"].lower(), connector["connector"]["worker_id"])]
    rows += [(f"task {task['id']}", task["state"].lower(), task["worker_id"]) for task in connector["tasks"]]
    print_table((connector["name"].upper(), "STATE", "WORKER"), rows)
    for what, row in [
        ("connector", connector["connector"]),
        *((f"task {t['id']}", t) for t in connector["tasks"]),
    ]:
        if row.get("trace"):
            note(f"{what}: {row['trace'].strip()}")


def _done(url: str, method: str, path: str, message: str, as_json: bool) -> int:
    reply = ask(url, method, path)
    if as_json:
        print_json(reply if reply is not None else {"done": message})
    else:
        print(message)
    return EXIT_OK


@app.command(epilog=example("barnabas connect pause lines"))
def pause(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Pause a connector; its tasks stay assigned."""
    return _done(url, "PUT", at(name, "pause"), f"paused {name}", as_json)


@app.command(epilog=example("barnabas connect resume lines"))
def resume(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Continue a connector that is paused or stopped."""
    return _done(url, "PUT", at(name, "resume"), f"resumed {name}", as_json)


@app.command(epilog=example("barnabas connect stop lines"))
def stop(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Stop a connector and end its tasks, for example to change its offsets."""
    return _done(url, "PUT", at(name, "stop"), f"stopped {name}", as_json)


@app.command(epilog=example("barnabas connect delete lines"))
def delete(name: Name, url: Url = DEFAULT_URL, as_json: AsJson = False) -> int:
    """Delete a connector; the offsets of a source stay."""
    return _done(url, "DELETE", at(name), f"deleted {name}", as_json)


@app.command(epilog=example("barnabas connect restart lines", "barnabas connect restart lines --failed"))
def restart(
    name: Name,
    task: Annotated[int | None, typer.Option("--task", metavar="N", help="Only this task.")] = None,
    only_failed: Annotated[
        bool, typer.Option("--failed", help="Only the connector and tasks that have failed.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Start a connector with its tasks again."""
    if task is not None:
        return _done(
            url, "POST", at(name, "tasks", str(task), "restart"), f"restarted task {task} of {name}", as_json
        )
    path = at(name, f"restart?includeTasks=true&onlyFailed={str(only_failed).lower()}")
    return _done(url, "POST", path, f"restarted {name}", as_json)


@app.command(
    epilog=example(
        "barnabas connect offsets lines",
        """barnabas connect offsets lines --set '{"filename": "in.txt"}' '{"position": 0}'""",
        "barnabas connect offsets lines --reset",
    )
)
def offsets(
    name: Name,
    positions: Annotated[
        list[str] | None,
        typer.Argument(metavar="PARTITION OFFSET...", help="With --set, as JSON.", show_default=False),
    ] = None,
    sets: Annotated[
        bool, typer.Option("--set", help="Set offsets; null removes one. The connector must be stopped.")
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Remove all offsets. The connector must be stopped.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Show where a connector goes on; set or reset it."""
    if sets and reset:
        raise UsageError("--set and --reset exclude each other")
    if sets or reset:
        body = {"offsets": _entries(positions or [])} if sets else None
        reply = ask(url, "PATCH" if sets else "DELETE", at(name, "offsets"), body)
        print_json(reply) if as_json else print(reply["message"])
        return EXIT_OK
    answer = ask(url, "GET", at(name, "offsets"))
    if as_json:
        print_json(answer)
    else:
        rows = [(_compact(row["partition"]), _compact(row["offset"])) for row in answer["offsets"]]
        print_table(("PARTITION", "OFFSET"), rows)
    return EXIT_OK


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _entries(words: list[str]) -> list[dict[str, Any]]:
    """Raises UsageError."""
    if not words or len(words) % 2:
        raise UsageError("--set needs pairs of PARTITION and OFFSET as JSON")
    try:
        values = [json.loads(text) for text in words]
    except ValueError as error:
        raise UsageError(f"not JSON: {error}") from None
    return [{"partition": p, "offset": o} for p, o in zip(values[::2], values[1::2], strict=True)]


@app.command(
    epilog=example(
        "barnabas connect plugins",
        "barnabas connect plugins FileStreamSource",
        "barnabas connect plugins --all",
    )
)
def plugins(
    name: Annotated[str | None, typer.Argument(metavar="PLUGIN", show_default=False)] = None,
    every: Annotated[
        bool, typer.Option("-a", "--all", help="Transforms, converters and predicates as well.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """List connectors that a worker has, or the options of one."""
    from urllib.parse import quote

    if name is None:
        answer = ask(url, "GET", f"/connector-plugins?connectorsOnly={str(not every).lower()}")
        columns: tuple[str, ...]
        rows: list[tuple[str, ...]]
        columns, rows = (
            ("CLASS", "TYPE", "VERSION"),
            [(row["class"], row["type"], row["version"]) for row in answer],
        )
    else:
        answer = ask(url, "GET", f"/connector-plugins/{quote(name, safe='')}/config")
        columns = ("OPTION", "TYPE", "DEFAULT", "MEANING")
        rows = [
            (
                row["name"],
                row["type"].lower(),
                "(required)" if row["required"] else row["default_value"] or "",
                row["documentation"],
            )
            for row in answer
        ]
    print_json(answer) if as_json else print_table(columns, rows)
    return EXIT_OK


@app.command(
    epilog=example(
        "barnabas connect validate connector.class=FileStreamSource topic=lines",
        "barnabas connect validate -f lines.json",
    )
)
def validate(
    options: Annotated[
        list[str] | None, typer.Argument(metavar="OPTION=VALUE...", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "-f", "--file", metavar="FILE", help="Options as JSON or properties; - reads standard input."
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Check options without creating a connector. Exit code 1: some are wrong."""
    from urllib.parse import quote

    config = {"name": "connector", **read_config(file), **pairs(options or [])}
    kind = config.get("connector.class")
    if not kind:
        raise UsageError("connector.class=CLASS is missing")
    report = ask(url, "PUT", f"/connector-plugins/{quote(kind, safe='')}/config/validate", config)
    if as_json:
        print_json(report)
    else:
        rows = [
            (row["value"]["name"], complaint)
            for row in report["configs"]
            for complaint in row["value"]["errors"]
        ]
        print_table(("OPTION", "ERROR"), rows) if rows else print("valid")
    return EXIT_FAILED if report["error_count"] else EXIT_OK


@app.command(epilog=example("barnabas connect logs lines", "barnabas connect logs lines --watch"))
def logs(
    name: Name,
    lines: Annotated[
        int, typer.Option("-n", "--lines", metavar="LINES", help="How many of the last lines.")
    ] = 50,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Go on with new lines, until Ctrl-C.")] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> int:
    """Show what happened to a connector on a worker of Barnabas."""
    after = 0
    while True:
        try:
            page = ask(url, "GET", at(name, f"logs?lines={lines}&after={after}"))
        except Refused as error:
            if error.status in (404, 405) and "not found" not in str(error):
                raise CliError("this worker keeps no lines: it is not one of Barnabas") from None
            raise
        for line in page["lines"]:
            print(json.dumps(line) if as_json else f"{line['at']} {line['level']:<7} {line['text']}")
        after = page["next"]
        if not watch:
            return EXIT_OK
        sys.stdout.flush()
        time.sleep(WATCH_S / 2)
