"""The commands of `barnabas sql migrate`, see migrations.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.sql import migrations as m
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError, UsageError
from barnabas.terminal.options import AsJson
from barnabas.terminal.output import print_json, print_table
from barnabas.terminal.runner import example, new_app

app = new_app("Files of statements that are applied once, in order, in the form of ksql-migrations.")
Config = Annotated[
    Path, typer.Option("-c", "--config-file", metavar="FILE", help="The settings of the project.")
]
SETTINGS = Path(m.SETTINGS)


@app.command(
    name="new-project", epilog=example("barnabas sql migrate new-project migrations http://localhost:8088")
)
def new_project(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to make.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="The SQL server.")],
    json: AsJson = False,
) -> int:
    """Make a folder for migrations, with its settings."""
    m.new_project(folder, url)
    _say(
        {"folder": str(folder)},
        f"Migrations project directory created: {folder}; settings: {folder / m.SETTINGS}",
        json,
    )
    return EXIT_OK


@app.command(name="initialize-metadata", epilog=example("barnabas sql migrate initialize-metadata"))
def initialise(config: Config = SETTINGS, json: AsJson = False) -> int:
    """Make the stream and the table on the server in which migrations are noted."""
    m.Server(m.Project.at(config).url).initialise()
    text = f"Migrations metadata initialized: stream {m.EVENTS}, table {m.VERSIONS}"
    _say({"stream": m.EVENTS, "table": m.VERSIONS}, text, json)
    return EXIT_OK


@app.command(epilog=example('barnabas sql migrate create "add clicks"'))
def create(
    description: Annotated[str, typer.Argument(metavar="DESCRIPTION", help="What it does, in a few words.")],
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="VERSION", help="Its version.")
    ] = None,
    config: Config = SETTINGS,
    json: AsJson = False,
) -> int:
    """Make an empty migration."""
    path = m.Project.at(config).create(description, version)
    _say({"file": str(path)}, f"Migration file created: {path}", json)
    return EXIT_OK


@app.command(
    epilog=example("barnabas sql migrate apply --all", "barnabas sql migrate apply --until 3 --dry-run")
)
def apply(
    all_: Annotated[bool, typer.Option("-a", "--all", help="Apply all that are left.")] = False,
    next_: Annotated[bool, typer.Option("-n", "--next", help="Apply the next one.")] = False,
    until: Annotated[
        int | None, typer.Option("-u", "--until", min=1, metavar="VERSION", help="Apply up to a version.")
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be applied.")] = False,
    config: Config = SETTINGS,
    json: AsJson = False,
) -> int:
    """Run the migrations that the server does not have yet."""
    if (all_, next_, until is not None).count(True) != 1:
        raise UsageError("name one of --all, --next and --until VERSION")
    project = m.Project.at(config)
    server = m.Server(project.url)
    upto = until
    if next_:
        server.require()
        current = server.current()
        left = [migration.version for migration in project.migrations() if migration.version > current]
        upto = min(left, default=current)
    done = m.apply(project, server, upto, dry)
    if json:
        print_json([{"version": one.version, "name": one.name, "applied": not dry} for one in done])
        return EXIT_OK
    for migration in done:
        print(f"{'Would apply' if dry else 'Applied'} version {migration.version}: {migration.name}")
    if not done:
        print("No eligible migrations found.")
    return EXIT_OK


@app.command(epilog=example("barnabas sql migrate info"))
def info(config: Config = SETTINGS, json: AsJson = False) -> int:
    """List migrations and their states."""
    project = m.Project.at(config)
    server = m.Server(project.url)
    server.require()
    rows = []
    for migration in project.migrations():
        noted = server.noted(str(migration.version)) or {}
        rows.append(
            (migration.version, migration.name, noted.get("state", "PENDING"), noted.get("previous") or "",
             noted.get("error_reason") or "")
        )  # fmt: skip
    if json:
        names = ("version", "name", "state", "previous", "error")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return EXIT_OK
    print(f"Current migration version: {server.current() or m.NONE}")
    print_table(("Version", "Name", "State", "Previous Version", "Error"), rows)
    return EXIT_OK


@app.command(epilog=example("barnabas sql migrate validate"))
def validate(config: Config = SETTINGS, json: AsJson = False) -> int:
    """Check that the files of applied migrations are what was applied. Exit code 1: they are not."""
    project = m.Project.at(config)
    problems = m.differences(project, m.Server(project.url))
    verdict = "Migrations are not valid" if problems else "Migrations are valid"
    _say({"valid": not problems, "problems": problems}, "\n".join([*problems, verdict]), json)
    return EXIT_FAILED if problems else EXIT_OK


@app.command(name="destroy-metadata", epilog=example("barnabas sql migrate destroy-metadata"))
def destroy(config: Config = SETTINGS, json: AsJson = False) -> int:
    """Remove what is noted about migrations from the server, with its topics."""
    server = m.Server(m.Project.at(config).url)
    try:
        server.run(f"DROP TABLE IF EXISTS {m.VERSIONS} DELETE TOPIC;")
        server.run(f"DROP STREAM IF EXISTS {m.EVENTS} DELETE TOPIC;")
    except CliError as error:
        raise CliError(f"the metadata cannot be removed: {error}") from None
    _say({"removed": True}, "Migrations metadata cleaned.", json)
    return EXIT_OK


def _say(value: dict[str, object], text: str, json: bool) -> None:
    if json:
        print_json(value)
    else:
        print(text)
