"""examples/failover: the lesson runs as its README says, and every message that was sent is read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import free_ports
from tests.support.zookeeper import zookeeper_jars

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
@pytest.mark.skipif(zookeeper_jars() is None, reason="needs java, pyspark and kazoo")
def test_the_lesson(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "examples" / "failover" / "run.py"),
        "--data",
        str(tmp_path / "cluster"),
    ]
    done = subprocess.run(
        [*command, "--port", str(free_ports(3))], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("every message that was sent has been read\n")
    before, after, again = re.findall(r"(?:\tTopic: my-failsafe-topic\t.*\n){13}", done.stdout)
    assert len(re.findall(r"Leader: 1\t", before)) >= 4
    assert not re.findall(r"Leader: 1\t", after)
    assert len(re.findall(r"\tReplicas: \d,\d,\d\tIsr: (?:2,3|3,2)\t", after)) == 13
    assert len(re.findall(r"\tIsr: \d,\d,\d\t", again)) == 13
