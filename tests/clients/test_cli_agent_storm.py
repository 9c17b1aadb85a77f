"""`barnabas agent tail` behind real log writers that rotate, while it and the broker are killed: seconds of tests/soak."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clients.cli_support import Cli
from tests.support.log_writers import Writers, judge, wait_for_lines

SECONDS = 4.0


def rotate(log: Path) -> None:
    """As logrotate does with `create`, and as Python's handlers do."""
    if log.exists():
        log.rename(log.with_name(f"{log.name}.{time.monotonic_ns()}"))


def copy_and_truncate(log: Path) -> None:
    """As logrotate does with `copytruncate`."""
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)


@pytest.mark.soak
@pytest.mark.skipif("BARNABAS_TEST_BOOTSTRAP" in os.environ, reason="restarts the broker")
def test_real_log_writers_under_kills_and_restarts(own_broker: Callable[..., Any], tmp_path: Path) -> None:
    """Every line once, in order per file."""
    broker = own_broker()
    cli, logs = Cli(broker.bootstrap), tmp_path / "logs"
    cli("topic", "create", "logs")
    logs.mkdir()
    writers = Writers(logs, SECONDS)

    def start_agent() -> subprocess.Popen[bytes]:
        patterns = [str(logs / "rotating.log*"), str(logs / "watched.log*"), str(logs / "append.log")]
        return cli.start("agent", "tail", *patterns, "-t", "logs", "--state", str(tmp_path / "st"), "-q")

    for name in ("rotating", "watched", "append"):
        writers.python(name, name)
    agent = start_agent()
    try:
        while not wait_for_lines(broker.bootstrap, "logs", 1, 60):
            assert agent.poll() is None
        with writers.paused("append"):
            copy_and_truncate(logs / "append.log")
        for _ in range(2):
            agent.kill()
            agent.wait()
            rotate(logs / "watched.log")
            agent = start_agent()
            time.sleep(0.7)
            rotate(logs / "watched.log")
        broker.kill()
        broker.start()
        written = writers.written()
        wait_for_lines(broker.bootstrap, "logs", sum(written.values()), 60)
        agent.terminate()
        assert agent.wait(120) == 0
    finally:
        writers.kill()
        if agent.poll() is None:
            agent.kill()
            agent.wait()
    assert judge(broker.bootstrap, "logs", written) == []
