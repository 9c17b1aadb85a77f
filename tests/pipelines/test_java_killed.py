"""A server whose Java process is killed with SIGKILL: it says so, starts Java again, and its pipelines go on, also while
another process holds Java's sockets open, as one may that Java was starting."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.pipelines.conftest import send
from tests.pipelines.readers import consumed
from tests.pipelines.test_server import Server, until
from tests.pipelines.test_sql_server import EARLIEST, SqlServer

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]
KILLS = 2
PIDFD_GETFD = 438
"""The number of a system call of Linux, which Python does not have: it duplicates a file of another process."""


@pytest.fixture(params=[Server, SqlServer], ids=["pipelines", "sql"])
def server(request: pytest.FixtureRequest, tmp_path: Path, bootstrap: str) -> Iterator[Server]:
    started = request.param(tmp_path / "data", bootstrap)
    started.start()
    yield started
    started.stop(signal.SIGKILL)


def java_of(server: Server) -> psutil.Process:
    children = psutil.Process(server.process.pid).children(recursive=False)
    (java,) = [child for child in children if child.name() == "java"]
    return java


def sockets_of(process: psutil.Process) -> list[int]:
    """The sockets of a process, also as files of this one, which keep them open."""
    found, pidfd, libc = [], os.pidfd_open(process.pid), ctypes.CDLL(None, use_errno=True)
    for name in os.listdir(f"/proc/{process.pid}/fd"):
        with suppress(OSError):  # closed since
            if os.readlink(f"/proc/{process.pid}/fd/{name}").startswith("socket:"):
                found.append(libc.syscall(PIDFD_GETFD, pidfd, int(name), 0))
    os.close(pidfd)
    return [file for file in found if file >= 0]


def begin(server: Server, source: str) -> str:
    """Starts a pipeline from one topic to another; the name of the other."""
    if isinstance(server, SqlServer):
        server.statements(
            f"CREATE STREAM s (n INT) WITH (kafka_topic='{source}', value_format='JSON');"
            f"CREATE STREAM o WITH (kafka_topic='{source}-out') AS SELECT n AS n FROM s EMIT CHANGES;",
            **EARLIEST,
        )
    else:
        text = (
            f"pipeline: {source}\nsource: {{topic: {source}}}\nsteps: [parse: {{json: all}}]\n"
            f"outputs: [{{topic: {source}-out}}]\n"
        )
        assert server.call("POST", "/pipelines", text)[0] == 201
    return f"{source}-out"


def test_it_says_so_and_goes_on(server: Server, client, new_topic) -> None:
    source = new_topic(1)
    out = begin(server, source)
    sent: list[int] = []

    def put() -> None:
        sent.extend(range(len(sent), len(sent) + 3))
        send(client, source, [b'{"n": %d}' % n for n in sent[-3:]])

    def values() -> list[int]:
        rows = [json.loads(record.value) for record in consumed(server.bootstrap, out)]
        return sorted(row.get("n", row.get("N")) for row in rows)  # the output has several partitions

    put()
    until(lambda: values() == sent)
    for turn in range(KILLS):
        java = java_of(server)
        held = sockets_of(java) if turn else []
        assert bool(held) is bool(turn)
        java.kill()
        status, health = until(lambda: (answer := server.call("GET", "/health"))[0] == 500 and answer, 5)
        assert (status, health["status"]) == (500, "unhealthy")
        assert health["reason"] == "Spark's Java process was killed by signal 9; starting it again"
        assert server.call("GET", "/ready")[0] == 503
        if isinstance(server, SqlServer):
            assert server.call("GET", "/healthcheck")[1]["isHealthy"] is False
        put()
        until(lambda: values() == sent, 240)
        assert server.call("GET", "/health")[0] == server.call("GET", "/ready")[0] == 200
        if isinstance(server, SqlServer):
            assert server.call("GET", "/healthcheck")[1]["isHealthy"] is True
        assert java_of(server).pid != java.pid
        for file in held:
            os.close(file)
    lines = [line for line in server.log.read_text().splitlines() if "was killed by signal 9" in line]
    assert len(lines) == KILLS, lines
    assert "Traceback" not in server.log.read_text()
    assert server.stop() == 0
