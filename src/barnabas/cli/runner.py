"""Runs a typer app with our own way of ending: one-line errors and exit codes of `errors.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import typer

from barnabas.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, CliError


def new_app(help: str) -> typer.Typer:
    """A typer app as all commands use it: plain help (it must read well in a pipe), no panels."""
    return typer.Typer(
        help=help,
        add_completion=False,
        no_args_is_help=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    )


def example(*lines: str) -> str:
    """An epilog whose lines stay as they are (click wraps all but paragraphs marked so)."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def run_app(app: typer.Typer, program: str, arguments: Sequence[str]) -> int:
    """Run `app` on `arguments`; the exit code. Errors go to standard error as one line."""
    command = typer.main.get_command(app)
    try:
        result = command.main(args=list(arguments), prog_name=program, standalone_mode=False)
    except CliError as error:
        grouped = bool(app.registered_groups) or len(app.registered_commands) > 1
        chosen = [program, *arguments[:1]] if grouped else [program]
        say_error(" ".join(chosen), str(error))
        return error.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except Exception as error:
        # typer's usage errors are click's or typer's own by version; both know their exit code and text.
        describe = getattr(error, "format_message", None)
        if describe is None:
            raise
        where = getattr(getattr(error, "ctx", None), "command_path", program)
        if describe():
            say_error(where, f"{describe().rstrip('.')}; `{where} --help` shows an example")
        return int(getattr(error, "exit_code", EXIT_FAILED))
    return result if isinstance(result, int) else EXIT_OK


def say_error(program: str, message: str) -> None:
    """One line on standard error, whatever the message holds."""
    sys.stdout.flush()
    print(f"{program}: {' '.join(message.split())}", file=sys.stderr)


def say_missing(program: str, noun: str, names: Iterable[str]) -> int:
    """Tell of each thing that was asked for and is not there; the exit code."""
    missing = list(dict.fromkeys(names))
    for name in missing:
        say_error(program, f"{name}: no such {noun}; `barnabas {noun} list` shows what is there")
    return EXIT_FAILED if missing else EXIT_OK
