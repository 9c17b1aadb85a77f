"""The entry point `barnabas`: runs one command and imports only what that needs.

`barnabas start` must be ready in under half a second, and scripts run commands hundreds of times, so the table of
`commands.py` is plain data: the overview is printed from it, and only the module of
the chosen command is imported (typer, librdkafka and rich come with the modules that use them).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

from barnabas import __version__
from barnabas.cli.commands import BY_NAME, COMMANDS
from barnabas.terminal.ending import end_process
from barnabas.terminal.errors import EXIT_OK, EXIT_USAGE

BOOTSTRAP: Final = ("-b", "--bootstrap", "--bootstrap-server")
EXAMPLE: Final = """\
Example:
  barnabas start &
  barnabas topic create greetings --partitions 3
  echo 'hello' | barnabas produce greetings
  barnabas consume greetings -e
"""


def overview() -> str:
    """The text of `barnabas --help`."""
    width = max(len(command.name) for command in COMMANDS)
    lines = [f"  {command.name:<{width}}  {command.help}" for command in COMMANDS]
    return (
        "Usage: barnabas COMMAND [OPTIONS]\n\n"
        "A Kafka-compatible streaming platform: broker, tools and pipelines.\n\n"
        "Commands:\n" + "\n".join(lines) + "\n\n"
        "Options:\n"
        "  --profile NAME  A cluster of ~/.config/barnabas/profiles.toml.\n"
        "  --version       Print the version and leave.\n"
        "  --help          Print this page; `barnabas COMMAND --help` has options and an example.\n\n"
        "Environment:\n"
        "  BARNABAS_BOOTSTRAP  HOST:PORT[,HOST:PORT] of the cluster (default localhost:9092).\n"
        "  BARNABAS_PROFILE    As --profile.\n\n" + EXAMPLE
    )


def nearest(name: str) -> str:
    """A hint for a mistyped command; empty when no command is similar."""
    from difflib import get_close_matches

    similar = get_close_matches(name, BY_NAME, n=1)
    return f"; did you mean `barnabas {similar[0]}`?" if similar else "; `barnabas --help` lists them"


def run(arguments: Sequence[str]) -> int:
    """Run one command line (without the program's name) and return its exit code."""
    if os.environ.get("_BARNABAS_COMPLETE"):
        from barnabas.cli.completion import complete

        return complete(arguments)
    if not arguments:
        print(overview(), end="")
        return EXIT_USAGE
    if arguments[0].startswith("--profile"):
        return run_with_profile(arguments)
    if arguments[0].partition("=")[0] in BOOTSTRAP:
        return run_with_bootstrap(arguments)
    name, rest = arguments[0], list(arguments[1:])
    if name in ("-h", "--help", "help"):
        if rest and rest[0] in BY_NAME:
            return run([rest[0], *rest[1:], "--help"])
        print(overview(), end="")
        return EXIT_OK
    if name in ("-V", "--version", "version"):
        print(f"barnabas {__version__}")
        return EXIT_OK
    command = BY_NAME.get(name)
    if command is None:
        print(f"barnabas: no command {name!r}{nearest(name)}", file=sys.stderr)
        return EXIT_USAGE
    module = command.load()
    if command.plain:
        plain: int = module.main(rest)
        return plain
    from barnabas.terminal.runner import run_app

    return run_app(module.app, f"barnabas {name}", rest)


def run_with_profile(arguments: Sequence[str]) -> int:
    """`barnabas --profile NAME COMMAND ...`: the profile of this process and its children."""
    option, equals, name = arguments[0].partition("=")
    rest = list(arguments[1:])
    if not equals and rest:
        name = rest.pop(0)
    if option != "--profile" or not name:
        print("barnabas: --profile needs the name of a profile; `barnabas profile list`", file=sys.stderr)
        return EXIT_USAGE
    os.environ["BARNABAS_PROFILE"] = name
    return run(rest)


def run_with_bootstrap(arguments: Sequence[str]) -> int:
    """`barnabas -b HOST:PORT COMMAND ...`: the same as the option behind the command."""
    option, equals, address = arguments[0].partition("=")
    rest = list(arguments[1:])
    if not equals and rest:
        address = rest.pop(0)
    if not address or not rest or rest[0].startswith("-"):
        print(
            f"barnabas: {option} needs an address and a command, like {option} localhost:9092 topic list",
            file=sys.stderr,
        )
        return EXIT_USAGE
    os.environ["BARNABAS_BOOTSTRAP"] = address
    return run(rest)


def main() -> None:
    """Entry point of the `barnabas` script."""
    end_process("barnabas", lambda: run(sys.argv[1:]))


if __name__ == "__main__":
    main()
