"""The dispatcher: what it prints, what it imports, what `start` passes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from barnabas.cli import commands, main
from barnabas.local import start
from barnabas.terminal.connection import ClusterAddress, connect
from barnabas.terminal.errors import CliError, UsageError


def test_overview_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in commands.COMMANDS:
        assert f"  {command.name} " in text


@pytest.mark.parametrize("command", commands.COMMANDS, ids=lambda command: str(command.name))
def test_every_help_has_an_example(command: commands.Command, capsys: pytest.CaptureFixture[str]) -> None:
    module = command.load()
    words = [[]]
    if not command.plain:
        subcommands = getattr(typer.main.get_command(module.app), "commands", None)
        words = list(leaves(subcommands)) if subcommands else [[]]
    for word in words:
        assert main.run([command.name, *word, "--help"]) == 0
        text = capsys.readouterr().out
        assert "Example:\n" in text
        assert f"barnabas {' '.join([command.name, *word])}" in text


def leaves(commands: dict[str, Any]) -> Iterator[list[str]]:
    """The words of each command that runs something, below groups of commands too."""
    for name, command in commands.items():
        below = getattr(command, "commands", None)
        yield from ([name, *rest] for rest in leaves(below)) if below else [[name]]


def test_mistyped_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topics"]) == 2
    assert capsys.readouterr().err == "barnabas: no command 'topics'; did you mean `barnabas topic`?\n"


def test_usage_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topic", "create"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("barnabas topic create: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["produce", ""], "barnabas produce: TOPIC is '', but must not be empty"),
        (["group", "describe", "a", ""], "barnabas group describe: GROUP is '', but must not be empty"),
        (
            ["topic", "trim", "t", "--before", ""],
            "barnabas topic trim: --before is '', but must not be empty",
        ),
        (["consume", "t", "-g", ""], "barnabas consume: -g is '', but must name a group"),
        (["consume", "t", "-X", "group.id="], "barnabas consume: group.id is '', but must name a group"),
        (["topic", "create", "t", "-p", "100001"], "barnabas topic create: Invalid value for '-p'"),
        (["topic", "create", "t", "-r", "10001"], "barnabas topic create: Invalid value for '-r'"),
        (["kafka", "foo"], "barnabas kafka: no tool 'foo'"),
    ],
)
def test_a_bad_word_is_named(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(complaint)
    assert error.count("\n") == 1


def test_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topic", "list", "-b", "127.0.0.1:1"]) == 1
    assert capsys.readouterr().err == (
        "barnabas topic list: no broker answers at 127.0.0.1:1 (Connection refused); start one with "
        "`barnabas start`, or name another with -b HOST:PORT\n"
    )


def test_start_and_help_import_no_client_and_no_typer() -> None:
    code = (
        "import sys\nfrom barnabas.cli import main\nmain.run(['--help'])\nmain.run(['start', '--help'])\n"
        "heavy = {'typer', 'rich', 'confluent_kafka', 'pyspark'} & set(sys.modules)\nassert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def parse(*arguments: str) -> dict[str, str]:
    return start.overrides_from(start.parser().parse_args(arguments))


def test_start_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    assert parse() == {"log.dirs": "/x/barnabas", "listeners": "PLAINTEXT://localhost:9092"}
    assert parse("--data", "/d", "--listen", "0.0.0.0:1234", "-o", "num.partitions=3") == {
        "num.partitions": "3",
        "log.dirs": "/d",
        "listeners": "PLAINTEXT://0.0.0.0:1234",
    }
    assert parse("--listen", "1234")["listeners"] == "PLAINTEXT://localhost:1234"
    assert parse("--listen", "[::1]:1234")["listeners"] == "PLAINTEXT://[::1]:1234"
    properties = tmp_path / "server.properties"
    properties.write_text("# log.dirs=/no\n log.dirs = /kafka\n")
    assert parse("--config", str(properties)) == {}
    properties.write_text("# log.dirs=/no\n")
    assert parse("--config", str(properties)) == {"log.dirs": "/x/barnabas"}


@pytest.mark.parametrize(
    "arguments",
    [["-o", "x"], ["-o", "=1"], ["--listen", "host"], ["--listen", "h:70000"], ["--bogus"], ["--data", ""]],
)
def test_start_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["start", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("barnabas start: ")
    assert error.count("\n") == 1


def test_addresses() -> None:
    connection = ClusterAddress("a:1, b ,[::1]:2,PLAINTEXT://c:3")
    assert list(connection.addresses()) == [("a", 1), ("b", 9092), ("::1", 2), ("c", 3)]
    for wrong in ("a:b", "http://a:1"):
        with pytest.raises(UsageError, match=f"'{wrong}' is not HOST:PORT"):
            list(ClusterAddress(wrong).addresses())
    for wrong in ("a:0", "a:65536"):
        with pytest.raises(UsageError, match=f"'{wrong}': the port must be from 1 to 65535"):
            list(ClusterAddress(wrong).addresses())


def test_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "x:1")
    assert connect(None, ["client.id=me"]).config({"linger.ms": 5})["client.id"] == "me"
    assert connect(None).bootstrap == "x:1"
    assert connect("y:1").bootstrap == "y:1"
    with pytest.raises(CliError, match="NAME=VALUE"):
        connect(None, ["nonsense"])


def test_completion(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_BARNABAS_COMPLETE", "1")
    assert main.run(["1", "barnabas", "topi"]) == 0
    assert main.run(["2", "barnabas", "topic", "d"]) == 0
    assert main.run(["3", "barnabas", "topic", "create", "--part"]) == 0
    assert main.run(["2", "barnabas", "start", "--li"]) == 0
    assert capsys.readouterr().out.split() == ["topic", "describe", "delete", "--partitions", "--listen"]
