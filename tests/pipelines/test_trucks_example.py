"""The example with trucks, as a user runs it: its own tests, and alerts by user code whose state outlives a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "trucks"


def test_the_rule_without_spark(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={EXAMPLE}",
        str(EXAMPLE),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_trucks_example(tmp_path):
    command = [
        sys.executable,
        str(EXAMPLE / "run.py"),
        "--data",
        str(tmp_path / "data"),
        "--port",
        str(free_port()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[2:] == [
        'Ada {"driver":"Ada","alert":"dangerous","events":3,"at":"2026-01-31T09:08:00.000Z"}',
        'Ada {"driver":"Ada","alert":"calm again","events":null,"at":"2026-01-31T09:18:00.000Z"}',
    ]
