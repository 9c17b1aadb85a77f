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
    parser = argparse.ArgumentParser(
        NAME, description="A shell for SQL on streams; the same as `barnabas sql`."
    )
    parser.add_argument("server", nargs="*", help="the address of the server; default http://localhost:8088")
    parser.add_argument("-e", "--execute", action="append", metavar="SQL", help="run statements, and end")
    parser.add_argument("-f", "--file", type=Path, help="run the statements of a file, and end")
    parser.add_argument("--output", default="TABULAR", type=str.upper, choices=sorted(OUTPUTS))
    parser.add_argument(
        "--query-row-limit", type=int, metavar="ROWS", help="the most rows that a query shows"
    )
    parser.add_argument("--query-timeout", type=int, metavar="MS", help="how long a query is followed")
    parser.add_argument("-u", "--user", help="the name to log in with")
    parser.add_argument("-p", "--password", help="the password to log in with")
    parser.add_argument(
        "-d", "--define", action="append", default=[], metavar="NAME=VALUE", help="a variable"
    )
    parser.add_argument("--config-file", type=Path, metavar="FILE", help="properties, as SET gives them")
    parser.add_argument("--bootstrap-server", help=argparse.SUPPRESS)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs the shell; the exit code. Raises CliError."""
    options = _parser().parse_args(arguments)
    words = [word for word in options.server if word not in ("remote", "cli")]
    if "local" in words or options.bootstrap_server is not None:
        raise CliError(LOCAL)
    if len(words) > 1:
        raise CliError(f"one address of a server is expected, not {len(words)}: {' '.join(words)}")
    try:
        from barnabas.cli.sql.client import Refused, SqlClient
        from barnabas.cli.sql.shell import Shell, lines_of
    except ImportError as error:
        raise CliError(f"{error.name} is missing: pip install 'barnabas[pipelines]'") from None
    shell = Shell(SqlClient(_url(words, options.user, options.password)), OUTPUTS[options.output])
    shell.rows_max = options.query_row_limit
    shell.seconds_max = None if options.query_timeout is None else options.query_timeout / 1000
    for pair in options.define:
        name, equals, value = pair.partition("=")
        if not equals:
            raise CliError(f"--define {pair}: write NAME=VALUE")
        shell.variables[name] = value.strip("'")
    if options.config_file is not None:
        shell.properties |= _properties(options.config_file)
    texts = list(options.execute or [])
    if options.file is not None:
        texts.append(read_text(options.file))
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
