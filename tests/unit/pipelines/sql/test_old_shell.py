"""`ksql`: the options of lessons, and what they are for the shell."""

from __future__ import annotations

import pytest

from barnabas.cli.sql import old
from barnabas.cli.sql.shell import Shell
from barnabas.terminal.errors import CliError


@pytest.fixture
def shells(monkeypatch: pytest.MonkeyPatch) -> list[Shell]:
    shells_begun: list[Shell] = []
    monkeypatch.setattr(Shell, "interact", lambda shell, history: shells_begun.append(shell))
    return shells_begun


def test_the_address_of_the_server_comes_last(shells: list[Shell]) -> None:
    assert (
        old.main(["--output", "JSON", "--query-timeout", "1500", "--query-row-limit", "3", "http://h:1"]) == 0
    )
    assert old.main(["-u", "me@x", "-p", "s/t", "-d", "topic='a'", "host:9"]) == 0
    assert old.main([]) == 0
    assert [shell.client.client.shown for shell in shells] == [
        "http://h:1",
        "http://host:9",
        "http://localhost:8088",
    ]
    assert (shells[0].output, shells[0].seconds_max, shells[0].rows_max) == ("json", 1.5, 3)
    assert shells[1].variables == {"topic": "a"}
    assert (shells[1].client.client.parts.username, shells[1].client.client.parts.password) == (
        "me%40x",
        "s%2Ft",
    )


def test_a_shell_with_a_server_in_it_is_explained(shells: list[Shell]) -> None:
    with pytest.raises(CliError, match="barnabas sql start -b HOST:PORT"):
        old.main(["local", "--bootstrap-server", "localhost:9092"])
    assert shells == []


def test_what_is_spooled_is_shown_and_written(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    from barnabas.cli.sql.client import SqlClient

    shell = Shell(SqlClient("http://h:1"))
    shell.run(f"SPOOL '{tmp_path}/out.log'; DEFINE a = 'b'; SHOW VARIABLES; SPOOL OFF; SHOW VARIABLES;")
    assert capsys.readouterr().out.count("a = b") == 2
    assert (tmp_path / "out.log").read_text().count("a = b") == 1
