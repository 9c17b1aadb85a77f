"""The processes over a cluster's folder. They are found by the path of their configuration in their command line, not
by a file of process ids, which could outlive a crash; every command finds what another command has started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.local.process_list import processes
from barnabas.terminal.errors import CliError

LOOK_SECONDS: Final = 0.05
LINES_SHOWN: Final = 3
LOOKS_PER_LIST: Final = 10
"""Listing all processes costs more than asking for one."""
WATCH_SECONDS: Final = 1.0


class Member(NamedTuple):
    """One process of the cluster: what users call it, its configuration file, where its output goes."""

    name: str
    config: Path
    log: Path


def running(members: Sequence[Member]) -> dict[str, int]:
    """The process ids of the members that run, by name."""
    pids: dict[str, int] = {}
    for pid, words in processes():
        line = f" {' '.join(words)} "  # whole: a folder's name may hold spaces
        for member in members:
            if f" {member.config} " in line:
                pids[member.name] = pid
    return pids


class Started:
    """A newly started process, in a session of its own, so that Ctrl-C in the terminal does not reach it."""

    def __init__(self, member: Member, command: Sequence[str]) -> None:
        """Raises CliError."""
        self.member = member
        member.log.parent.mkdir(parents=True, exist_ok=True)
        with member.log.open("ab") as out:
            self._begin = out.tell()
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def output(self) -> list[str]:
        """The lines that the process has written since it was started."""
        with self.member.log.open("rb") as log:
            log.seek(self._begin)
            return log.read().decode(errors="replace").splitlines()

    def await_ready(self, is_ready: Callable[[Started], bool], timeout_s: float) -> None:
        """Wait until `is_ready`. Raises CliError when the process ends before, or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not is_ready(self):
            if self.process.poll() is not None:
                lines = [line for line in self.output() if line.strip()]
                why = " | ".join(lines[-LINES_SHOWN:]) or f"exit code {self.process.returncode}"
                raise CliError(f"{self.member.name} did not start: {why}; its log: {self.member.log}")
            if time.monotonic() > deadline:
                raise CliError(
                    f"{self.member.name} is not ready after {timeout_s:g} s; its log: {self.member.log}"
                )
            time.sleep(LOOK_SECONDS)

    def says_ready(self) -> bool:
        """Whether the process has printed the line of a broker that is ready."""
        return any(line.startswith("ready") for line in self.output())


def stop(member: Member, pid: int, timeout_s: float) -> str:
    """Send SIGTERM, and SIGKILL if the process does not end in time; how it ended, in a word."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if await_end(member, pid, timeout_s):
        return "stopped"
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    await_end(member, pid, timeout_s)
    return f"killed, since it had not stopped within {timeout_s:g} s"


def await_end(member: Member, pid: int, timeout_s: float) -> bool:
    """Whether the process has ended in time."""
    deadline = time.monotonic() + timeout_s
    looks = 0
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # a child of this process would stay a zombie
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        looks += 1
        if looks % LOOKS_PER_LIST == 0 and running([member]).get(member.name) != pid:
            return True  # a zombie of another parent, or a reused process id
        time.sleep(LOOK_SECONDS)
    return False
