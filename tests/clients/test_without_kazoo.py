"""`zookeeper.connect` on a machine where the client for ZooKeeper is not installed: one line that says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 120
WITHOUT_KAZOO = "import sys; sys.modules['kazoo'] = None; from barnabas.cli.main import main; main()"


def test_the_start_names_the_extra(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"log.dirs={tmp_path / 'data'}\nzookeeper.connect=localhost:1\nlisteners=PLAINTEXT://localhost:0\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_KAZOO, "start", "--config", str(properties)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    lines = [line for line in ended.stderr.splitlines() if "ZooKeeper" in line]
    assert lines == [
        "barnabas: zookeeper.connect is set, and the client for ZooKeeper is not installed; "
        f"install it with {sys.executable} -m pip install 'barnabas[cluster]'"
    ]
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
