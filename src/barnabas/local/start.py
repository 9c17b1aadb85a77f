"""`barnabas start`: reads the options, builds the configuration, runs the broker.

Plain argparse: the broker's start-up is measured, and nothing of typer or librdkafka is needed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from barnabas.services.with_broker import add_options, companion_of, registry_option, warnings_of
from barnabas.terminal.errors import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    CliError,
    discard_output,
    flush_output,
    write_output,
)

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    from barnabas.config.loader import BrokerConfig

DEFAULT_PORT: Final = 9092
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
ADDRESS_OPTIONS: Final = {"listeners", "port", "host.name"}
EPILOG = """\
Example:
  barnabas start
  barnabas start --data /var/lib/barnabas --listen 0.0.0.0:9092
  barnabas start --config server.properties -o log.retention.hours=24

The broker prints one line that begins with `ready` once it accepts connections. SIGTERM or Ctrl-C
stops it cleanly. Options given here take precedence over the file.
"""


def default_data_dir() -> Path:
    """Where a broker keeps its log by default: the same place, from whatever folder it is started."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "barnabas"


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """The words and the width of the other commands' help."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=min(110, shutil.get_terminal_size().columns))

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        super().add_usage("%(prog)s [OPTIONS]" if usage is None else usage, actions, groups, "Usage: ")


class Parser(argparse.ArgumentParser):
    """Errors are one line and the help reads as those of every other command."""

    def __init__(self, prog: str, description: str, epilog: str) -> None:
        super().__init__(
            prog, description=description, epilog=epilog, formatter_class=HelpFormatter, add_help=False
        )
        self._optionals.title = "Options"
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Raises CliError, BrokenPipeError; argparse itself would say nothing of an output that takes no help."""
        if file is not None:
            super().print_help(file)
        else:
            write_output(self.format_help())

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2."""
        print(f"{self.prog}: {message}; `{self.prog} --help` shows an example", file=sys.stderr)
        raise SystemExit(EXIT_USAGE)


def parser() -> argparse.ArgumentParser:
    """The options of `barnabas start`."""
    options = Parser(
        prog="barnabas start",
        description="Start a broker in the foreground.",
        epilog=EPILOG,
    )
    options.add_argument(
        "--data",
        metavar="DIR",
        help=f"Folder of the log (log.dirs). Default: what the file says, or {default_data_dir()}.",
    )
    options.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="Address to listen on (listeners); 0.0.0.0:9092 lets everybody on the network in. Default: what the file "
        "says, or localhost:9092.",
    )
    options.add_argument(
        "--secure",
        metavar="DIR",
        type=Path,
        help="Listen with TLS and logins only, with the files that `barnabas security init DIR` has written.",
    )
    options.add_argument(
        "--config", metavar="FILE", type=Path, help="A server.properties with Kafka's names."
    )
    options.add_argument(
        "-o",
        "--option",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="Set one option of server.properties; may be repeated.",
    )
    add_options(options)
    options.add_argument(
        "--log-level",
        default="INFO",
        type=str.upper,
        choices=LEVELS,
        metavar="LEVEL",
        help="DEBUG, INFO, WARNING or ERROR. Default: INFO.",
    )
    options.add_argument(
        "--log-file",
        type=Path,
        metavar="FILE",
        help="Write the log there instead of standard error, to at most five files of 10 MB.",
    )
    options.add_argument(
        "--log-format",
        default="text",
        choices=("text", "json"),
        metavar="FORMAT",
        help="What each message is: text (a line) or json (an object). Default: text.",
    )
    options.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="Run N brokers on this machine, with consecutive node ids and ports. Default: 1.",
    )
    options.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return options


def properties_name(line: str) -> str:
    """The option name in one line of a properties file; empty for comments."""
    text = line.strip()
    return "" if text.startswith(("#", "!")) else text.replace(":", "=", 1).partition("=")[0].strip()


def overrides_from(options: argparse.Namespace) -> dict[str, str]:
    """Broker options that the command line sets. Raises ValueError for an option that cannot be read."""
    overrides: dict[str, str] = {}
    for item in options.option:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"-o {item!r} is not NAME=VALUE, for example -o log.retention.hours=24")
        overrides[name.strip()] = value.strip()
    if options.data is not None:
        if not options.data.strip():
            raise ValueError("--data '' names no folder, for example --data /var/lib/barnabas")
        overrides["log.dirs"] = str(Path(options.data).expanduser().absolute())
    protocol = "PLAINTEXT"
    if options.secure is not None:
        from barnabas.security import folder

        protocol = "SASL_SSL"
        overrides.update(folder.options(options.secure.expanduser().absolute()))
    if options.listen is not None:
        overrides["listeners"] = f"{protocol}://{listen_address(options.listen)}"
    names = set(overrides)
    if options.config is not None and options.config.is_file():
        names |= {properties_name(line) for line in options.config.read_text("utf-8", "replace").splitlines()}
    if (options.config is None or options.secure is not None) and not names & ADDRESS_OPTIONS:
        # Without passwords everybody who can reach the port may read and write, so by default only this machine can.
        overrides["listeners"] = f"{protocol}://localhost:{DEFAULT_PORT}"
    if options.secure is not None and not names & {
        "inter.broker.listener.name",
        "security.inter.broker.protocol",
    }:
        between = folder.between_options(options.secure.expanduser().absolute())
        overrides = {**between, **overrides}
    if not names & {"log.dirs", "log.dir"}:
        overrides["log.dirs"] = str(default_data_dir())
    return overrides


def listen_address(text: str) -> str:
    """HOST:PORT as given, checked; `:PORT` and `PORT` listen on localhost. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--listen {text!r} is not HOST:PORT, for example --listen localhost:9092")
    return f"{host or 'localhost'}:{port}"


def with_workers(
    options: argparse.Namespace, overrides: dict[str, str], config: BrokerConfig
) -> tuple[BrokerConfig, list[list[str]]]:
    """(the first worker's configuration, the commands of the others). Raises ValueError."""
    from barnabas.config.loader import load
    from barnabas.local import workers

    if not 1 < options.workers <= workers.WORKERS_MAX:
        raise ValueError(f"--workers {options.workers}: 1 to {workers.WORKERS_MAX} are possible")
    registry = {n: v for n, v in registry_option(options).items() if config.texts(n) is None}
    shared = {**overrides, **registry, **workers.shared_options(config)}
    commands = [
        workers.command_for(options, {**shared, **workers.other_options(config, number)}, number)
        for number in range(2, options.workers + 1)
    ]
    return load(file=options.config, overrides={**shared, **workers.first_options(config)}), commands


def main(arguments: Sequence[str]) -> int:
    """Run the broker until a signal stops it; its exit code."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else EXIT_OK
    try:
        overrides = overrides_from(options)
        companion = companion_of(options)
    except ValueError as error:
        print(f"barnabas start: {error}", file=sys.stderr)
        # A file that cannot be read is no mistake in the command line.
        return EXIT_USAGE if options.secure is None or type(error) is ValueError else EXIT_FAILED
    from barnabas.config.loader import load
    from barnabas.config.option import ConfigError

    try:
        config = load(file=options.config, overrides=overrides)
    except ConfigError as error:
        print(f"barnabas start: {error}", file=sys.stderr)
        return EXIT_FAILED
    except OSError as error:
        print(f"barnabas start: cannot read {options.config}: {error.strerror}", file=sys.stderr)
        return EXIT_FAILED
    from barnabas.broker.main import run
    from barnabas.observe.logs import LogSettings

    workers: list[list[str]] = []
    if options.workers != 1:
        try:
            config, workers = with_workers(options, overrides, config)
        except ValueError as error:
            print(f"barnabas start: {error}", file=sys.stderr)
            return EXIT_USAGE
    known = config.texts("confluent.schema.registry.url") is not None
    for warning in warnings_of(options, knows_registry=known):
        print(f"barnabas start: {warning}", file=sys.stderr)
    settings = LogSettings(options.log_level, options.log_file, options.log_format)
    try:
        code: int = run(config, settings, workers=workers, is_worker=options.worker, companion=companion)
    except OSError as error:
        if options.log_file is None or error.filename != str(options.log_file.absolute()):
            raise
        print(
            f"barnabas start: cannot write --log-file {options.log_file}: {error.strerror}", file=sys.stderr
        )
        return EXIT_FAILED
    try:
        flush_output()
    except CliError:
        discard_output()  # the line that begins with `ready`; the broker's log says that it could not be written
    return code
