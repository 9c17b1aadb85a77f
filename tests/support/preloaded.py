"""Runs `barnabas` commands in processes that are forked from one which has imported their modules already.

A command of a test is a process of its own, with its arguments, environment, folder, pipes and exit code. Started by an
interpreter of its own, it would spend three quarters of its processor time on imports. In `make soak`, and wherever
something else than `run` and `start` starts a command, it is.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Final, Literal

from tests.support import leftovers
from tests.support.examples import THOROUGH

COMMAND: Final = [sys.executable, "-m", "barnabas"]
READ_AT_START: Final = ("PYTHON", "LC_", "LANG")
"""Variables of the environment that an interpreter reads only when it starts begin with these."""

COMMAND_BYTES_MAX: Final = 16_384
"""How much of a command line other processes see."""

_lock = threading.Lock()
_servers: dict[str, tuple[subprocess.Popen[bytes], str]] = {}
"""The processes that fork, with their sockets, by what they have imported."""


class Forked:
    """As much of a `Popen` as tests use."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, streams: Sequence[int]
    ) -> None:
        """streams: file descriptors of its standard input, output and error."""
        request = {"command": list(command), "environment": dict(environment), "folder": str(folder)}
        message = json.dumps(request).encode()
        self.command, self.returncode = command, None
        self.stdout: IO[bytes] | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_server("broker" if command[3] == "start" else "command"))
        socket.send_fds(self._connection, [len(message).to_bytes(4, "big") + message], list(streams))
        self._said = b""
        self.pid = self._number()

    def _number(self) -> int:
        while b"\n" not in self._said:
            more = self._connection.recv(64)
            assert more, "the process that forks has ended"
            self._said += more
        number, _, self._said = self._said.partition(b"\n")
        return int(number)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = self._number()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.command, timeout or 0) from None
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    command: Sequence[str],
    *,
    stdout: Literal[-1],
    stderr: IO[bytes],
    stdin: Literal[-3],
    env: Mapping[str, str],
) -> Forked | subprocess.Popen[bytes]:
    """As `subprocess.Popen`."""
    if not _may_be_forked(command, env):
        return subprocess.Popen(command, stdout=stdout, stderr=stderr, stdin=stdin, env=env)
    its_in, (our_out, its_out) = os.open(os.devnull, os.O_RDONLY), os.pipe()
    process = Forked(command, env, Path.cwd(), [its_in, its_out, stderr.fileno()])
    os.close(its_in)
    os.close(its_out)
    process.stdout = os.fdopen(our_out, "rb")
    return process


def run(
    command: Sequence[str],
    *,
    input: Any = None,
    capture_output: Literal[True],
    text: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[Any]:
    """As `subprocess.run`."""
    environment = {**os.environ} if env is None else env
    if not _may_be_forked(command, environment):
        return subprocess.run(
            command,
            input=input,
            capture_output=True,
            text=text,
            env=env,
            cwd=cwd,
            timeout=timeout,
            check=check,
        )
    data: bytes = input.encode() if isinstance(input, str) else input or b""
    (its_in, our_in), (our_out, its_out), (our_err, its_err) = os.pipe(), os.pipe(), os.pipe()
    process = Forked(command, environment, cwd or Path.cwd(), [its_in, its_out, its_err])
    for descriptor in (its_in, its_out, its_err):
        os.close(descriptor)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(_write, our_in, data)
        outputs = [pool.submit(_read, descriptor) for descriptor in (our_out, our_err)]
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    said = [output.result() for output in outputs]
    done = subprocess.CompletedProcess(command, code, *(map(_as_text, said) if text else said))
    if check:
        done.check_returncode()
    return done


def _may_be_forked(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    if list(command[:3]) != COMMAND or not command[3:] or os.environ.get(THOROUGH):
        return False
    names = {name for name in {*environment, *os.environ} if name.startswith(READ_AT_START)}
    return all(environment.get(name) == os.environ.get(name) for name in names)


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(descriptor, "wb") as pipe:
        pipe.write(data)


def _read(descriptor: int) -> bytes:
    with open(descriptor, "rb") as pipe:
        return pipe.read()


def _as_text(data: bytes) -> str:
    return re.sub("\r\n?", "\n", data.decode())


def _server(kind: str) -> str:
    """The socket of the process that forks, which is started at the first call and ends with this process."""
    with _lock:
        if kind not in _servers:
            folder = tempfile.mkdtemp(prefix="barnabas-preloaded-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            place, room = f"{folder}/socket", "-" * COMMAND_BYTES_MAX
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.preloaded_server", kind, place, room],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
            )  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            leftovers.count_children_of(process.pid)
            _servers[kind] = process, place
        return _servers[kind][1]
