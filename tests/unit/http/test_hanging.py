"""A service that does not stop, or is told twice: what it runs outside of the process is killed, and the process ends."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading

import pytest

from barnabas.http.server import HttpOptions, HttpServer, ServerThread, Service

HANGS = """
import asyncio, json, subprocess, sys, threading
from barnabas.http.server import HttpOptions, HttpServer, Service, run

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

async def start(url):
    pass

async def stop():
    print("stopping", flush=True)
    await asyncio.to_thread(threading.Event().wait)

def build():
    return Service("it", [], lambda error, _: (b"", "text/plain"), start, stop, float(sys.argv[1]), child.kill)

sys.exit(run([HttpServer(build, HttpOptions("127.0.0.1:0"))], lambda: print("ready", flush=True)))
"""


@pytest.mark.parametrize(("stop_s", "times"), [(0.1, 1), (600, 2)])
def test_a_service_that_hangs_does_not_keep_its_process(stop_s: float, times: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS, str(stop_s)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"stopping\n"
        if times == 2:
            process.send_signal(signal.SIGINT)
        # The end of its output, which its child inherits: both processes have ended.
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, rest) == (130, b"")


def test_a_service_that_hangs_beside_a_broker_is_reported() -> None:
    never, killed = threading.Event(), threading.Event()

    async def start(url: str) -> None:
        pass

    async def stop() -> None:
        await asyncio.to_thread(never.wait)

    def build() -> Service:
        return Service(
            "it", [], lambda error, _: (b"", "text/plain"), start, stop, stop_s=0.1, kill=killed.set
        )

    thread = ServerThread([HttpServer(build, HttpOptions("127.0.0.1:0"))])
    thread.start()
    try:
        assert thread.stop() is False
        assert killed.is_set()
    finally:
        never.set()
