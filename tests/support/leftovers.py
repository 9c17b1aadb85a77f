"""Processes that a test started and did not end: they are killed by their ids, and a warning names them.

What a fixture of a module or of the session starts belongs to no single test and is ended by its fixture; whatever is
still there at the end of the run is killed too. Orphans are left to the system: who adopted them here would have to
reap them as well, and a server such as PostgreSQL, whose start leaves an orphan, would never be seen to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

GRACE_S: Final = 15
LIVE_LONG: Final = (b"multiprocessing", b"pyspark-shell", b"sys.stdin.readline")
"""Helpers of the test process itself: Python's own, the JVM of its Spark session, the processes of pytest-xdist."""

_shared: set[int] = set()
_forking: set[int] = set()


def count_children_of(pid: int) -> None:
    """What another process forks at this one's wish counts as a child of this one."""
    _forking.add(pid)


def children(pid: int | None = None) -> set[int]:
    """Ids of the direct children of a process (this one) that still run."""
    pids: set[int] = set()
    for parent in {pid} if pid else {os.getpid(), *_forking}:
        for listing in Path("/proc", str(parent), "task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread, or the process, has just ended
                pids.update(int(word) for word in listing.read_text().split())
    return {child for child in pids if _runs(child)} - _forking


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        return state != b"Z" and not any(word in command_of(pid) for word in LIVE_LONG)
    except OSError:
        return False


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """What starts inside belongs to the whole module or session."""
    before = children()
    try:
        yield
    finally:
        _shared.update(children() - before)


class SharedProcesses:
    """A plugin: what hooks of a conftest.py do not see is the fixtures of the session."""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Any:
        if fixturedef.scope == "function":
            return (yield)
        with shared():
            return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        for command in kill_all():
            sys.stderr.write(f"left running at the end of the tests, and killed: {command}\n")


def kill_left_over(before: set[int], grace_s: float = GRACE_S) -> list[str]:
    """Kill children that are neither shared nor in `before`, and their descendants; returns their commands.

    Processes that are just ending get some time for it.
    """
    deadline = time.monotonic() + grace_s
    while left := children() - before - _shared:
        if time.monotonic() >= deadline:
            break
        time.sleep(0.02)
    commands = []
    for pid in left:
        with contextlib.suppress(OSError):
            commands.append(f"{pid}: {command_of(pid).decode(errors='replace')[:300]}")
        _kill(pid)
    return commands


def kill_all() -> list[str]:
    """At the end of the run: what its fixtures should have ended."""
    _shared.clear()
    return kill_left_over(set(), grace_s=5)


def _kill(pid: int) -> None:
    for child in children(pid):
        _kill(child)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
