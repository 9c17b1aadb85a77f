"""The entry point `barnabas`: picks one command and imports nothing that it does not need.

`barnabas start` must answer in under half a second and pipes are started hundreds of times by
scripts, so the table below is plain data: the overview is printed from it, and only the module of
the chosen command is imported (typer, librdkafka and rich come with the modules that use them).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from barnabas import __version__
from barnabas.cli.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE


class Command(NamedTuple):
    """One command. `module` has `main(arguments) -> int` when `plain`, else a typer `app`.

    also: further modules that register subcommands on the same `app`.
    """

    name: str
    module: str
    help: str
    plain: bool = False
    also: tuple[str, ...] = ()

    def load(self) -> Any:
        """The module with all its subcommands."""
        module = importlib.import_module(self.module)
        for name in self.also:
            importlib.import_module(name)
        return module


COMMANDS: Final = (
    Command("start", "barnabas.cli.start", "Start a broker.", plain=True),
    Command(
        "topic",
        "barnabas.cli.topic",
        "Create, list, describe, alter, delete and trim topics.",
        also=("barnabas.cli.topic_records",),
    ),
    Command("produce", "barnabas.cli.produce", "Send lines of standard input or of files to a topic."),
    Command("consume", "barnabas.cli.consume", "Write records of topics to standard output."),
    Command(
        "group",
        "barnabas.cli.group",
        "List, describe, delete consumer groups; move their offsets.",
        also=("barnabas.cli.group_reset",),
    ),
    Command("cluster", "barnabas.cli.cluster", "Show brokers, topics and leaders of a cluster."),
    Command("clients", "barnabas.cli.clients", "Show connected clients and the versions they speak."),
    Command("config", "barnabas.cli.config", "Show and change options of topics, brokers and groups."),
    Command("quota", "barnabas.cli.quota", "Show and change the quotas of users, clients and addresses."),
    Command(
        "log", "barnabas.cli.log", "Partitions on the brokers' disks: sizes, moves, what segment files hold."
    ),
    Command("perf", "barnabas.cli.perf", "Measure producing, consuming, and from send to receive."),
    Command("verify", "barnabas.cli.verify", "Produce and consume with a line of JSON for all that happens."),
    Command("agent", "barnabas.cli.agent.command", "Ship the lines of growing files into a topic."),
    Command("profile", "barnabas.cli.profile", "Show the clusters that are known by name."),
    Command(
        "pipeline",
        "barnabas.cli.pipeline",
        "Run a pipeline on Spark; preview it; replay its dead letters.",
        also=("barnabas.cli.pipeline_records",),
    ),
    Command("pipelines", "barnabas.cli.pipelines", "Run many pipelines in one server."),
    Command(
        "kafka", "barnabas.cli.kafka.main", "Kafka's own tools: kafka-topics and the others.", plain=True
    ),
    Command("completion", "barnabas.cli.completion", "Print the script for shell completion.", plain=True),
)
BY_NAME: Final = {command.name: command for command in COMMANDS}

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
    """A hint for a mistyped command; empty when nothing is near."""
    from difflib import get_close_matches

    found = get_close_matches(name, BY_NAME, n=1)
    return f"; did you mean `barnabas {found[0]}`?" if found else "; `barnabas --help` lists them"


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
    from barnabas.cli.runner import run_app

    return run_app(module.app, f"barnabas {name}", rest)


def run_with_profile(arguments: Sequence[str]) -> int:
    """`barnabas --profile NAME COMMAND ...`: for this process and what it starts."""
    option, equals, name = arguments[0].partition("=")
    rest = list(arguments[1:])
    if not equals and rest:
        name = rest.pop(0)
    if option != "--profile" or not name:
        print("barnabas: --profile needs the name of a profile; `barnabas profile list`", file=sys.stderr)
        return EXIT_USAGE
    os.environ["BARNABAS_PROFILE"] = name
    return run(rest)


def main() -> None:
    """Entry point of the `barnabas` script."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away, e.g. `barnabas topic list | head -1`: that is the normal end of a pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_OK
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)


if __name__ == "__main__":
    main()
