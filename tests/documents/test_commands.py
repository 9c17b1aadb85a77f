"""Every command line in the documents names commands and options that exist. Nothing is run."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.cli.commands import BY_NAME
from barnabas.kafka_tools import main as kafka
from barnabas.terminal.runner import ALIASES, command_of
from tests.documents.sessions import PROMPT, ROOT

PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    # The commands of the other pages there are those of books, and old; tests/lessons types them.
    *(page for page in sorted((ROOT / "examples").rglob("*.md")) if page.parent.name != "as_printed"),
]
IN_TEXT: Final = re.compile(r"`((?:barnabas|kafka-[a-z-]+) [^`]+)`")
PLACEHOLDERS: Final = re.compile(r"\.\.\.|…")
REDIRECTIONS: Final = re.compile(r"^[0-9]*[<>]")

ERROR: Final = re.compile(r"^barnabas(?: [a-z0-9]+)+: ")
"""Begins what a command prints, not a command."""
MISTAKES: Final = {"barnabas topic lst"}
"""Shown for the answer that they get."""


def command_lines(page: Path) -> list[tuple[int, str]]:
    """(line, command) of blocks of code and of code within the text."""
    commands: list[tuple[int, str]] = []
    fence = False
    lines = page.read_text("utf-8").splitlines()
    for number, text in enumerate(lines, 1):
        if text.startswith("```"):
            fence = not fence
            continue
        if fence or text.startswith("    "):
            line = text.strip().removeprefix(PROMPT)
            at = number
            while line.endswith("\\") and at < len(lines):
                line, at = f"{line[:-1]}{lines[at].strip()}", at + 1
            commands += [(number, part) for part in commands_in(line)]
        else:
            commands += [(number, match[1]) for match in IN_TEXT.finditer(text)]
    return commands


def commands_in(line: str) -> list[str]:
    """The commands of ours in one line of a shell: behind pipes too."""
    parts = re.split(r"\s(?:\||&&|;|&)\s|\s#\s", f"{line} ")
    names = re.compile(r"^(?:sudo )?(?:\S*/bin/)?(barnabas|kafka-[a-z-]+(?:\.sh)?)\s")
    commands = [part.strip() for part in parts if names.match(f"{part.strip()} ")]
    return [part for part in commands if not ERROR.match(part) and part not in MISTAKES]


def words_of(line: str) -> list[str]:
    try:
        words = shlex.split(PLACEHOLDERS.sub("", line))
    except ValueError:
        words = line.split()
    return [word for word in words if not REDIRECTIONS.match(word)]


def wrong_in(line: str) -> str | None:
    """What a command line names that there is not; None when all is well."""
    words = words_of(line)
    program, rest = Path(words[0]).name.removesuffix(".sh"), words[1:]
    if program.startswith("kafka-"):
        return wrong_in_tool(program, rest)
    if rest[:1] == ["--profile"]:
        rest = rest[2:]
    if not rest or rest[0].startswith("-") or not re.fullmatch(r"[a-z]+", rest[0]):
        return None  # `barnabas --help`, `barnabas COMMAND`
    command = BY_NAME.get(rest[0])
    if command is None:
        return f"no command {rest[0]}"
    if command.name == "kafka":
        tool = rest[1] if len(rest) > 1 else "TOOL"
        if tool.isupper() or tool.startswith("-"):
            return None
        return wrong_in_tool(f"kafka-{tool.removeprefix('kafka-')}", rest[2:])
    module = command.load()
    if command.plain:
        known = known_to_parser(module) if hasattr(module, "parser") else set()
        return wrong_options(rest[1:], known | {"--help", "-h"})
    return wrong_in_app(command_of(module.app), rest[1:])


def known_to_parser(module: Any) -> set[str]:
    return {name for action in module.parser()._actions for name in action.option_strings}


def wrong_in_app(node: Any, words: list[str]) -> str | None:
    while getattr(node, "commands", None):
        if not words or words[0].startswith("-") or words[0].isupper():
            return None  # a page names the group of commands alone
        following = node.commands.get(ALIASES.get(words[0], words[0]), node.commands.get(words[0]))
        if following is None:
            return f"no subcommand {words[0]}"
        node, words = following, words[1:]
    options = {name: parameter for parameter in node.params for name in parameter.opts}
    return wrong_options(words, {*options, "--help", "-h"})


def wrong_in_tool(name: str, words: list[str]) -> str | None:
    tool = kafka.BY_NAME.get(name)
    if tool is None:
        return f"no tool {name}"
    module = importlib.import_module(f"barnabas.kafka_tools.{tool.module}")
    if not hasattr(module, "TOOL"):
        return None
    known = {f"--{option.name}" for option in module.TOOL.options}
    return wrong_options([word for word in words if word.startswith("--")], {*known, "--help", "--version"})


def wrong_options(words: list[str], known: set[str]) -> str | None:
    for word in words:
        name = word.partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]*|-[A-Za-z]", name) and name not in known:
            return f"no option {name}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_exist(page: Path) -> None:
    wrong = [
        f"{page.name}:{number}: {line}: {reason}"
        for number, line in command_lines(page)
        if (reason := wrong_in(line)) is not None
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("barnabas topic create t -p 3 -c a=b", None),
        ("barnabas topic rm t", None),
        ("barnabas topc list", "no command topc"),
        ("barnabas topic lst", "no subcommand lst"),
        ("barnabas topic list --nope", "no option --nope"),
        ("kafka-topics --list --bootstrap-server x", None),
        ("kafka-topics --lst", "no option --lst"),
        ("barnabas start --nope 1", "no option --nope"),
        ("barnabas kafka topics --lst", "no option --lst"),
    ],
)
def test_the_check_itself(line: str, reason: str | None) -> None:
    assert wrong_in(line) == reason


def test_commands_behind_pipes_are_seen() -> None:
    assert commands_in("printf x | barnabas produce t -k :  # comment") == ["barnabas produce t -k :"]
    assert commands_in("eval x && /opt/barnabas/bin/barnabas stop") == ["/opt/barnabas/bin/barnabas stop"]
