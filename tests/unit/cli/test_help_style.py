"""The help of all commands is written in one style: the rules below, over every command, argument and option."""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from barnabas.cli import commands
from barnabas.terminal.options import OLD_NAMES
from barnabas.terminal.runner import command_of

OTHER_GRAMMAR = {"kafka", "completion"}
"""Kafka's own tools have Kafka's help; completion prints a script."""

COMMON = ("--bootstrap", "-X", "--json", "--quiet", "--verbose")
"""Options of nearly all commands: they come last in every help, in this order."""

VERBS = frozenset(
    [
        "Abort",
        "Add",
        "Allow",
        "Ask",
        "Change",
        "Check",
        "Compare",
        "Continue",
        "Copy",
        "Create",
        "Delete",
        "Export",
        "Find",
        "Have",
        "Import",
        "Kill",
        "List",
        "Make",
        "Measure",
        "Move",
        "Pause",
        "Print",
        "Process",
        "Put",
        "Raise",
        "Read",
        "Refuse",
        "Register",
        "Remove",
        "Repair",
        "Restore",
        "Run",
        "Send",
        "Serve",
        "Set",
        "Ship",
        "Show",
        "Start",
        "Stop",
        "Take",
        "Tell",
        "Write",
    ]
)
"""With one of these the help of a command begins: it says what to do, as the command's name does."""

SEVERAL_MEANINGS = {
    "--config": "a broker's file, or an option of a topic as in kafka-topics --config",
    "--null": "produce sends null for empty, consume writes a text for null",
    "--json": "also -J where records, not results, are JSON",
    "--topic": "one topic, a topic with partitions, or a pattern of access rules",
    "--with": "a service",
    "--name": "a name of its own in each command",
    "--key": "produce: a text; agent: where the key comes from",
    "--state": "of groups and transactions; agent: the folder of what it remembers",
    "--from": "where to begin: a place in topics, or a key of a view",
    "--to": "where to end: a place of a group, or a key of a view",
    "--output": "an output of a pipeline, or the format of a plot",
    "--as": "the topic's new name, or the user for whom an assistant asks",
    "--before": "a place in topics, or a time",
    "--until": "a time, or the version of a migration",
    "--schema": "produce may also name a file",
    "--metrics": "start: where they are served; clients: which ones are shown",
}
"""Options whose values differ from command to command, and why."""

LETTERS_OF_KCAT = {"-G", "-K"}
"""Further letters of commands that kcat has too."""

UNITS = {"ms": "MS", "s": "SECONDS", "mb": "MB", "bytes": "BYTES"}
"""Endings of names of options, and what their values are then called."""


class Option(NamedTuple):
    """One option of one command. `value` is None for a flag."""

    command: str
    names: tuple[str, ...]
    value: str | None
    help: str
    repeats: bool
    default_is_shown: bool

    @property
    def name(self) -> str:
        return next((name for name in self.names if name.startswith("--")), self.names[0])


class Argument(NamedTuple):
    """One argument of one command."""

    command: str
    value: str | None
    help: str


class Command(NamedTuple):
    """One command that runs something; `options` in the order of its help."""

    path: str
    help: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...]


def from_click(path: str, node: Any) -> Iterator[Command]:
    children = getattr(node, "commands", None)
    if children is not None:
        for name, child in children.items():
            yield from from_click(f"{path} {name}", child)
        return
    options, arguments = [], []
    for parameter in node.params:
        if parameter.param_type_name == "argument":
            arguments.append(Argument(path, parameter.metavar, parameter.help or ""))
            continue
        if parameter.hidden:
            continue
        names = tuple(name for name in parameter.opts if name not in OLD_NAMES)
        value = None if parameter.is_flag else parameter.metavar or "(none)"
        shown = bool(parameter.show_default) and parameter.default not in (None, "", False)
        options.append(Option(path, names, value, parameter.help or "", bool(parameter.multiple), shown))
    yield Command(path, node.help or "", tuple(options), tuple(arguments))


def from_argparse(path: str, parser: argparse.ArgumentParser) -> Iterator[Command]:
    options = []
    for action in parser._actions:
        if action.help in (argparse.SUPPRESS, None) or "--help" in action.option_strings:
            continue
        value = None if action.nargs == 0 else str(action.metavar or "(none)")
        repeats = isinstance(action, argparse._AppendAction)
        options.append(Option(path, tuple(action.option_strings), value, str(action.help), repeats, False))
    yield Command(path, parser.description or "", tuple(options), ())


def every_command() -> Iterator[Command]:
    for command in commands.COMMANDS:
        if command.name in OTHER_GRAMMAR:
            continue
        module = command.load()
        if command.plain:
            yield from from_argparse(command.name, module.parser())
        else:
            yield from from_click(command.name, command_of(module.app))


ALL = list(every_command())
OPTIONS = [option for command in ALL for option in command.options]
ARGUMENTS = [argument for command in ALL for argument in command.arguments]


def is_sentence(text: str) -> bool:
    """Begins with a capital or with a value that can be typed, and ends with a full stop."""
    return bool(re.match(r"[A-Z\-.^%`0-9]|[a-z_\-]+(,| or|:|\.| \()", text)) and text.endswith(".")


def wrong_with(text: str) -> list[str]:
    """What is not in style in any help text."""
    complaints = []
    if not is_sentence(text):
        complaints.append("is no sentence that begins with a capital and ends with a full stop")
    if re.search(r"[;,(] ?default\b|Default(?!: )|default:", text):
        complaints.append("gives its default in other words than the sentence `Default: X.`")
    if re.search(r"[Ee]xit code", re.sub(r"(^|\. )Exit code \d: ", "", text)):
        complaints.append("tells of an exit code in other words than `Exit code N: when.`")
    return complaints


@pytest.mark.parametrize("command", ALL, ids=lambda command: str(command.path))
def test_a_command_says_what_to_do(command: Command) -> None:
    assert command.help.split()[0] in VERBS, command.help
    assert wrong_with(" ".join(command.help.split())) == []


@pytest.mark.parametrize("command", commands.COMMANDS, ids=lambda command: str(command.name))
def test_the_list_of_commands_is_in_the_same_style(command: commands.Command) -> None:
    assert is_sentence(command.help)


@pytest.mark.parametrize("command", ALL, ids=lambda command: str(command.path))
def test_every_option_is_explained_by_a_sentence(command: Command) -> None:
    wrong = {option.name: wrong_with(option.help) for option in command.options}
    assert {name: what for name, what in wrong.items() if what} == {}


@pytest.mark.parametrize("command", ALL, ids=lambda command: str(command.path))
def test_every_value_has_a_name(command: Command) -> None:
    unnamed = [option.name for option in command.options if option.value == "(none)"]
    unnamed += [str(argument.value) for argument in command.arguments if not argument.value]
    assert unnamed == []


def test_arguments_are_explained_by_sentences_or_by_their_names() -> None:
    wrong = {
        (argument.command, argument.value): wrong_with(argument.help)
        for argument in ARGUMENTS
        if argument.help
    }
    assert {place: what for place, what in wrong.items() if what} == {}


def test_options_that_may_be_repeated_say_so() -> None:
    differ = [
        (option.command, option.name)
        for option in OPTIONS
        if option.repeats != ("may be repeated" in option.help.lower())
    ]
    assert differ == []


def test_a_default_is_told_once() -> None:
    twice = [
        (option.command, option.name)
        for option in OPTIONS
        if option.default_is_shown and "Default: " in option.help
    ]
    assert twice == []


@pytest.mark.parametrize("command", ALL, ids=lambda command: str(command.path))
def test_the_options_that_all_commands_have_come_last_in_one_order(command: Command) -> None:
    names = [option.name for option in command.options]
    wanted = [name for name in COMMON if name in names]
    assert names[len(names) - len(wanted) :] == wanted


def test_an_option_has_the_same_letter_and_the_same_names_everywhere() -> None:
    spellings: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for option in OPTIONS:
        if option.name not in {"--json", "--bootstrap", "--config", "--metrics", "--until"}:
            spellings[option.name].add(tuple(name for name in option.names if name not in LETTERS_OF_KCAT))
    assert {name: spelled for name, spelled in spellings.items() if len(spelled) > 1} == {}


def test_an_option_takes_the_same_value_everywhere() -> None:
    values: dict[str, set[str | None]] = defaultdict(set)
    for option in OPTIONS:
        if option.name not in SEVERAL_MEANINGS:
            values[option.name].add(option.value)
    assert {name: kinds for name, kinds in values.items() if len(kinds) > 1} == {}


def test_a_unit_at_the_end_of_a_name_is_the_unit_of_the_value() -> None:
    differ = [
        (option.command, option.name, option.value)
        for option in OPTIONS
        if (unit := UNITS.get(option.name.rpartition("-")[2])) is not None and option.value != unit
    ]
    assert differ == []


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("Show it.", True),
        ("none, gzip or zstd.", True),
        ("show it", False),
        ("Show it", False),
        ("How long to wait; default 60.", False),
        ("How long to wait. Default: 60.", True),
        ("Show it; exit code 1 if there is none.", False),
        ("Show it. Exit code 1: there is none.", True),
    ],
)
def test_the_check_itself(text: str, is_right: bool) -> None:
    assert (wrong_with(text) == []) == is_right
