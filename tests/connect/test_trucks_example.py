"""The example with trucks from MQTT to the join, as a user runs it, with a real mosquitto and PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import free_ports

EXAMPLE = Path(__file__).parents[2] / "examples" / "trucks_connect"


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_what_the_readme_shows(postgres, mosquitto, tmp_path):
    pytest.importorskip("paho.mqtt.client")
    command = [
        sys.executable,
        str(EXAMPLE / "run.py"),
        "--mqtt",
        f"tcp://127.0.0.1:{mosquitto.port}",
        "--database",
        f"jdbc:postgresql://127.0.0.1:{postgres.port}/postgres?user=me",
        "--data",
        str(tmp_path / "data"),
        "--port",
        str(free_ports(3)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    readme = (EXAMPLE / "README.md").read_text()
    shown = [line.strip() for line in readme.splitlines() if line.startswith("    ")]
    assert done.stdout.splitlines() == shown[shown.index("connector jdbc-driver-source") :]
