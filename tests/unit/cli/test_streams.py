"""Standard streams that are closed or full, and failures that no command expected."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.cli import main
from barnabas.terminal.errors import describe_failure
from barnabas.terminal.output import MANNER


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--help >&-", "barnabas: cannot write to standard output: it is closed\n"),
        ("start --help >&-", "barnabas: cannot write to standard output: it is closed\n"),
        ("profile list >/dev/full", "barnabas: cannot write to standard output: No space left on device\n"),
        (
            "produce t <&-",
            "barnabas produce: cannot read standard input: it is closed; name a file, or write into a pipe\n",
        ),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_stream_that_fails_is_named(command: str, said: str, unbuffered: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"PYTHONUNBUFFERED={unbuffered} {sys.executable} -m barnabas {command}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, said)


def test_only_commands_with_v_promise_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(MANNER, "can_be_verbose", False)
    assert describe_failure(KeyError("x")) == "KeyError: 'x'"
    assert main.run(["topic", "lst"]) == 2
    assert describe_failure(KeyError("x")) == "KeyError: 'x'; -v shows where"
    capsys.readouterr()
