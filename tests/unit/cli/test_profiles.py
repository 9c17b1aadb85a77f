"""Clusters by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli import main
from barnabas.terminal import profiles
from barnabas.terminal.connection import connect
from barnabas.terminal.errors import UsageError

FILE = """
default = "laptop"
[laptop]
bootstrap = "a:1"
[production]
bootstrap = "b:2,c:3"
properties = { "security.protocol" = "SSL", "enable.ssl.certificate.verification" = false }
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BARNABAS_PROFILE", raising=False)
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    path = profiles.path()
    path.parent.mkdir()
    path.write_text(FILE)
    return path


def test_default_and_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connect(None).bootstrap == "a:1"
    monkeypatch.setenv("BARNABAS_PROFILE", "production")
    connection = connect(None, ["security.protocol=PLAINTEXT"])
    assert connection.bootstrap == "b:2,c:3"
    assert connection.properties == {
        "security.protocol": "PLAINTEXT",
        "enable.ssl.certificate.verification": "false",
    }
    assert connect("x:9").bootstrap == "x:9"
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "y:9")
    assert connect(None).bootstrap == "y:9"


def test_option_before_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BARNABAS_PROFILE", "")  # restored after the test
    assert main.run(["--profile", "production", "profile", "list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].split() == ["laptop", "a:1", "no"]
    assert rows[2].split()[-1] == "yes"
    assert main.run(["--profile=nowhere", "topic", "list"]) == 2
    assert "no profile 'nowhere'" in capsys.readouterr().err
    assert main.run(["--profile"]) == 2


@pytest.mark.parametrize("text", ["[x", "default = 1", "[x]\nport = 1", "x = 1", "[x]\nbootstrap = 1"])
def test_damaged_files(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError, match=r"profiles.toml"):
        profiles.read()


def test_no_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.unlink()
    assert connect(None).bootstrap == "localhost:9092"
    assert main.run(["profile", "list"]) == 0
    assert str(file) in capsys.readouterr().err


def test_a_mistake_in_the_file_names_the_key(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('[a]\nboot = "x"\n')
    assert main.run(["profile", "list"]) == 2
    file.write_text('bootstrap = "x"\n')
    assert main.run(["profile", "list"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"barnabas profile list: {file}: profile a has the key 'boot', but may hold")
    assert second.startswith(f"barnabas profile list: {file}: the key 'bootstrap' belongs to no profile")
