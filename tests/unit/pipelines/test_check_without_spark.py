"""`pipeline check` refuses what it can without Spark: no Java is started, which takes long on a busy machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 120
FILE = """\
pipeline: p
source: {topic: orders}
outputs:
  - %s
"""


def check(tmp_path: Path, output: str) -> tuple[str, bool]:
    """(what `pipeline check` says about a file with this output, whether it has called Java)."""
    called, folder = tmp_path / "called", tmp_path / "java" / "bin"
    folder.mkdir(parents=True)
    (folder / "java").write_text(f"#!/bin/sh\ntouch '{called}'\nexit 1\n")
    (folder / "java").chmod(0o755)
    (tmp_path / "p.yaml").write_text(FILE % output)
    environment = {**os.environ, "JAVA_HOME": str(folder.parent), "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "pipeline", "check", str(tmp_path / "p.yaml")],
        capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    return done.stderr, called.exists()


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ("delta: /out", "write files: {path: ..., format: delta}"),
        ("files: {format: delta}", "path"),
        ("topic: [a]", "topic"),
        ("{topic: copy, filter: a}", "filter"),
        ("{topic: copy, stepps: []}", "did you mean 'steps'"),
    ],
)
def test_a_wrong_entry_is_refused_before_java_starts(tmp_path: Path, output: str, complaint: str) -> None:
    text, has_called_java = check(tmp_path, output)
    assert complaint in text
    assert "p.yaml:4: " in text
    assert not has_called_java


def test_the_trap_itself(tmp_path: Path) -> None:
    """A file without mistakes is planned by Spark, so that its start would be noticed above."""
    assert check(tmp_path, "topic: copy")[1]
