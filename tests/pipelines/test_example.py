"""`make run`'s program, as a user runs it; and again, with a broken line added in between."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.process import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "access_log"


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_the_access_log_example(tmp_path, runs):
    log = tmp_path / "access.log"
    lines = (EXAMPLE / "access.log").read_bytes().splitlines(keepends=True)[8800:9000]
    log.write_bytes(b"".join(lines))
    port = free_port()

    def run() -> str:
        command = [sys.executable, str(EXAMPLE / "run.py"), "--data", str(tmp_path / "data")]
        done = subprocess.run(
            [*command, "--log", str(log), "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout

    first = run()
    assert re.search(r"parsed, now in access-json +199\b", first)
    assert re.search(r"to access-log-dead-letters +1\b", first)
    if runs == 1:
        return
    with log.open("ab") as more:
        more.write(b"not a log line\n")
    second = run()
    assert "1 new lines shipped to topic access-log, 200 before" in second
    assert re.search(r"parsed, now in access-json +0\b", second)
    assert re.search(r"to access-log-dead-letters +1\b", second)
    assert "In status-per-hour (199 requests" in second
    assert "2  step 1 parse: no match for pattern combined-log" in second
