"""Shell completion: `eval "$(barnabas completion bash)"`, and what the shell then asks.

The shell calls `barnabas` with `_BARNABAS_COMPLETE` set and the words typed so far in the
environment. Only the module of the command being typed is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from barnabas.cli.errors import EXIT_OK, EXIT_USAGE

SCRIPTS: Final = {
    "bash": """\
_barnabas() {
    local IFS=$'\\n'
    COMPREPLY=($(_BARNABAS_COMPLETE=1 barnabas "$COMP_CWORD" "${COMP_WORDS[@]}"))
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _barnabas barnabas
""",
    "zsh": """\
_barnabas() {
    local -a found
    found=(${(f)"$(_BARNABAS_COMPLETE=1 barnabas $((CURRENT - 1)) "${words[@]}")"})
    if (( ${#found} )); then compadd -a found; else _files; fi
}
compdef _barnabas barnabas
""",
    "fish": """\
function __barnabas
    _BARNABAS_COMPLETE=1 barnabas (count (commandline -opc)) (commandline -opc) (commandline -ct)
end
complete -c barnabas -f -a "(__barnabas)"
""",
}


def main(arguments: Sequence[str]) -> int:
    """`barnabas completion SHELL`: print the script that turns completion on."""
    if len(arguments) == 1 and arguments[0] in SCRIPTS:
        print(SCRIPTS[arguments[0]], end="")
        return EXIT_OK
    wants_help = bool({"-h", "--help"} & set(arguments))
    print(
        "Usage: barnabas completion bash|zsh|fish\n\n"
        "Print the script that completes commands and options.\n\n"
        'Example:\n  eval "$(barnabas completion bash)"   # in ~/.bashrc',
        file=sys.stdout if wants_help else sys.stderr,
    )
    return EXIT_OK if wants_help else EXIT_USAGE


def complete(arguments: Sequence[str]) -> int:
    """Print the candidates for word arguments[0] (a number) of the words arguments[1:], one per line."""
    try:
        index, words = int(arguments[0]), list(arguments[1:])
    except (IndexError, ValueError):
        return EXIT_USAGE
    typed = words[index] if index < len(words) else ""
    for candidate in candidates(words[1:index], typed):
        if candidate.startswith(typed):
            print(candidate)
    return EXIT_OK


def candidates(before: Sequence[str], typed: str) -> list[str]:
    """What may stand after the words `before`: commands, then subcommands, then options."""
    from barnabas.cli.main import BY_NAME, COMMANDS

    if not before:
        return ["--help", "--version"] if typed.startswith("-") else [command.name for command in COMMANDS]
    command = BY_NAME.get(before[0])
    if command is None:
        return []
    module = command.load()
    if command.name == "kafka":
        return kafka_candidates(before[1:], typed)
    if command.plain:
        if hasattr(module, "parser"):
            return options_of_parser(module.parser()) if typed.startswith("-") else []
        return list(SCRIPTS) if module.__name__ == __name__ else []
    import typer

    node: Any = typer.main.get_command(module.app)
    for word in before[1:]:
        node = getattr(node, "commands", {}).get(word, node)
    if hasattr(node, "commands") and not typed.startswith("-"):
        return list(node.commands)
    return [name for parameter in node.params for name in parameter.opts if name.startswith("-")] + ["--help"]


def kafka_candidates(before: Sequence[str], typed: str) -> list[str]:
    """Kafka's tools, then the options of the one that was typed."""
    import importlib

    from barnabas.cli.kafka.main import BY_NAME, TOOLS

    if not before:
        return [tool.name.removeprefix("kafka-") for tool in TOOLS]
    tool = BY_NAME.get(f"kafka-{before[0].removeprefix('kafka-')}")
    if tool is None or not typed.startswith("-"):
        return []
    module = importlib.import_module(f"barnabas.cli.kafka.{tool.module}")
    return (
        [f"--{option.name}" for option in module.TOOL.options if not option.old]
        if hasattr(module, "TOOL")
        else []
    )


def options_of_parser(parser: Any) -> list[str]:
    """All option names of an argparse parser."""
    return [name for action in parser._actions for name in action.option_strings]
