"""Writes the stacks of all threads and tasks of this process to a file when it gets SIGQUIT, as a JVM does.

The threads are written by a handler in C (faulthandler), which needs neither the loop nor the interpreter's lock, so
it shows where a process hangs. The tasks are written by the loop, and then the file ends with END.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path, PurePath
from types import CoroutineType
from typing import Any, Final

log = logging.getLogger("barnabas.stacks")

FILE: Final = "stacks.txt"
SIGNAL: Final = signal.SIGQUIT
END: Final = "end of stacks"
TASKS_PER_TURN: Final = 50
FRAMES_MAX: Final = 30


def answer_on_standard_error() -> None:
    """For the time while a process starts: SIGQUIT writes the threads to standard error, without ending the process."""
    signal.signal(SIGNAL, signal.SIG_IGN)  # in force again until the loop installs its own handler
    faulthandler.register(SIGNAL, file=sys.stderr, all_threads=True)


class StackDumps:
    """Answers SIGQUIT between `start` and `stop`. Each answer replaces the previous one in `path`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        self._loop = loop
        self._path = path
        self._descriptor = -1
        self._writing: asyncio.Task[None] | None = None
        self._count = 0

    def start(self) -> None:
        """Take over SIGQUIT, in the main thread. If the file cannot be written, threads still go to standard error."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            log.warning("no stacks can be written", extra={"file": str(self._path), "reason": error.strerror})
            return
        faulthandler.unregister(SIGNAL)
        self._loop.add_signal_handler(SIGNAL, self._on_signal)
        # Registered last: it writes the threads first, and then calls the loop's handler.
        faulthandler.register(SIGNAL, file=self._descriptor, all_threads=True, chain=True)

    def stop(self) -> None:
        """Release SIGQUIT and remove the file."""
        if self._descriptor < 0:
            return
        faulthandler.unregister(SIGNAL)
        self._loop.remove_signal_handler(SIGNAL)
        if self._writing is not None:
            self._writing.cancel()
        os.close(self._descriptor)
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _on_signal(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._write(), name="stacks")

    async def _write(self) -> None:
        threads = os.pread(self._descriptor, 1 << 20, 0)
        if threads.endswith(f"{END}\n".encode()):
            return  # a busy loop may hear of one signal twice; no threads have been written since the last answer
        tasks = await describe_tasks(asyncio.all_tasks(self._loop))
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._count += 1
        text = (
            f"process {os.getpid()} at {when}, dump {self._count}\n\n"
            f"Threads\n\n{threads.decode(errors='replace')}\nTasks\n\n{tasks}\n{END}\n"
        )
        try:
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, text.encode())
        except OSError as error:
            log.warning("no stacks can be written", extra={"file": str(self._path), "reason": error.strerror})
            return
        log.info("stacks written", extra={"file": str(self._path)})


async def describe_tasks(tasks: set[asyncio.Task[Any]]) -> str:
    """The stacks of tasks, innermost call last; tasks with the same stack are counted together."""
    counts: Counter[tuple[str, ...]] = Counter()
    names: dict[tuple[str, ...], list[str]] = {}
    for i, task in enumerate(tasks):
        if i % TASKS_PER_TURN == TASKS_PER_TURN - 1:
            await asyncio.sleep(0)
        stack = stack_of(task)
        counts[stack] += 1
        names.setdefault(stack, []).append(task.get_name())
    parts = []
    for stack, count in counts.most_common():
        shown = ", ".join(sorted(names[stack])[:5])
        more = ", ..." if count > 5 else ""
        parts.append(
            f"{count} {'task' if count == 1 else 'tasks'} ({shown}{more})\n"
            + "".join(f"  {line}\n" for line in stack)
        )
    return "\n".join(parts)


def stack_of(task: asyncio.Task[Any]) -> tuple[str, ...]:
    """Where a task waits: the coroutines that it awaits, innermost last."""
    lines: list[str] = []
    awaited: Any = task.get_coro()
    while isinstance(awaited, CoroutineType) and len(lines) < FRAMES_MAX:
        code = awaited.cr_code
        frame = awaited.cr_frame
        line = code.co_firstlineno if frame is None else frame.f_lineno
        lines.append(f"{awaited.__qualname__} ({PurePath(code.co_filename).name}:{line})")
        awaited = awaited.cr_await
    if awaited is not None and not isinstance(awaited, CoroutineType):
        lines.append(f"waits for {type(awaited).__name__}")
    return tuple(lines)
