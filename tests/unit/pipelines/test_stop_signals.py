"""A signal ends a process of pipelines even if Spark hangs, and Java with it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

HANGS = """
import subprocess, sys, threading
from types import SimpleNamespace
from pyspark import SparkContext
from barnabas.pipelines.serving.run import stop_signals

java = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
SparkContext._gateway = SimpleNamespace(proc=java)
with stop_signals(float(sys.argv[1])) as stopped:
    print("ready", flush=True)
    stopped.wait()
    print("signalled", flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("end_s", "times"),
    [(0.1, 1), (600, 2)],
)
def test_a_signal_ends_it(end_s: float, times: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS, str(end_s)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"signalled\n"
        if times == 2:
            process.send_signal(signal.SIGINT)
        # The end of its output, which the stand-in for Java inherits: both processes have ended.
        rest, printed = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert rest == b""
    assert (b"Spark has not stopped within 0.1 s" in printed) == (times == 1)
