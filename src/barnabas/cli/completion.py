"""Shell completion: `eval "$(barnabas completion bash)"`, and the answers to what the shell then asks.

The shell calls `barnabas` with `_BARNABAS_COMPLETE` set and the words typed so far in the
environment. Only the module of the command being typed is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from barnabas.cli.commands import BY_NAME, COMMANDS
from barnabas.terminal.errors import EXIT_OK, EXIT_USAGE

SCRIPTS: Final = {
    "bash": """\
_barnabas() {
    local IFS=$'\\n'
    COMPREPLY=($(_BARNABAS_COMPLETE=1 barnabas "$COMP_CWORD" "${COMP_WORDS[@]}"))
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _barnabas barnabas
_barnabas_kafka() {
    local IFS=$'\\n' tool=${COMP_WORDS[0]##*/}
    COMPREPLY=($(_BARNABAS_COMPLETE=1 barnabas $((COMP_CWORD + 2)) barnabas kafka "${tool%.sh}" "${COMP_WORDS[@]:1}"))
    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _barnabas_kafka @TOOLS@
""",
    "zsh": """\
_barnabas() {
    local -a found
    found=(${(f)"$(_BARNABAS_COMPLETE=1 barnabas $((CURRENT - 1)) "${words[@]}")"})
    if (( ${#found} )); then compadd -a found; else _files; fi
}
compdef _barnabas barnabas
_barnabas_kafka() {
    local -a found
    local tool=${${words[1]:t}%.sh}
    found=(${(f)"$(_BARNABAS_COMPLETE=1 barnabas $((CURRENT + 1)) barnabas kafka $tool "${(@)words[2,-1]}")"})
    if (( ${#found} )); then compadd -a found; else _files; fi
}
compdef _barnabas_kafka @TOOLS@
""",
    "fish": """\
function __barnabas
    _BARNABAS_COMPLETE=1 barnabas (count (commandline -opc)) (commandline -opc) (commandline -ct)
end
complete -c barnabas -f -a "(__barnabas)"
function __barnabas_kafka
    set -l typed (commandline -opc)
    set -l tool (string replace -r '.sh$' '' (basename $typed[1]))
    _BARNABAS_COMPLETE=1 barnabas (math (count $typed) + 2) barnabas kafka $tool $typed[2..-1] (commandline -ct)
end
for tool in @TOOLS@
    complete -c $tool -f -a "(__barnabas_kafka)"
end
""",
}


def main(arguments: Sequence[str]) -> int:
    """`barnabas completion SHELL`: print the script that turns completion on."""
    if len(arguments) == 1 and arguments[0] in SCRIPTS:
        from barnabas.kafka_tools.main import TOOLS

        tools = " ".join(name for tool in TOOLS for name in (tool.name, f"{tool.name}.sh"))
        print(SCRIPTS[arguments[0]].replace("@TOOLS@", tools), end="")
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
    if not before:
        return ["--help", "--version"] if typed.startswith("-") else [command.name for command in COMMANDS]
    if before[0] == "--profile":
        return profile_names() if len(before) == 1 else candidates(before[2:], typed)
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
    from barnabas.terminal.runner import command_of

    named = name_candidates(before, typed)
    if named is not None:
        return named
    node: Any = command_of(module.app)
    for word in before[1:]:
        node = getattr(node, "commands", {}).get(word, node)
    if hasattr(node, "commands") and not typed.startswith("-"):
        return list(node.commands)
    return [name for parameter in node.params for name in parameter.opts if name.startswith("-")] + ["--help"]


NAMES_OF: Final = {"-t": "topic", "--topic": "topic", "-g": "group", "-G": "group", "--group": "group"}
"""Options whose value is the name of something in the cluster."""
COMMANDS_OF: Final = {"produce": "topic", "consume": "topic"}
SUBCOMMANDS_OF: Final = {
    **{f"topic {name}": "topic" for name in ("describe", "alter", "delete", "offsets", "trim")},
    **{f"group {name}": "group" for name in ("describe", "delete", "reset", "export")},
}
KAFKA_NAMES: Final = {"--topic": "topic", "--group": "group"}


def name_candidates(before: Sequence[str], typed: str) -> list[str] | None:
    """Topics, groups, profiles or topic options, if one of them is expected here; else None."""
    last = before[-1]
    if last in ("-c", "--config", "--unset") and before[0] == "topic":
        from barnabas.config.topic_options import TOPIC

        return [f"{name}{'' if last == '--unset' else '='}" for name in TOPIC.names()]
    kind = NAMES_OF.get(last)
    if kind is None and not typed.startswith("-"):
        kind = COMMANDS_OF.get(before[0]) or SUBCOMMANDS_OF.get(" ".join(before[:2]))
    return None if kind is None else names_in_cluster(kind, option_of(before, ("-b", "--bootstrap")))


def option_of(words: Sequence[str], names: Sequence[str]) -> str | None:
    """The value of an option that was typed already."""
    return next((words[i + 1] for i, word in enumerate(words[:-1]) if word in names), None)


def profile_names() -> list[str]:
    """The clusters that are known by name; none when the file cannot be read."""
    from barnabas.terminal import profiles
    from barnabas.terminal.errors import CliError

    try:
        return list(profiles.read()[1])
    except CliError:
        return []


def names_in_cluster(kind: str, bootstrap: str | None) -> list[str]:
    """Topics or groups; none when the cluster does not answer at once, because the shell is waiting."""
    from barnabas.terminal.administering import administer
    from barnabas.terminal.errors import CliError

    try:
        with administer(bootstrap, None) as admin:
            if kind == "topic":
                return list(admin.topics.list())
            return [row.name for rows in admin.groups.list().done.values() for row in rows]
    except CliError:
        return []


def kafka_candidates(before: Sequence[str], typed: str) -> list[str]:
    """Kafka's tools, then the options of the tool that was typed."""
    import importlib

    from barnabas.kafka_tools.main import BY_NAME, TOOLS

    if not before:
        return [tool.name.removeprefix("kafka-") for tool in TOOLS]
    tool = BY_NAME.get(f"kafka-{before[0].removeprefix('kafka-')}")
    if tool is None:
        return []
    if before[-1] in KAFKA_NAMES:
        return names_in_cluster(
            KAFKA_NAMES[before[-1]], option_of(before, ("--bootstrap-server", "--broker-list"))
        )
    if not typed.startswith("-"):
        return []
    module = importlib.import_module(f"barnabas.kafka_tools.{tool.module}")
    return (
        [f"--{option.name}" for option in module.TOOL.options if not option.old]
        if hasattr(module, "TOOL")
        else []
    )


def options_of_parser(parser: Any) -> list[str]:
    """All option names of an argparse parser."""
    return [name for action in parser._actions for name in action.option_strings]
