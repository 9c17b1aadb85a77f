"""`barnabas connect new` writes a package whose own test passes."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from barnabas.cli.connect.new import new
from barnabas.terminal.errors import CliError, UsageError


@pytest.mark.parametrize("sink", [False, True])
def test_a_new_package_has_a_test_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    assert new("my-numbers", sink) == 0
    folder = tmp_path / "my-numbers"
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    kind = "MyNumbersSink" if sink else "MyNumbersSource"
    assert project["project"]["entry-points"]["barnabas.connectors"] == {"my-numbers": f"my_numbers:{kind}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    with pytest.raises(CliError, match="is there already"):
        new("my-numbers")
    with pytest.raises(UsageError, match="no name for a package"):
        new("1/2")
