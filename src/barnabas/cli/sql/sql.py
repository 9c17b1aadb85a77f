"""`barnabas sql`: a shell for SQL on streams, and `barnabas sql start`: its server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.sql import migrate, trial
from barnabas.services.command import add_start
from barnabas.services.row import needs_extra
from barnabas.services.rows.sql import SQL
from barnabas.terminal import profiles
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError, UsageError
from barnabas.terminal.files import read_text
from barnabas.terminal.runner import example, new_app

app = new_app("SQL on streams: a shell that talks to a server, and the server.")
OUTPUTS = ("table", "json", "csv")


@app.callback(
    invoke_without_command=True,
    epilog=example(
        "barnabas sql",
        'barnabas sql -e "SHOW STREAMS;"',
        "barnabas sql -f clicks.sql --output json",
        "barnabas sql start -b localhost:9092",
    ),
)
def sql(
    context: typer.Context,
    url: Annotated[
        str,
        typer.Option(
            "-u", "--url", "--server", envvar="BARNABAS_SQL", metavar="URL", help="The server to talk to."
        ),
    ] = f"http://{SQL.listen}",
    execute: Annotated[
        list[str] | None,
        typer.Option("-e", "--execute", metavar="SQL", help="Run these statements, and end."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", metavar="FILE", help="Run the statements of a file, and end."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", metavar="table|json|csv", help="How answers are written.")
    ] = "table",
) -> int:
    """Run statements of SQL on streams: typed in a shell, or given with -e and -f."""
    if context.invoked_subcommand is not None:
        return EXIT_OK
    if output.lower() not in OUTPUTS:
        raise UsageError(f"--output is {output!r}; allowed: {', '.join(OUTPUTS)}")
    try:
        from barnabas.cli.sql.client import Refused, SqlClient
        from barnabas.cli.sql.shell import Shell, lines_of
    except ImportError as error:
        raise CliError(needs_extra("SQL", error.name, "pipelines")) from None
    shell = Shell(SqlClient(url), output.lower())
    texts = list(execute or [])
    if file is not None:
        texts.append(read_text(file))
    if texts:
        try:
            for text in lines_of(texts):
                shell.run(text)
        except Refused as error:
            print(error, file=sys.stderr)
            return EXIT_FAILED
        return EXIT_OK
    shell.interact(profiles.path().with_name("sql_history"))
    return EXIT_OK


add_start(app, SQL)
app.add_typer(migrate.app, name="migrate")
app.command(
    name="test",
    epilog=example(
        "barnabas sql test cases/",
        "barnabas sql test --sql-file clicks.sql --input-file in.json --output-file out.json",
    ),
)(trial.run_cases)
