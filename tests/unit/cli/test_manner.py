"""What every command has in common: -q, -v, --json and, where a cluster is asked, -b and -X."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.cli import commands
from barnabas.terminal import output
from barnabas.terminal.runner import command_of

SERVERS = {
    "start",
    "pipelines serve",
    "registry start",
    "rest start",
    "console",
    "mcp",
    "monitor",
    "reporting start",
    "sql start",
    "logs watch",
    "mirror maker",
    "connect start",
    "cluster start",
    "zookeeper start",
}
"""They run until they are stopped: nothing to summarize, and their log has options of its own."""
OTHER_GRAMMAR = {"kafka", "completion"}
"""Kafka's own tools take Kafka's options; completion prints a script."""
ASK_NO_CLUSTER = {
    "stop",
    "alerts check",
    "cluster stop",
    "cluster status",
    "cluster kill",
    "cluster start-broker",
    "config samples",
    "debug stacks",
    "import",
    "log dump",
    "log repair",
    "profile list",
    "recover",
    "security check",
    "security init",
    "pipeline check",
    "pipeline schema",
    "sql test",
    "agent check",
    "agent schema",
    "agent status",
    "logs index",
    "logs template",
    "streams describe",
}
ASK_ANOTHER_SERVER = (
    "pipelines ",
    "connect ",
    "schema ",
    "metrics ",
    "debug slow",
    "alerts list",
    "streams stores",
    "streams get",
    "sql migrate ",
    *(f"reporting {word}" for word in ("create", "list", "pause", "resume", "delete")),
)
PRINTS_A_FILE = {"logs template"}
"""What it prints is a pipeline file."""
SETTINGS_IN_THE_FILE = ("pipeline ", "streams ")
"""Pipeline files, and apps, say how their cluster is reached, -b wins over them, and there is no librdkafka for -X."""


def leaves(path: str, node: Any) -> Iterator[tuple[str, set[str]]]:
    children = getattr(node, "commands", None)
    if children is None:
        yield path, {name for parameter in node.params for name in parameter.opts}
        return
    for name, child in children.items():
        yield from leaves(f"{path} {name}", child)


def all_commands() -> Iterator[tuple[str, set[str]]]:
    for command in commands.COMMANDS:
        if command.name in OTHER_GRAMMAR:
            continue
        module = command.load()
        if command.plain:
            yield (
                command.name,
                {name for action in module.parser()._actions for name in action.option_strings},
            )
        else:
            yield from leaves(command.name, command_of(module.app))


@pytest.mark.parametrize(
    ("path", "options"), list(all_commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_options_that_the_documents_promise_everywhere(path: str, options: set[str]) -> None:
    wanted = set() if path in SERVERS else {"-q", "--quiet", "-v", "--verbose", "--json"}
    if path in PRINTS_A_FILE:
        wanted.discard("--json")
    if path not in SERVERS | ASK_NO_CLUSTER and not path.startswith(ASK_ANOTHER_SERVER):
        wanted |= {"-b", "--bootstrap"}
        if not path.startswith(SETTINGS_IN_THE_FILE):
            wanted.add("-X")
    assert wanted <= options


def test_quiet_leaves_out_summaries_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output.MANNER, "quiet", True)
    output.summarize("3 records")
    output.note("the broker is away")
    assert capsys.readouterr().err == "the broker is away\n"
