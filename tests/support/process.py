"""A broker as its users start it: `barnabas start` in a process of its own, killed by pid."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support import preloaded

READY_TIMEOUT_S = 120
"""Long, since a machine with other work on it may need many times what a start takes alone."""

CHANCE = random.SystemRandom()
"""Not what a test has seeded: test processes that run side by side would choose the same ports."""
FIRST_PORT = 15_000
PORTS_OF_CLIENTS = Path("/proc/sys/net/ipv4/ip_local_port_range")

COMMON_OPTIONS = "BARNABAS_TEST_OPTIONS"
"""`name=value,name=value` in this variable of the environment configures every broker that a test starts and does not
configure otherwise: `log.retention.check.interval.ms=1000` shows which tests depend on where a tick falls."""


def common_options() -> dict[str, str]:
    pairs = (pair.partition("=") for pair in os.environ.get(COMMON_OPTIONS, "").split(",") if pair)
    return {name.strip(): value.strip() for name, _, value in pairs}


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many TCP ports in a row that were free a moment ago, and that this run of the tests gave to nobody."""
    while True:
        ports = range(first := CHANCE.choice(ports_of_servers()), first + count)
        if not _given.isdisjoint(ports):
            continue
        with contextlib.ExitStack() as sockets:
            try:
                for port in ports:
                    sock = sockets.enter_context(socket.socket())
                    sock.bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            _given.update(ports)
            return first


_given: set[int] = set()
"""Between the choice of a port and a server's `bind` lie seconds, in which the next choice must be another."""


def ports_of_servers() -> range:
    """Ports that the system gives to no outgoing connection, which could take one before a broker does, or between its stop
    and its next start; of these, the part that belongs to this process of pytest-xdist."""
    try:
        outgoing = int(PORTS_OF_CLIENTS.read_text().split()[0])
    except OSError:
        outgoing = 32_768
    every = range(FIRST_PORT, max(outgoing, FIRST_PORT + 1_000))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = len(every) // count
    return every[number * size : (number + 1) * size]


class BrokerProcess:
    """One `barnabas start` on a free port, over a data directory that outlives restarts."""

    def __init__(
        self,
        data_dir: Path,
        *,
        options: dict[str, str] | None = None,
        port: int | None = None,
        environment: dict[str, str] | None = None,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """environment: in place of this process's own. prefix: words before the command, which run it on another host."""
        self.environment = environment
        self.data_dir = data_dir
        self.options = {**common_options(), **(options or {})}
        self.port = port or free_port()
        self.host = host
        self.prefix = list(prefix)
        self.process: preloaded.Forked | subprocess.Popen[bytes] | None = None
        self.ready_line = ""
        self.log_path = data_dir.parent / f"{data_dir.name}.log"

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> BrokerProcess:
        command = [*self.prefix, sys.executable, "-m", "barnabas", "start"]
        if "listeners" not in self.options:
            command += ["--listen", self.bootstrap]
        if "log.dirs" not in self.options:
            command += ["--data", str(self.data_dir)]
        for name, value in self.options.items():
            command += ["-o", f"{name}={value}"]
        with self.log_path.open("ab") as log:
            self.process = preloaded.start(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self.environment or {**os.environ},
            )
        self._await_ready()
        return self

    def _await_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                raise AssertionError(f"no ready line within {READY_TIMEOUT_S} s: {self.log()[-2000:]}")
            byte = self.process.stdout.read1(4096)  # type: ignore[attr-defined]
            if not byte:
                raise AssertionError(f"the broker ended with {self.process.wait()}: {self.log()[-2000:]}")
            line += byte
        self.ready_line = line.decode()
        assert self.ready_line.startswith("ready"), self.ready_line

    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def kill(self) -> None:
        """kill -9: nothing is flushed, nothing is said."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, as an operator stops it; returns the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, signal_number: int) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            code = self.process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        return code

    def restart(self) -> BrokerProcess:
        self.stop()
        return self.start()
