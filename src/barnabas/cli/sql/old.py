"""`ksql`: the shell under its old name, with the options that lessons type.

ksql                                     the server at http://localhost:8088
ksql http://server:8088
ksql -e "SHOW STREAMS;" http://server:8088
ksql --file demo.sql --output JSON
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from barnabas.terminal import profiles
from barnabas.terminal.ending import end_process
from barnabas.terminal.errors import EXIT_FAILED, EXIT_OK, CliError
from barnabas.terminal.files import read_text

NAME: Final = "ksql"
OUTPUTS: Final = {"TABULAR": "table", "TABLE": "table", "JSON": "json", "CSV": "csv"}
LOCAL: Final = (
    "`ksql local` started a server and a shell in one: start the server with `barnabas sql start -b HOST:PORT`, "
    "then type `ksql`"
)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        NAME, description="A shell for SQL on streams; the same as `barnabas sql`."
    )
    made.add_argument("server", nargs="*", help="the address of the server; default http://localhost:8088")
    made.add_argument("-e", "--execute", action="append", metavar="SQL", help="run statements, and end")
    made.add_argument("-f", "--file", type=Path, help="run the statements of a file, and end")
    made.add_argument("--output", default="TABULAR", type=str.upper, choices=sorted(OUTPUTS))
    made.add_argument("--query-row-limit", type=int, metavar="ROWS", help="the most rows that a query shows")
    made.add_argument("--query-timeout", type=int, metavar="MS", help="how long a query is followed")
    made.add_argument("-u", "--user", help="the name to log in with")
    made.add_argument("-p", "--password", help="the password to log in with")
    made.add_argument("-d", "--define", action="append", default=[], metavar="NAME=VALUE", help="a variable")
    made.add_argument("--config-file", type=Path, metavar="FILE", help="properties, as SET gives them")
    made.add_argument("--bootstrap-server", help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str]) -> int:
    """Runs the shell; the exit code. Raises CliError."""
    given = _parser().parse_args(arguments)
    words = [word for word in given.server if word not in ("remote", "cli")]
    if "local" in words or given.bootstrap_server is not None:
        raise CliError(LOCAL)
    if len(words) > 1:
        raise CliError(f"one address of a server is expected, not {len(words)}: {' '.join(words)}")
    try:
        from barnabas.cli.sql.client import Refused, SqlClient
        from barnabas.cli.sql.shell import Shell, lines_of
    except ImportError as error:
        raise CliError(f"{error.name} is missing: pip install 'barnabas[pipelines]'") from None
    shell = Shell(SqlClient(_url(words, given.user, given.password)), OUTPUTS[given.output])
    shell.rows_max = given.query_row_limit
    shell.seconds_max = None if given.query_timeout is None else given.query_timeout / 1000
    for pair in given.define:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CliError(f"--define {pair}: write NAME=VALUE")
        shell.variables[name] = value.strip("'")
    if given.config_file is not None:
        shell.properties |= _properties(given.config_file)
    texts = list(given.execute or [])
    if given.file is not None:
        texts.append(read_text(given.file))
    if not texts:
        shell.interact(profiles.path().with_name("sql_history"))
        return EXIT_OK
    try:
        for text in lines_of(texts):
            shell.run(text)
    except Refused as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def _url(words: Sequence[str], user: str | None, password: str | None) -> str:
    url = words[0] if words else "http://localhost:8088"
    if "://" not in url:
        url = f"http://{url}"
    if user is None:
        return url
    parts = urlsplit(url)
    login = f"{quote(user, safe='')}:{quote(password or '', safe='')}"
    return parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}").geturl()


def _properties(file: Path) -> dict[str, str]:
    lines = [line.strip() for line in read_text(file).splitlines()]
    pairs = [line.partition("=") for line in lines if line and line[0] not in "#!"]
    return {name.strip(): value.strip() for name, _, value in pairs}


def script() -> None:
    """Entry point of ksql."""
    end_process(NAME, lambda: main(sys.argv[1:]))
