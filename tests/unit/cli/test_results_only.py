"""Standard output is for results: whatever goes wrong, of any command, leaves it empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.cli.test_manner import ASK_ANOTHER_SERVER, ASK_NO_CLUSTER, SERVERS, SETTINGS_IN_THE_FILE

from barnabas.cli import commands, main
from barnabas.kafka_tools.main import TOOLS, run
from barnabas.terminal.runner import command_of

NOBODY = "127.0.0.1:1"
WAITS = {"agent tail"}
"""It waits for a broker that is away."""
RESULT = {"status", "debug bundle"}
"""That nobody answers is a part of what they are asked."""
VALUES = {"WHERE": "end", "KIND": "topic", "OPERATION...": "read"}
NO_OPTIONS = {"kafka-server-start", "kafka-run-class"}
"""They take a file, or the name of a class, first."""

TOOL_WORDS = {
    "kafka-topics": "--list",
    "kafka-configs": "--describe --entity-type topics",
    "kafka-console-producer": "--topic t",
    "kafka-console-consumer": "--topic t",
    "kafka-consumer-groups": "--list",
    "kafka-get-offsets": "--topic t",
    "kafka-log-dirs": "--describe",
    "kafka-broker-api-versions": "",
    "kafka-groups": "--list",
    "kafka-share-groups": "--list",
    "kafka-console-share-consumer": "--topic t",
    "kafka-acls": "--list",
    "kafka-transactions": "list",
    "kafka-leader-election": "--election-type preferred --all-topic-partitions",
    "kafka-reassign-partitions": "--list",
    "kafka-features": "describe",
    "kafka-client-metrics": "--list",
    "kafka-metadata-quorum": "describe --status",
    "kafka-delegation-tokens": "--describe",
    "kafka-streams-groups": "--list",
    "kafka-streams-application-reset": "--application-id a",
}


@pytest.mark.parametrize("name", sorted({tool.name for tool in TOOLS} - NO_OPTIONS))
def test_a_wrong_option_of_a_tool(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, ["--no-such-option"]) != 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no-such-option" in printed.err


@pytest.mark.parametrize(("name", "words"), TOOL_WORDS.items())
def test_a_tool_without_a_broker(
    name: str, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.kafka_tools.shared.common.CONTACT_SECONDS", 0.1)
    assert run(name, ["--bootstrap-server", NOBODY, *words.split()]) != 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err


def leaves(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(node, "commands", None)
    if children is None:
        yield path, node
        return
    for name, child in children.items():
        yield from leaves(f"{path} {name}", child)


def cluster_commands() -> Iterator[tuple[str, list[str]]]:
    """Every command that asks a cluster, with something for each argument that it requires."""
    for command in commands.COMMANDS:
        if command.plain:
            continue
        for path, node in leaves(command.name, command_of(command.load().app)):
            if path in SERVERS | ASK_NO_CLUSTER | WAITS | RESULT:
                continue
            if path.startswith((*ASK_ANOTHER_SERVER, *SETTINGS_IN_THE_FILE)):
                continue
            words: list[str] = []
            for parameter in node.params:
                if parameter.required:
                    value = VALUES.get(parameter.metavar or "", "1")
                    words += (
                        [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]
                    )
            yield path, words


@pytest.mark.parametrize(("path", "words"), list(cluster_commands()))
def test_a_command_without_a_broker(
    path: str, words: list[str], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.terminal.connection.REQUEST_TIMEOUT_SECONDS", 1.0)
    assert main.run([*path.split(), *words, "-b", NOBODY]) in (1, 2)
    printed = capfd.readouterr()
    assert printed.out == ""
    # Not what librdkafka says of other tests' clients in this process: "%3|1795820106.266|FAIL|rdkafka#producer-264| ..."
    own = [line for line in printed.err.splitlines() if not line.startswith("%")]
    assert own[0].startswith("barnabas ")
