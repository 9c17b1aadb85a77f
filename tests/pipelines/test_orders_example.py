"""The example with customers and orders, as a user runs it: totals by customer and hour, looked up by key."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_orders_example(tmp_path):
    ports = ("--port", str(free_port()), "--url-port", str(free_port()))
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py"), "--data", str(tmp_path / "data"), *ports],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [line.split() for line in done.stdout.splitlines()]
    assert ["C2", "2026-01-31T09:00:00Z", "2026-01-31T10:00:00Z", "Blaise", "20", "324.00"] in shown
    assert ["C3", "119", "2026-01-31T10:59:00Z", "7.25", "Carl", "Brunswick"] in shown
    assert '"offsets": {"orders": {"0":' in done.stdout
    assert "6 records" in done.stdout  # in the changelog topic
