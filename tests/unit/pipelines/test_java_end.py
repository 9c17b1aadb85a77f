"""Calls to a Java process that was killed end at once, also when one of its helpers holds its sockets open."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.cluster import until

from barnabas.pipelines.spark import java_end
from barnabas.pipelines.spark.java_end import HELPER, MARK, marked, watch

ANSWERS_NOTHING = """
import os, socket, subprocess, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
files = (server.fileno(), connection.fileno())
helper = subprocess.Popen([sys.argv[1], "600"], pass_fds=files)
print(helper.pid, flush=True)
helper.wait()
"""


class Java:
    """Stands for Java: a process that has a connection, which a process that it has started inherits."""

    def __init__(self, helper: Path) -> None:
        with marked() as self.mark:
            self.process = subprocess.Popen(
                [sys.executable, "-c", ANSWERS_NOTHING, str(helper)], stdout=subprocess.PIPE
            )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.connection = socket.create_connection(("127.0.0.1", self.port), 60)
        self.helper = psutil.Process(int(self.process.stdout.readline()))
        # Forked by this process, which may be slow to become the program.
        until(lambda: self.helper.name() == helper.name, "the start of the helper")


@pytest.fixture
def java(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Java]:
    helper = tmp_path / request.param
    shutil.copy(shutil.which("sleep") or "sleep", helper)
    made = Java(helper)
    yield made
    made.process.kill()
    made.connection.close()
    if made.helper.is_running():
        made.helper.kill()


@pytest.mark.parametrize("java", [HELPER], indirect=True)
def test_a_helper_that_was_left_is_killed(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_end, "cut_connections", lambda port, own: None)
    watch(java.process, java.port, java.mark)
    java.process.kill()
    assert java.connection.recv(1) == b""
    until(lambda: not java.helper.is_running(), "the end of the helper")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", java.port), 60)


@pytest.mark.parametrize("java", ["other"], indirect=True)
def test_connections_end_though_another_process_holds_them(java: Java) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # as if Java had called this process
            called, _ = server.accept()
            with called:
                called.settimeout(60)
                watch(java.process, java.port, java.mark, lambda: [port])
                java.process.kill()
                assert java.connection.recv(1) == called.recv(1) == b""
    assert java.helper.is_running(), "what Java started on purpose goes on"


def test_no_file_is_left_open_and_no_mark(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/fd"))
    java_end.cut_connections(1)
    assert set(os.listdir("/dev/fd")) == before
    assert MARK not in os.environ


def test_py4j_says_nothing_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    from py4j import java_gateway  # type: ignore[import-untyped]

    from barnabas.pipelines.spark.private import hush_py4j

    def break_off(server: socket.socket) -> None:
        for _ in range(2):
            connection, _ = server.accept()
            connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

    hush_py4j()
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=break_off, args=(server,), daemon=True).start()
        parameters = java_gateway.GatewayParameters(port=server.getsockname()[1])
        gateway = java_gateway.JavaGateway(gateway_parameters=parameters)
        with pytest.raises(java_gateway.Py4JError):
            gateway.jvm.System.currentTimeMillis()
    assert not caplog.records
