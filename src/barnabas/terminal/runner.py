"""Runs a typer app so that it ends with one-line errors and the exit codes of `errors.py`."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, get_type_hints

import typer

from barnabas.terminal.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, CliError, UsageError
from barnabas.terminal.options import OLD_NAMES, Quiet, Verbose
from barnabas.terminal.output import MANNER


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
    MANNER.quiet = MANNER.verbose = False
    MANNER.property_option, MANNER.address_option = "-X", "-b"
    MANNER.can_be_verbose = True
    command = command_of(app)
    arguments = expand_alias(list(arguments), getattr(command, "commands", {}))
    try:
        result = command.main(args=list(arguments), prog_name=program, standalone_mode=False)
    except CliError as error:
        say_error(whole_name(command, program, arguments), str(error))
        return error.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except SystemExit as leave:
        # click ends the process with 1 when the reader of the output is gone; that is the normal end of a pipe.
        if isinstance(leave.__context__, BrokenPipeError):
            raise leave.__context__ from None
        raise
    except Exception as error:
        # typer's usage errors are click's or typer's own by version; both know their exit code and text.
        describe = getattr(error, "format_message", None)
        if describe is None:
            raise
        where = getattr(getattr(error, "ctx", None), "command_path", program)
        if describe():
            message = without_harm(describe()).replace(". Did you mean", "; did you mean").rstrip(".")
            message = message if message.endswith("?") else f"{message};"
            say_error(where, f"{message} `{where} --help` shows an example")
        return int(getattr(error, "exit_code", EXIT_FAILED))
    return result if isinstance(result, int) else EXIT_OK


def whole_name(command: Any, program: str, arguments: Sequence[str]) -> str:
    """The name of the subcommand that the arguments choose, with those of the commands it belongs to."""
    words = [program]
    for word in arguments:
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            break
        words.append(word)
    return " ".join(words)


EVERYWHERE: Final = {"quiet": Quiet, "verbose": Verbose}
"""Options of every command; they are added to commands that do not declare them."""


LAST: Final = ("--bootstrap", "-X", "--json", "--quiet", "--verbose")
"""Options that nearly all commands have: every help shows them last and in this order."""


def command_of(app: typer.Typer) -> Any:
    """The click command of an app, with -q and -v on each of its subcommands, those of apps in it among them."""
    _add_manner(app)
    command = typer.main.get_command(app)
    put_in_order(command)
    return command


def _add_manner(app: typer.Typer) -> None:
    for registered in app.registered_commands:
        if registered.callback is not None and not hasattr(registered.callback, "has_manner"):
            registered.callback = with_manner(registered.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _add_manner(group.typer_instance)


def put_in_order(command: Any) -> None:
    """Move the options that nearly all commands have to the end and hide old names, here and in subcommands."""
    command.params.sort(key=place_of)
    for parameter in command.params:
        if not OLD_NAMES.isdisjoint(parameter.opts):
            parameter.get_help_record = functools.partial(help_without_old_names, parameter)
    for child in getattr(command, "commands", {}).values():
        put_in_order(child)


def help_without_old_names(parameter: Any, context: Any) -> Any:
    """What help shows of an option that has old names, too."""
    every = parameter.opts
    parameter.opts = [name for name in every if name not in OLD_NAMES]
    try:
        return type(parameter).get_help_record(parameter, context)
    finally:
        parameter.opts = every


def place_of(parameter: Any) -> int:
    """Where a parameter belongs: 0 for a command's own, then those of `LAST` by one of their names."""
    return next((1 + i for i, name in enumerate(LAST) if name in parameter.opts), 0)


def with_manner(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with -q and -v. They are passed to it only if it declares them; `MANNER` has them in any case."""
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)
    declared = {
        name: parameter.replace(annotation=hints.get(name, parameter.annotation))
        for name, parameter in signature.parameters.items()
    }
    added = {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option)
        for name, option in EVERYWHERE.items()
        if name not in declared
    }

    required = {
        name: argument_name(name, parameter.annotation)
        for name, parameter in declared.items()
        if parameter.default is inspect.Parameter.empty
    }

    @functools.wraps(command)
    def run(**arguments: Any) -> Any:
        MANNER.quiet, MANNER.verbose = arguments["quiet"], arguments["verbose"]
        for name, shown in required.items():
            if arguments[name] == "" or (isinstance(arguments[name], list) and "" in arguments[name]):
                raise UsageError(f"{shown} is '', but must not be empty")
        return command(**{name: value for name, value in arguments.items() if name not in added})

    run.__signature__ = signature.replace(parameters=[*declared.values(), *added.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, **EVERYWHERE}
    run.has_manner = True  # type: ignore[attr-defined]
    return run


def argument_name(name: str, annotation: Any) -> str:
    """What the help calls a parameter: the option, or the argument's metavar."""
    for item in getattr(annotation, "__metadata__", ()):
        # typer takes the first name in Annotated for the default.
        names = (getattr(item, "default", None), *(getattr(item, "param_decls", None) or ()))
        options = [shown for shown in names if isinstance(shown, str) and shown.startswith("--")]
        text = options[0] if options else getattr(item, "metavar", None)
        if text:
            return str(text)
    return name.upper()


ALIASES: Final = {"rm": "delete", "ls": "list", "show": "describe", "new": "create"}
HARMFUL: Final = ("trim", "delete", "reset", "unset")
SUGGESTION: Final = re.compile(r" Did you mean ([^?]*)\?")


def expand_alias(arguments: list[str], commands: Collection[str]) -> list[str]:
    """What people type out of habit: `rm` for `delete`, `ls` for `list`, if the command has that subcommand."""
    meant = ALIASES.get(arguments[0]) if arguments else None
    if meant is None or meant not in commands or arguments[0] in commands:
        return arguments
    return [meant, *arguments[1:]]


def without_harm(message: str) -> str:
    """The message without the suggestion of a command that destroys something."""
    suggestion = SUGGESTION.search(message)
    return (
        SUGGESTION.sub("", message)
        if suggestion and any(word in suggestion[1] for word in HARMFUL)
        else message
    )


def say_error(program: str, message: str) -> None:
    """One line on standard error, whatever the message holds."""
    sys.stdout.flush()
    MANNER.clear_line()
    print(f"{program}: {' '.join(message.split())}", file=sys.stderr)


def say_missing(program: str, noun: str, names: Iterable[str]) -> int:
    """Report everything that was asked for and does not exist; the exit code."""
    missing = list(dict.fromkeys(names))
    for name in missing:
        say_error(program, f"{name}: no such {noun}; `barnabas {noun} list` shows what is there")
    return EXIT_FAILED if missing else EXIT_OK
