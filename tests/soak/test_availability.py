"""examples/availability: zones are lost and cut off, and what clients were promised holds (see docs/availability.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.zookeeper import zookeeper_jars

PROGRAM = Path(__file__).parents[2] / "examples" / "availability" / "run.py"


@pytest.mark.soak
@pytest.mark.skipif(zookeeper_jars() is None, reason="needs java, pyspark and kazoo")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces")
@pytest.mark.parametrize("scene", ["three-zones", "two-zones"])
def test_the_lesson(scene: str, tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), scene, "--data", str(tmp_path / "cluster")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1_200, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
